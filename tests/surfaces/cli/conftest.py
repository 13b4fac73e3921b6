"""The command line under test: as a process of its own where that matters, else in this one, which is quicker."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from leasehold import Leasehold
from leasehold.surfaces.cli.main import run
from tests.backends import Backend
from tests.launcher import launch

PATIENCE = 50.0
MODULE = "cli_tasks"
TASKS = """
import asyncio, os, threading
from pathlib import Path
from leasehold import Leasehold, Retry

app = Leasehold(schema=os.environ.get("LEASEHOLD_SCHEMA", "leasehold"))

@app.task
def add(a: int, b: int = 1) -> int:
    return a + b

@app.task(retry=Retry(max_attempts=1))
async def fail(text: str = "broken"):
    raise ValueError(text)

@app.task(lane="{lane}")
async def in_lane(lane: str, ok: bool = True):
    if not ok:
        raise ValueError("halted")

@app.task
async def until_told():
    Path("began").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)

@app.task
async def hang_in_thread():
    def hang():
        Path("hanging").touch()
        threading.Event().wait()
    await asyncio.to_thread(hang)

@app.command()
def command_until_told():
    folder = os.getcwd()
    script = 'touch "$1/began"; while [ ! -e "$1/go" ]; do sleep 0.02; done; echo 7 > "$LEASEHOLD_RESULT"'
    return ["sh", "-c", script, "sh", folder]

@app.task(timeout=0.2)
def stubborn():
    threading.Event().wait()
"""


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """What a list prints with --json: an array, one value a line."""
        found: list[Any] = json.loads(self.out)
        assert isinstance(found, list)
        return found


@dataclass
class Cli:
    folder: Path
    environment: dict[str, str]
    launched_by: Callable[..., subprocess.Popen[str]] = launch
    """`subprocess.Popen` where the start of Python is part of what is tested."""
    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, *arguments: str, **environment: str) -> Answer:
        """Run to its end, as a process."""
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=2 * PATIENCE)
        return Answer(process.returncode, out, err)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = self.launched_by(
            [sys.executable, "-m", "leasehold", *arguments],
            cwd=self.folder,
            env={**os.environ, **self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                stream.close()


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder with the tests' tasks in it."""
    tmp_path.joinpath(f"{MODULE}.py").write_text(TASKS)
    return tmp_path


@pytest.fixture
def cli(tasks: Path, backend: Backend) -> Iterator[Cli]:
    """On each store, in processes."""
    made = Cli(tasks, {"LEASEHOLD_URL": backend.url, "LEASEHOLD_SCHEMA": backend.schema})
    yield made
    made.end()


@pytest.fixture
def sqlite_cli(tasks: Path) -> Iterator[Cli]:
    """On SQLite alone, in processes: for what the store has no part in."""
    made = Cli(tasks, {"LEASEHOLD_URL": f"sqlite:///{tasks}/cli.db"})
    yield made
    made.end()


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """A command that sets up logging writes to stderr as it is then: the test's own, which is closed with it."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    for handler in root.handlers[:]:
        if handler not in handlers:
            root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture
def here(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    logging_as_it_was: None,
) -> Callable[..., Answer]:
    """In this process, on the store that the environment names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEASEHOLD_APP", raising=False)

    def call(*arguments: str) -> Answer:
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        return Answer(int(code), captured.out, captured.err)

    return call


@pytest.fixture
def app(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leasehold]:
    """An app on each store, which the commands of `here` work on too."""
    monkeypatch.setenv("LEASEHOLD_URL", backend.url)
    monkeypatch.setenv("LEASEHOLD_SCHEMA", backend.schema)
    for store in [backend.open()]:
        for card in store.list_workers(1e9):
            store.forget_worker(card.name)
    with Leasehold(backend.url, schema=backend.schema) as app:

        @app.task
        def work(n: int = 0) -> int:
            return n

        @app.task(lane="{lane}")
        def in_lane(lane: str) -> None: ...

        yield app


def read_until(process: subprocess.Popen[str], stream: str, text: str) -> str:
    """Lines of a process up to the one that holds this text."""
    seen = ""
    for line in getattr(process, stream):
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"ended without {text!r}: {seen}")


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)
    return process.returncode, err
