"""The watchdog: ends attempts whose time is over, and reports those that have stalled."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from leasehold.domain.checks.payload import encode
from leasehold.domain.hooks import Happened
from leasehold.domain.stream import STALLED
from leasehold.run.attempt import Attempt, StopCause
from leasehold.worker.attempts import Attempts
from leasehold.worker.hooks import HookDispatcher
from leasehold.worker.starter import Starter
from leasehold.worker.writers import EventWriter

# -- stalls ------------------------------------------------------------------------------------------------------------

logger = logging.getLogger("leasehold.worker")


@dataclass(eq=False)
class StallWatch:
    """Checks attempts that have a `stall_after`."""

    events: EventWriter
    hooks: HookDispatcher
    stop: Callable[[Attempt, StopCause], None]

    def check(self, run: Attempt, now: float) -> None:
        """Report once per silence: an attempt that gives a sign of life and falls silent again is reported again."""
        limit = run.stall_after
        received_at = max(run.started_at, run.reported_at)
        if limit is None or now < received_at + limit or run.stall_reported == received_at:
            return
        run.stall_reported = received_at
        self._report(run, limit)
        if run.on_stall != "report":
            self.stop(run, "stalled")

    def _report(self, run: Attempt, limit: float) -> None:
        grant = run.grant
        detail = run.stall_text
        logger.warning("job %s: %s is stalled: %s", grant.id, grant.task, detail)
        data = {"seconds": limit, "then": run.on_stall}
        stream = self.events.stream_of(run)
        self.events.put(stream, STALLED, encode(data, STALLED), text=detail)
        self.hooks.notify(
            Happened(STALLED, grant.id, grant.task, grant.queue, grant.attempt, grant.group, detail, data)
        )


# -- watchdog ----------------------------------------------------------------------------------------------------------

WATCH_EVERY = 0.2


@dataclass(eq=False)
class Watchdog:
    attempts: Attempts
    starter: Starter
    stalls: StallWatch
    stop_grace: float
    on_abandoned: Callable[[], None]

    async def run(self) -> None:
        while True:
            await asyncio.sleep(WATCH_EVERY)
            now = time.monotonic()
            self.starter.take_back(now)
            for run in self.attempts.unfinished():
                # An attempt that has not begun yet checks its limits itself.
                if run.started_at:
                    self._check(run, now)

    def _check(self, run: Attempt, now: float) -> None:
        if run.cause is not None:
            if now >= run.stopped_at + run.patience(self.stop_grace):
                self._abandon(run)
        elif run.limit_at is not None and now >= run.limit_at:
            self.attempts.stop(run, run.limit_cause)
        elif now >= run.lease_until:
            logger.warning("job %s: its lease could not be renewed; stopping it", run.grant.id)
            self.attempts.stop(run, "unrenewed")
        elif run.stall_after is not None:
            self.stalls.check(run, now)

    def _abandon(self, run: Attempt) -> None:
        logger.error(
            "job %s: %s ignored its stop for %g s and is abandoned; it keeps a place in this worker",
            run.grant.id,
            run.grant.task,
            self.stop_grace,
        )
        self.attempts.abandon(run)
        self.starter.conclude(run, run.without_secrets(run.outcome_when_abandoned()))
        self.on_abandoned()
