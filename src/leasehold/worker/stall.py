"""Detects stalled attempts: their lease is renewed, but they give no sign of life."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from leasehold.domain.checks.payload import encode
from leasehold.domain.hooks import Happened
from leasehold.domain.stream import STALLED
from leasehold.run.attempt import Attempt, StopCause
from leasehold.worker.hook_dispatcher import HookDispatcher
from leasehold.worker.stream_writer import EventWriter

logger = logging.getLogger("leasehold.worker")


@dataclass(eq=False)
class StallWatch:
    """Checks attempts that have a `stall_after`."""

    events: EventWriter
    hooks: HookDispatcher
    stop: Callable[[Attempt, StopCause], None]

    def look(self, run: Attempt, now: float) -> None:
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
