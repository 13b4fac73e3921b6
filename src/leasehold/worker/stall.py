"""Detects stalled attempts: their lease is renewed, but they give no sign of life."""

from __future__ import annotations

import logging
from collections.abc import Callable

from leasehold.domain.checks.payload import encode
from leasehold.domain.hooks import Happened
from leasehold.domain.stream import STALLED
from leasehold.run.attempt import Attempt, StopCause
from leasehold.worker.deliverer import Deliverer
from leasehold.worker.stream_writer import EventWriter

logger = logging.getLogger("leasehold.worker")


class StallWatch:
    """Checks attempts that have a `stall_after`."""

    def __init__(
        self, events: EventWriter, hooks: Deliverer, stop: Callable[[Attempt, StopCause], None]
    ) -> None:
        self._events = events
        self._hooks = hooks
        self._stop = stop

    def look(self, run: Attempt, now: float) -> None:
        """Report once per silence: an attempt that gives a sign of life and falls silent again is reported again."""
        limit = run.stall_after
        heard_at = max(run.started_at, run.told_at)
        if limit is None or now < heard_at + limit or run.stall_told == heard_at:
            return
        run.stall_told = heard_at
        self._tell(run, limit)
        if run.on_stall != "report":
            self._stop(run, "stalled")

    def _tell(self, run: Attempt, limit: float) -> None:
        grant = run.grant
        detail = run.stall_text
        logger.warning("job %s: %s is stalled: %s", grant.id, grant.kind, detail)
        data = {"seconds": limit, "then": run.on_stall}
        stream = self._events.stream_of(run)
        self._events.put(stream, STALLED, encode(data, STALLED), text=detail)
        self._hooks.tell(
            Happened(
                STALLED, grant.id, grant.kind, grant.queue, grant.attempt, grant.group_name, detail, data
            )
        )
