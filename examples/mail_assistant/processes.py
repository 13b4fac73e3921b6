"""The processes of the demo and of the tests: started, killed by their id, and never left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.ports import claim_port

ROOT = Path(__file__).parents[2]


def wait_for(condition: Callable[[], object], what: str, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.1)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Processes:
    """`with Processes(url) as all:` a Gmail stand-in, and as many assistants as are started."""

    def __init__(self, database_url: str, gmail_url: str = "", **environment: str) -> None:
        self.gmail_port, self.web_port = claim_port(), claim_port()
        self.gmail_url = gmail_url or f"http://127.0.0.1:{self.gmail_port}"
        self._environment = {
            **os.environ,
            "LEASEHOLD_URL": database_url,
            "GMA_GMAIL_URL": self.gmail_url,
            "PYTHONPATH": str(ROOT),
            **environment,
        }
        self._stack = ExitStack()

    @property
    def web_url(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start_gmail(self, push: bool = True) -> subprocess.Popen[bytes]:
        target = [f"{self.web_url}/webhook"] if push else []
        return self._start("gmail_server", str(self.gmail_port), *target, port=self.gmail_port)

    def start_assistant(self, port: int | None = None) -> subprocess.Popen[bytes]:
        """The web server with its worker."""
        port = port or self.web_port
        return self._start("server", str(port), port=port)

    def _start(self, module: str, *arguments: str, port: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"examples.mail_assistant.{module}", *arguments]
        process = subprocess.Popen(command, env=self._environment, cwd=ROOT)
        self._stack.callback(_end, process)
        wait_for(lambda: _listens(port) or process.poll() is not None, f"{module} on port {port}")
        if process.poll() is not None:
            raise RuntimeError(f"{module} ended with {process.returncode}")
        return process


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL: it can do nothing about it."""
    process.kill()
    process.wait()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            kill(process)
