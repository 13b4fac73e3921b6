"""Verbs and reads of schedules."""

from __future__ import annotations

from leasehold.domain.errors import ScheduleNotFound
from leasehold.domain.records import ScheduleRow
from leasehold.domain.schedules import Schedule
from leasehold.operations.arguments import Actor, Reason, ScheduleName
from leasehold.operations.verb import Backend, read, verb


@read("schedules.list", guard="all queues", http="GET /v1/schedules")
def list_schedules(backend: Backend) -> list[ScheduleRow]:
    """List schedules with their next and last tick."""
    return backend.store.list_schedules()


@read("schedule.get", guard="all queues", http="GET /v1/schedules/{name:leasehold_name}")
def get_schedule(backend: Backend, name: str) -> ScheduleRow:
    """Show a schedule."""
    for row in backend.store.list_schedules():
        if row.name == name:
            return row
    raise ScheduleNotFound(name)


@verb(
    "schedule.set",
    scope="admin",
    guard="all queues",
    audit=lambda given: {"task": given["schedule"].task, "when": given["schedule"].when},
)
def set_schedule(
    backend: Backend, name: ScheduleName, schedule: Schedule, *, actor: Actor = None
) -> ScheduleRow:
    """Create or change a schedule."""
    return backend.store.set_schedule(schedule)


@verb(
    "schedule.pause",
    scope="operate",
    guard="all queues",
    http="POST /v1/schedules/{name:path}/pause",
    examples={"reason": "not needed any more"},
)
def pause_schedule(
    backend: Backend, name: ScheduleName, reason: Reason = None, *, actor: Actor = None
) -> ScheduleRow:
    """Pause a schedule; missed ticks are not made up for later."""
    backend.store.pause_schedule(name, actor, reason)
    return get_schedule.function(backend, name)


@verb("schedule.resume", scope="operate", guard="all queues", http="POST /v1/schedules/{name:path}/resume")
def resume_schedule(backend: Backend, name: ScheduleName, *, actor: Actor = None) -> bool:
    """Resume a schedule, with ticks from now on."""
    return backend.store.resume_schedule(name)


@verb("schedule.delete", scope="admin", guard="all queues", destructive=True)
def delete_schedule(backend: Backend, name: ScheduleName, *, actor: Actor = None) -> None:
    """Delete a schedule; its jobs stay."""
    backend.store.delete_schedule(name)
