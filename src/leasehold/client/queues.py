"""Whole queues, kinds and lanes: closed and opened by an operator."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from leasehold.client.job import FindTask, Job
from leasehold.domain.checks.durations import Duration
from leasehold.domain.views import PauseRecord, Scope
from leasehold.operations.operations import Operations


class Pausable:
    """`app.queues` and `app.kinds`: no claims from a queue, or of a kind, until it is resumed."""

    def __init__(self, operations: Operations, scope: Scope) -> None:
        self._operations = operations
        self._scope = scope

    def pause(
        self,
        name: str,
        *,
        reason: str | None = None,
        for_: Duration | None = None,
        until: datetime | None = None,
        actor: str | None = None,
    ) -> PauseRecord:
        """Running jobs go on; no new ones start."""
        return self._operations.pause_scope(
            self._scope, name, reason=reason, for_=for_, until=until, actor=actor
        )

    def resume(self, name: str) -> bool:
        """False: it was not paused."""
        return self._operations.resume_scope(self._scope, name)

    def paused(self) -> list[PauseRecord]:
        return [pause for pause in self._operations.list_pauses() if pause.scope == self._scope]


class Lanes:
    """`app.lanes`."""

    def __init__(self, operations: Operations, find_task: FindTask) -> None:
        self._operations = operations
        self._find_task = find_task

    def resume(self, name: str, *, actor: str | None = None) -> Job[Any] | None:
        """Resume the job that halts the lane. None: nothing halts it."""
        row = self._operations.resume_lane(name, actor=actor)
        return None if row is None else Job(row.id, self._operations, self._find_task, row)
