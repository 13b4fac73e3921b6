"""Health of a worker, for its log, its health file, its presence and `worker.health()`."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from leasehold.domain.frozen import frozen
from leasehold.domain.records import WorkerProblem
from leasehold.worker.attempts import Attempts
from leasehold.worker.claimer import Claimer
from leasehold.worker.hooks import HookDispatcher
from leasehold.worker.service import Role, Service
from leasehold.worker.settings import WorkerSettings
from leasehold.worker.settler import Settler
from leasehold.worker.watchdog import LoopWatch

logger = logging.getLogger("leasehold.worker")

STUCK_AFTER = 15.0
"""Seconds without a claim, although there is room for one, without an answer from the database, or without a turn of
the event loop."""


@frozen
class Health:
    """`ok` only if the claim loop runs and the database accepts writes. A stuck hook, or one tenant's trouble, is a
    problem and no more."""

    ok: bool
    problems: tuple[str, ...]
    tenants: tuple[WorkerProblem, ...]
    """Tenants in trouble. They do not make the worker unhealthy: a restart would cost the others, and mend nothing."""
    running: int
    unsettled: int
    left_behind: int
    """Handlers that ignored their stop and still run."""


def judge(
    claimer: Claimer,
    attempts: Attempts,
    settler: Settler,
    hooks: HookDispatcher,
    loop_watch: LoopWatch,
    settings: WorkerSettings,
    roles: Iterable[Role] = (),
    tenants: Sequence[WorkerProblem] = (),
    *,
    finished: bool,
) -> Health:
    """Judge the worker, without the database. `tenants`: what its store says of its tenants; `finished`: it need not
    claim any more."""
    problems = []
    now = time.monotonic()
    waited = now - claimer.progress_at
    if (blocked := loop_watch.blocked_for(STUCK_AFTER)) is not None:
        problems.append(blocked)
    elif waited > STUCK_AFTER and claimer.trouble is None and not claimer.waits_for_room and not finished:
        unanswered = "" if claimer.asked_at is None else ": the database has not answered it"
        problems.append(f"no claim for {waited:.0f} s{unanswered}")
    for service in (role for role in roles if isinstance(role, Service)):
        since = service.unanswered_since
        if since is not None and now - since > STUCK_AFTER:
            problems.append(f"{service.name}: no answer from the database for {now - since:.0f} s")
    if claimer.trouble is not None:
        problems.append(f"no claims: {claimer.trouble}")
    elif settler.in_trouble:
        problems.append("the database does not accept results")
    unwritten = [attempt.unwritten for attempt in attempts.unfinished() if attempt.unwritten]
    if unwritten:
        problems.append(f"{unwritten[0]}; {len(unwritten)} result(s) are kept until then")
    if too_many_left_behind(attempts, settings):
        problems.append(f"{attempts.left_behind} handlers ignored their stop")
    ok = not problems
    problems += hooks.problems
    running = len(attempts.unfinished())
    unsettled = len(attempts.held) - running
    return Health(ok, tuple(problems), tuple(tenants), running, unsettled, attempts.left_behind)


def too_many_left_behind(attempts: Attempts, settings: WorkerSettings) -> bool:
    """Whether half of the places on the loop, or of the threads, are lost: a restart is better."""
    on_loop, in_threads = attempts.left_behind_on_loop, attempts.left_behind_in_threads
    return 2 * on_loop >= settings.concurrency > 0 or 2 * in_threads >= settings.threads > 0


# -- the log and the health file ---------------------------------------------------------------------------------------

JUDGE_EVERY = 5.0


class HealthWatch(Service):
    """Logs problems when they begin and when they are over, and touches the health file, whose age a probe checks. Its
    thread never waits for the database: it must not hang with those that it reports."""

    def __init__(self, health: Callable[[], Health], path: Path | None) -> None:
        super().__init__("health", self.beat)
        self._health = health
        self._path = path
        self._logged: set[str] = set()

    def stop(self) -> None:
        super().stop()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def beat(self) -> float:
        health = self._health()
        self._log(health)
        if self._path is not None:
            if health.ok:
                self._path.touch()
            else:
                self._path.unlink(missing_ok=True)
        return JUDGE_EVERY

    def _log(self, health: Health) -> None:
        found = set(map(_kind, health.problems))
        if not found <= self._logged:
            logger.error("unhealthy: %s", "; ".join(health.problems))
        elif health.ok and self._logged:
            logger.info("healthy again")
            self._logged.clear()
        self._logged |= found


def _kind(problem: str) -> str:
    """The problem without its details, which change: "no claim for 20 s: …" is "no claim for  s"."""
    return re.sub(r"\d+", "", problem).partition(":")[0]
