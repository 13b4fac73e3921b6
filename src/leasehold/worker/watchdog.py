"""The watchdog: ends attempts whose time is over, and reports those that have stalled or block the event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

from leasehold.domain.checks.payload import encode
from leasehold.domain.hooks import PendingNotification
from leasehold.domain.stream import STALLED
from leasehold.run import attempt as attempt_module
from leasehold.run import exceptions
from leasehold.run.attempt import Attempt, StopCause
from leasehold.run.exceptions import GuardedCoroutine
from leasehold.worker.attempts import Attempts
from leasehold.worker.hooks import HookDispatcher
from leasehold.worker.logs import log_job
from leasehold.worker.service import Service
from leasehold.worker.starter import Starter
from leasehold.worker.writers import UpdateWriter

# -- stalls ------------------------------------------------------------------------------------------------------------

logger = logging.getLogger("leasehold.worker")


@dataclass(eq=False)
class StallWatch:
    """Checks attempts that have a `stall_after`."""

    updates: UpdateWriter
    hooks: HookDispatcher
    stop: Callable[[Attempt, StopCause], None]

    def check(self, attempt: Attempt, now: float) -> None:
        """Report once per silence: an attempt that gives a sign of life and falls silent again is reported again."""
        limit = attempt.stall_after
        received_at = max(attempt.started_at, attempt.reported_at)
        if limit is None or now < received_at + limit or attempt.stall_reported == received_at:
            return
        attempt.stall_reported = received_at
        self._report(attempt, limit)
        if attempt.on_stall != "report":
            self.stop(attempt, "stalled")

    def _report(self, attempt: Attempt, limit: float) -> None:
        grant = attempt.grant
        detail = attempt.stall_text
        logger.warning("job %s: %s is stalled: %s", grant.id, grant.task, detail)
        data = {"seconds": limit, "then": attempt.on_stall}
        stream = self.updates.stream_of(attempt)
        self.updates.put(stream, STALLED, encode(data, STALLED), text=detail)
        self.hooks.notify(
            PendingNotification(
                STALLED, grant.id, grant.task, grant.queue, grant.attempt, grant.group, detail, data
            )
        )


# -- watchdog ----------------------------------------------------------------------------------------------------------

WATCH_EVERY = 0.2


@dataclass(eq=False)
class Watchdog:
    attempts: Attempts
    starter: Starter
    stalls: StallWatch
    stop_grace: float
    on_left_behind: Callable[[], None]
    turns: int | None = 0
    """How often it has looked, which is how `LoopWatch` sees that the loop turns. None: it has ended."""

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(WATCH_EVERY)
                self._look(time.monotonic())
        finally:
            self.turns = None

    def _look(self, now: float) -> None:
        self.turns = (self.turns or 0) + 1
        self.starter.hand_back_waiting(now)
        for attempt in self.attempts.unfinished():
            # An attempt that has not begun yet checks its limits itself.
            if attempt.started_at:
                self._check(attempt, now)

    def _check(self, attempt: Attempt, now: float) -> None:
        if attempt.cause is not None:
            if now >= attempt.stop_began_at + attempt.stop_timeout(self.stop_grace):
                self._leave_behind(attempt)
        elif attempt.time_out_at is not None and now >= attempt.time_out_at:
            self.attempts.stop(attempt, attempt.time_out_cause)
        elif now >= attempt.usable_until:
            logger.warning("job %s: its lease could not be renewed; stopping it", attempt.grant.id)
            self.attempts.stop(attempt, "unrenewed")
        elif attempt.stall_after is not None:
            self.stalls.check(attempt, now)

    def _leave_behind(self, attempt: Attempt) -> None:
        logger.error(
            "job %s: %s ignored its stop for %g s and is left behind; it keeps a place in this worker",
            attempt.grant.id,
            attempt.grant.task,
            self.stop_grace,
        )
        self.attempts.leave_behind(attempt)
        self.starter.conclude(attempt, attempt.without_secrets(attempt.outcome_when_left_behind()))
        self.on_left_behind()


# -- a blocked loop ----------------------------------------------------------------------------------------------------

CHECK_LOOP_EVERY = 1.0
BLOCKED_AFTER = 3.0
"""Seconds without a turn of the loop after which a warning is logged."""


class LoopWatch(Service):
    """Reports once when a handler blocks the event loop, and once when the loop goes on. It has a thread of its own and
    uses no database."""

    def __init__(self, watchdog: Watchdog) -> None:
        super().__init__("loop watch", self.beat)
        self._watchdog = watchdog
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._turns: int | None = None
        self._turned_at = self._looked_at = time.monotonic()
        self._blocked: str | None = None
        """What blocks the loop."""

    def blocked_for(self, seconds: float) -> str | None:
        """Return what has blocked the loop for so long; None: nothing has."""
        return self._blocked if time.monotonic() - self._turned_at > seconds else None

    def beat(self) -> float:
        now, turns = time.monotonic(), self._watchdog.turns
        # If this thread was late too, the whole process stood still, or one call kept all threads from running.
        late, self._looked_at = now - self._looked_at > 2 * CHECK_LOOP_EVERY, now
        if turns is None or turns != self._turns:
            if self._blocked is not None:
                logger.info("the event loop turns again after %.1f s", now - self._turned_at)
                self._blocked = None
            self._turns, self._turned_at = turns, now
        elif late and self._blocked is None:
            self._turned_at = now
        elif self._blocked is None and now - self._turned_at >= BLOCKED_AFTER:
            self._report(now - self._turned_at)
        return CHECK_LOOP_EVERY

    def _report(self, seconds: float) -> None:
        where = _place_of(sys._current_frames().get(self._loop_thread))
        text = "the event loop for %.0f s so far (%s): async jobs, claims and results wait; %s"
        attempt = self._current_attempt()
        if attempt is None:
            self._blocked = f"the event loop is blocked: {where}"
            logger.warning(f"code outside of the running jobs blocks {text}", seconds, where, _REMEDY_OUTSIDE)
        else:
            grant = attempt.grant
            self._blocked = f"job {grant.id} ({grant.task}) blocks the event loop: {where}"
            log_job(logging.WARNING, grant, f"blocks {text}", seconds, where, _REMEDY)

    def _current_attempt(self) -> Attempt | None:
        """Return the attempt whose code the loop is running: its own task, or a task that its handler has made."""
        task = asyncio.current_task(self._loop)
        if task is None:
            return None
        coroutine = task.get_coro()
        if isinstance(coroutine, GuardedCoroutine):
            return coroutine.attempt if isinstance(coroutine.attempt, Attempt) else None
        return self._watchdog.attempts.held.get(task.get_name())


_REMEDY = (
    "make the task a plain function (def), which runs in a thread, or call what blocks by asyncio.to_thread"
)
_REMEDY_OUTSIDE = "call what blocks by asyncio.to_thread"


_CALLERS = (os.path.dirname(asyncio.__file__), attempt_module.__file__, exceptions.__file__)
"""Files that call the code of handlers and of programs on a loop."""


def _place_of(frame: FrameType | None) -> str:
    """Return where the code on the loop stands, and where the call stands that it is in."""
    frames = traceback.extract_stack(frame)
    callers = [number for number, one in enumerate(frames) if one.filename.startswith(_CALLERS)]
    inner = frames[callers[-1] + 1 :] if callers else []
    ends = [*inner[:1], *inner[1:][-1:]] or frames[-1:]
    return " > ".join(f"{one.name}, {one.filename}:{one.lineno}" for one in ends)
