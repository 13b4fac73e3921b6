"""Runs the demo's workers, prints its text, and checks what it promises."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from leasehold.demo.tasks import FOLDER
from leasehold.surfaces.cli import render

if TYPE_CHECKING:
    from leasehold.app import Leasehold
    from leasehold.domain.job import Job as Row
    from leasehold.types import Job

TASKS = "leasehold.demo.tasks:app"
WAIT_WITHIN = 25.0
POLL_EVERY = 0.05


class Stage:
    def __init__(self, app: Leasehold, folder: Path) -> None:
        self.app = app
        self._folder = folder
        self._workers: dict[int, subprocess.Popen[str]] = {}
        self._readers: list[threading.Thread] = []
        self._seen: dict[str, tuple[object, ...]] = {}
        self._console = render.console()
        self._started = time.monotonic()
        self.broken: list[str] = []
        """What did not happen."""

    # -- output --------------------------------------------------------------------------------------------------
    def scene(self, title: str) -> None:
        self._print(f"\n{title}", "bold")

    def say(self, text: str) -> None:
        self._print(f"  {text}")

    def show_command(self, command: str, text: str) -> None:
        """Print a command and its present output."""
        self._print(f"  $ leasehold {command}", "dim")
        self._print(f"    {render.clean(text)}")

    def check(self, true: bool, text: str) -> None:
        """Print what should have happened, and whether it did."""
        if true:
            self._print(f"  ✓ {text}", "green")
        else:
            self.broken.append(text)
            self._print(f"  ✗ this did not happen: {text}", "bold red")

    def _print(self, text: str, style: str = "") -> None:
        from rich.text import Text

        clock = f"{time.monotonic() - self._started:5.1f} s"
        for line in text.splitlines():
            blank = not line.strip()
            self._console.print(Text("" if blank else f"{clock}  {line}", style=style), soft_wrap=True)

    # -- the store ---------------------------------------------------------------------------------------------------
    def wait(self, job: Job[Any], until: Callable[[Row], bool], timeout: float = WAIT_WITHIN) -> bool:
        """Watch a job and print each change, until `until` is true. False: the time is over."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            row = job.refresh().__row__
            now = (row.state, row.attempt, row.error)
            if self._seen.get(job.id) != now:
                self._seen[job.id] = now
                self.say(_change(row))
            if until(row):
                return True
            time.sleep(POLL_EVERY)
        return False

    def history(self, job: Job[Any]) -> list[str]:
        """Print the job's history. Returns its events, oldest first."""
        entries = job.history()
        for entry in entries:
            reported = render.cut(entry.detail, 60)
            self.say(f"  history: attempt {entry.attempt}, {entry.event}, now {entry.to_state} ({reported})")
        return [entry.event for entry in entries]

    def why(self, job: Job[Any]) -> None:
        holds = job.explain()
        self.show_command(f"why {job.id}", "\n    ".join(map(str, holds)))

    # -- workers -----------------------------------------------------------------------------------------------------
    def start_worker(self) -> int:
        command = [
            sys.executable,
            "-m",
            "leasehold",
            "worker",
            TASKS,
            "--sweep",
            "0.5",
            "--shutdown-grace",
            "5",
        ]
        process = subprocess.Popen(
            [*command, "--log-level", "warning"],
            env={**os.environ, FOLDER: str(self._folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Only this process gets Ctrl-C; it stops the workers.
            start_new_session=True,
        )
        self._workers[process.pid] = process
        reader = threading.Thread(target=self._repeat, args=(process.stdout,), daemon=True)
        reader.start()
        self._readers.append(reader)
        return process.pid

    def workers_are_up(self, count: int) -> bool:
        deadline = time.monotonic() + WAIT_WITHIN
        while time.monotonic() < deadline and all(p.poll() is None for p in self._workers.values()):
            if len(self.app.workers()) >= count:
                return True
            time.sleep(POLL_EVERY)
        return False

    def kill(self, pid: int) -> bool:
        """Send SIGKILL: the worker cannot clean up."""
        process = self._workers.pop(pid, None)
        if process is None:
            return False
        process.kill()
        return process.wait() == -signal.SIGKILL

    def drain(self) -> bool:
        """Send SIGTERM: the workers finish their jobs and exit."""
        for process in self._workers.values():
            process.terminate()
        codes = []
        for process in self._workers.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                codes.append(process.wait(15))
        return codes == [0] * len(self._workers)

    def close(self) -> None:
        """Kill the workers that are left; a second Ctrl-C must not interrupt this."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for process in self._workers.values():
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join(2)

    def _repeat(self, lines: IO[str]) -> None:
        """Print the workers' output between the demo's own lines."""
        with lines:
            for line in lines:
                self._print(f"      {render.clean(line.rstrip())}", "dim")


def _change(row: Row) -> str:
    reported = f"{row.task}({', '.join(map(str, json.loads(row.args).values()))}): {row.state.value}"
    if row.state == "running":
        reported += f" on worker {pid_of(row)}, attempt {row.attempt}"
    if row.error and row.state in ("queued", "failed"):
        reported += f" ({render.cut(row.error, 70)})"
    if row.state == "succeeded":
        reported += f" with {row.result}"
    return reported


def pid_of(row: Row) -> int | None:
    """Return the process of a worker, whose name is host:pid:random."""
    return None if row.worker is None else int(row.worker.rsplit(":", 2)[1])


@contextlib.contextmanager
def stage(app: Leasehold, folder: Path) -> Iterator[Stage]:
    made = Stage(app, folder)
    try:
        yield made
    finally:
        made.close()
