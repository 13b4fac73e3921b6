"""The verbs on schedules."""

from __future__ import annotations

from leasehold.domain.checks.names import checked_name
from leasehold.domain.checks.texts import checked_actor, checked_reason
from leasehold.domain.errors import ScheduleNotFound
from leasehold.domain.schedules import Schedule
from leasehold.domain.views import ScheduleRow
from leasehold.operations.base import StoreDoor


class ScheduleOperations(StoreDoor):
    def list_schedules(self) -> list[ScheduleRow]:
        return self._store.list_schedules()

    def get_schedule(self, name: str) -> ScheduleRow:
        for row in self._store.list_schedules():
            if row.name == name:
                return row
        raise ScheduleNotFound(name)

    def set_schedule(self, schedule: Schedule) -> ScheduleRow:
        return self._store.set_schedule(schedule)

    def pause_schedule(
        self, name: str, reason: str | None = None, *, actor: str | None = None
    ) -> ScheduleRow:
        self._store.pause_schedule(
            checked_name(name, "schedule"), checked_actor(actor), checked_reason(reason)
        )
        return self.get_schedule(name)

    def resume_schedule(self, name: str) -> bool:
        return self._store.resume_schedule(checked_name(name, "schedule"))

    def delete_schedule(self, name: str) -> None:
        self._store.delete_schedule(checked_name(name, "schedule"))

    def note_run(self, name: str, job_id: str) -> None:
        self._store.note_run(name, job_id)
