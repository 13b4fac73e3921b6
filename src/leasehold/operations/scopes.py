"""The verbs on whole queues, kinds and lanes."""

from __future__ import annotations

from leasehold.domain.checks.names import checked_name, kept_name
from leasehold.domain.checks.texts import checked_actor
from leasehold.domain.closing import Closing
from leasehold.domain.job import Job
from leasehold.domain.views import (
    LaneHolder,
    PauseRecord,
    QueueRow,
    Scope,
)
from leasehold.operations.base import StoreDoor
from leasehold.operations.queues import list_queues


class ScopeOperations(StoreDoor):
    def pause_scope(self, scope: Scope, name: str, closing: Closing) -> PauseRecord:
        return self._store.pause_scope(
            scope, checked_name(name, scope), closing.actor, closing.reason, closing.length, closing.until
        )

    def resume_scope(self, scope: Scope, name: str) -> bool:
        return self._woken(self._store.resume_scope(scope, checked_name(name, scope)))

    def list_pauses(self) -> list[PauseRecord]:
        return self._store.list_pauses()

    def resume_lane(self, lane: str, *, actor: str | None = None) -> Job | None:
        return self._woken(self._store.resume_lane(kept_name(lane, "lane"), checked_actor(actor)))

    def list_lanes(self) -> list[LaneHolder]:
        """Lanes that are held or stand still, and by which job."""
        return self._all_whole(self._store.list_lanes())

    def list_queues(self) -> list[QueueRow]:
        """Every queue and task that is known, with its live workers, its pause and what is in it."""
        return list_queues(self._store)
