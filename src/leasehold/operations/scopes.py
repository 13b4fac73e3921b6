"""The verbs on whole queues, kinds and lanes."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.checks.durations import Duration
from leasehold.domain.checks.names import checked_name
from leasehold.domain.job import Job
from leasehold.domain.views import (
    LaneHolder,
    PauseRecord,
    QueueRow,
    Scope,
)
from leasehold.operations.base import StoreDoor, checked_length, checked_reason
from leasehold.operations.queues import list_queues


class ScopeOperations(StoreDoor):
    def pause_scope(
        self,
        scope: Scope,
        name: str,
        *,
        reason: str | None = None,
        for_: Duration | None = None,
        until: datetime | None = None,
        actor: str | None = None,
    ) -> PauseRecord:
        length = checked_length(for_, until)
        return self._store.pause_scope(
            scope, checked_name(name, scope), actor, checked_reason(reason), length, until
        )

    def resume_scope(self, scope: Scope, name: str) -> bool:
        return self._woken(self._store.resume_scope(scope, checked_name(name, scope)))

    def list_pauses(self) -> list[PauseRecord]:
        return self._store.list_pauses()

    def resume_lane(self, lane: str, *, actor: str | None = None) -> Job | None:
        return self._woken(self._store.resume_lane(checked_name(lane, "lane"), actor))

    def list_lanes(self) -> list[LaneHolder]:
        """Lanes that are held or stand still, and by which job."""
        return self._store.list_lanes()

    def list_queues(self) -> list[QueueRow]:
        """Every queue and task that is known, with its live workers, its pause and what is in it."""
        return list_queues(self._store)
