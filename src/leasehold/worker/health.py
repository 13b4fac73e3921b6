"""Health of a worker, for its health file, its presence and `worker.health()`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from leasehold.domain.frozen import frozen
from leasehold.worker.attempts import Attempts
from leasehold.worker.claimer import Claimer
from leasehold.worker.service import Service
from leasehold.worker.settings import WorkerSettings
from leasehold.worker.settler import Settler

STUCK_AFTER = 15.0
"""Seconds without a claim, although there is room for one."""


@frozen
class Health:
    """`ok` only if the claim loop runs and the database accepts writes."""

    ok: bool
    problems: tuple[str, ...]
    running: int
    unsettled: int
    left_behind: int
    """Handlers that ignored their stop and still run."""


def judge(
    claimer: Claimer, attempts: Attempts, settler: Settler, settings: WorkerSettings, *, finished: bool
) -> Health:
    """Judge the worker. `finished`: it need not claim any more."""
    problems = []
    waited = time.monotonic() - claimer.progress_at
    if waited > STUCK_AFTER and not claimer.waits_for_room and not finished:
        problems.append(f"no claim for {waited:.0f} s: a handler may block the event loop")
    if claimer.trouble is not None:
        problems.append(f"no claims: {claimer.trouble}")
    elif settler.in_trouble:
        problems.append("the database does not accept results")
    unwritten = [attempt.unwritten for attempt in attempts.unfinished() if attempt.unwritten]
    if unwritten:
        problems.append(f"{unwritten[0]}; {len(unwritten)} result(s) are kept until then")
    if too_many_left_behind(attempts, settings):
        problems.append(f"{attempts.left_behind} handlers ignored their stop")
    running = len(attempts.unfinished())
    return Health(not problems, tuple(problems), running, len(attempts.held) - running, attempts.left_behind)


def too_many_left_behind(attempts: Attempts, settings: WorkerSettings) -> bool:
    """Whether half of the places on the loop, or of the threads, are lost: a restart is better."""
    on_loop, in_threads = attempts.left_behind_on_loop, attempts.left_behind_in_threads
    return 2 * on_loop >= settings.concurrency > 0 or 2 * in_threads >= settings.threads > 0


# -- the health file ---------------------------------------------------------------------------------------------------
# A probe checks its age.

TOUCH_EVERY = 5.0


class HealthFile(Service):
    def __init__(self, path: Path, is_well: Callable[[], bool]) -> None:
        super().__init__("health file", self.beat)
        self._path = path
        self._is_well = is_well

    def stop(self) -> None:
        super().stop()
        self._path.unlink(missing_ok=True)

    def beat(self) -> float:
        if self._is_well():
            self._path.touch()
        else:
            self._path.unlink(missing_ok=True)
        return TOUCH_EVERY
