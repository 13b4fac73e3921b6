"""The watchdog: ends attempts whose time is over, and reports those that have stalled."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from leasehold.domain.checks.payload import encode
from leasehold.domain.hooks import PendingNotification
from leasehold.domain.stream import STALLED
from leasehold.run.attempt import Attempt, StopCause
from leasehold.worker.attempts import Attempts
from leasehold.worker.hooks import HookDispatcher
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

    async def run(self) -> None:
        while True:
            await asyncio.sleep(WATCH_EVERY)
            now = time.monotonic()
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
