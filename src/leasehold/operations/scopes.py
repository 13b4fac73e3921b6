"""The verbs on whole queues, kinds and lanes."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.domain.checks.names import checked_name, kept_name
from leasehold.domain.closing import Closing
from leasehold.domain.job import Job
from leasehold.domain.views import (
    LaneHolder,
    PauseRecord,
    QueueCount,
    QueueRow,
    Scope,
)
from leasehold.operations.base import StoreDoor
from leasehold.operations.queues import list_queues


class ScopeOperations(StoreDoor):
    def pause_scope(self, scope: Scope, name: str, closing: Closing) -> PauseRecord:
        name = checked_name(name, scope)
        told = {"reason": closing.reason, "seconds": closing.length, "until": closing.until}
        with self._recorded(f"{scope}.pause", name, closing.actor, **told) as store:
            return store.pause_scope(
                scope, name, closing.actor, closing.reason, closing.length, closing.until
            )

    def resume_scope(self, scope: Scope, name: str, *, actor: str | None = None) -> bool:
        name = checked_name(name, scope)
        with self._recorded(f"{scope}.resume", name, actor) as store:
            resumed = store.resume_scope(scope, name)
        return self._woken(resumed)

    def list_pauses(self) -> list[PauseRecord]:
        return self._store.list_pauses()

    def resume_lane(self, lane: str, *, actor: str | None = None) -> Job | None:
        lane = kept_name(lane, "lane")
        with self._recorded("lane.resume", lane, actor) as store:
            job = store.resume_lane(lane, actor)
        return self._woken(job)

    def list_lanes(self) -> list[LaneHolder]:
        """Lanes that are held or stand still, and by which job."""
        return self._all_whole(self._store.list_lanes())

    def list_queues(self, jobs: Iterable[QueueCount] | None = None) -> list[QueueRow]:
        """Every queue and task that is known, with its live workers, its pause and what is in it: by `jobs`, if those
        were counted already (`metrics().jobs`)."""
        return list_queues(self._store, jobs)
