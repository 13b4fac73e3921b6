"""The verbs on schedules."""

from __future__ import annotations

from leasehold.domain.checks.names import checked_name
from leasehold.domain.checks.texts import checked_reason
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

    def set_schedule(self, schedule: Schedule, *, actor: str | None = None) -> ScheduleRow:
        told = {"task": schedule.kind, "when": schedule.when}
        with self._recorded("schedule.set", schedule.name, actor, **told) as store:
            return store.set_schedule(schedule)

    def pause_schedule(
        self, name: str, reason: str | None = None, *, actor: str | None = None
    ) -> ScheduleRow:
        name, reason = checked_name(name, "schedule"), checked_reason(reason)
        with self._recorded("schedule.pause", name, actor, reason=reason) as store:
            store.pause_schedule(name, actor, reason)
        return self.get_schedule(name)

    def resume_schedule(self, name: str, *, actor: str | None = None) -> bool:
        name = checked_name(name, "schedule")
        with self._recorded("schedule.resume", name, actor) as store:
            return store.resume_schedule(name)

    def delete_schedule(self, name: str, *, actor: str | None = None) -> None:
        name = checked_name(name, "schedule")
        with self._recorded("schedule.delete", name, actor) as store:
            store.delete_schedule(name)
