"""What handlers did, in their own words, beside the database: one line for each start and end of a run."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leasehold.run.context import RunFacts


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one job. `ended` is None when its process died first, or while it lasts."""

    job: str
    attempt: int
    token: int
    pid: int
    started: float
    ended: float | None
    how: str | None
    """`done`, or the name of what was raised."""
    note: Any


class SideLog:
    """Appended to by many processes: a line is one write, so lines never mix, and a killed process leaves whole
    ones. Times are the machine's monotonic clock, which all its processes share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    @contextmanager
    def run(self, ctx: RunFacts, note: Any = None) -> Iterator[None]:
        self._write("start", ctx, note)
        how = "done"
        try:
            yield
        except BaseException as error:
            how = type(error).__name__
            raise
        finally:
            self._write("end", ctx, how)

    def _write(self, event: str, ctx: RunFacts, note: Any) -> None:
        facts = [event, ctx.job_id, ctx.attempt, ctx.lease_token, os.getpid(), time.monotonic(), note]
        line = json.dumps(facts).encode() + b"\n"
        assert os.write(self._file, line) == len(line)

    def runs(self) -> list[Run]:
        """In the order of their starts. The same grant run twice is two runs: nothing here hides it."""
        open_runs: dict[tuple[str, int, int], Run] = {}
        found: list[Run] = []
        for line in self.path.read_text().splitlines():
            event, job, attempt, token, pid, at, note = json.loads(line)
            key = (job, token, pid)
            if event == "start":
                if key in open_runs:
                    found.append(open_runs[key])
                open_runs[key] = Run(job, attempt, token, pid, at, None, None, note)
            else:
                begun = open_runs.pop(key)
                found.append(Run(job, attempt, token, pid, begun.started, at, note, begun.note))
        return sorted([*found, *open_runs.values()], key=lambda run: run.started)

    def of(self, job: str) -> list[Run]:
        return [run for run in self.runs() if run.job == job]

    def close(self) -> None:
        os.close(self._file)
