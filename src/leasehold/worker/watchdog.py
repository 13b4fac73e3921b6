"""The watch: enforces time limits, leases that could not be renewed, and stops that were ignored."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from leasehold.run.attempt import Attempt
from leasehold.worker.attempts import Attempts
from leasehold.worker.stall import StallWatch
from leasehold.worker.starter import Starter

logger = logging.getLogger("leasehold.worker")

WATCH_EVERY = 0.2


@dataclass(eq=False)
class Watch:
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
                    self._look(run, now)

    def _look(self, run: Attempt, now: float) -> None:
        if run.cause is not None:
            if now >= run.stopped_at + run.patience(self.stop_grace):
                self._abandon(run)
        elif run.limit_at is not None and now >= run.limit_at:
            self.attempts.stop(run, run.limit_cause)
        elif now >= run.lease_until:
            logger.warning("job %s: its lease could not be renewed; stopping it", run.grant.id)
            self.attempts.stop(run, "unrenewed")
        elif run.stall_after is not None:
            self.stalls.look(run, now)

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
