"""Guides driven from outside: a page's own files in a folder, real servers on them, and what they answer over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.architecture.sources import ROOT
from tests.docs.pages import DOCS, read_page
from tests.docs.walk import FILE
from tests.launcher import launch
from tests.workers import wait_for

PATIENCE = 120.0
LISTENS = re.compile(r"(http://127\.0\.0\.1:\d+)")


class Project:
    """What a reader of the page has in front of him."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("LEASEHOLD_", "DJANGO_", "FLASK_"))
        }
        path = os.pathsep.join([str(folder), str(ROOT / "src")])
        self.environment |= {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", **environment}
        self.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.environment['PATH']}"

    def lay_out(self, page: str, setup: str = "") -> None:
        """Write the page's files; before them, run its console blocks that begin with `setup`."""
        for block in read_page(DOCS / page).blocks:
            if setup and block.language == "console" and block.body.lstrip().startswith(setup):
                self.run("bash", "-euc", block.body)
            elif found := FILE.match(block.body):
                path = self.folder / found[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.body, encoding="utf-8")

    def run(self, *command: str, code: int = 0, **environment: str) -> str:
        """What it has printed; it ends with this code."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment | environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=4 * PATIENCE,
        )  # fmt: skip
        assert done.returncode == code, f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout

    def python(self, *arguments: str, code: int = 0, **environment: str) -> str:
        process = launch(
            [sys.executable, *arguments], cwd=self.folder, env=self.environment | environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        printed, _ = process.communicate(timeout=4 * PATIENCE)
        assert process.returncode == code, f"{' '.join(arguments)}: exit code {process.returncode}\n{printed}"
        return str(printed)

    @contextmanager
    def starts(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """A Python program and its log. It is killed if it still runs when the block ends."""
        log = self.folder / f"{Path(arguments[-1]).name}-{time.monotonic_ns()}.log"
        with log.open("wb") as out:
            process = launch(
                [sys.executable, *arguments], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=out, stderr=out,
            )  # fmt: skip
        try:
            yield process, log
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def stays(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> Iterator[Path]:
        """A Python program that runs until the block ends, and ends with one of these codes at SIGTERM; its log."""
        with self.starts(*arguments) as (process, log):
            yield log
            assert process.poll() is None, f"it has ended with {process.returncode}:\n{log.read_text()}"
            process.terminate()
            assert process.wait(PATIENCE) in codes, log.read_text()

    @contextmanager
    def serves(self, *arguments: str) -> Iterator[str]:
        """A web server on a port that the system chooses; its URL. Told with port 0, it says which one it got."""
        with self.stays(
            *arguments, codes=(0, -signal.SIGTERM)
        ) as log:  # uvicorn shuts down, and then dies of it
            yield url_in(log)


def url_in(log: Path) -> str:
    """Where a server listens, once it has said so."""
    found: re.Match[str] = wait_for(lambda: LISTENS.search(log.read_text()), log.read_text)
    return found[1]


def ask(url: str, form: Mapping[str, str] | None = None) -> tuple[int, Any]:
    """Get, or post a form; the status and the JSON."""
    data = None if form is None else urllib.parse.urlencode(form).encode()
    try:
        with urllib.request.urlopen(url, data, timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"null")


def ended(url: str) -> dict[str, Any]:
    """What the page's route of a job says when the job has ended."""

    def look() -> Any:
        _, said = ask(url)
        return said if said["state"] not in ("pending", "queued", "running") else None

    return wait_for(look, lambda: ask(url))
