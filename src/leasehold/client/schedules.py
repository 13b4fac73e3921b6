"""`app.schedules`: schedules, listed and changed at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

from leasehold.client.job import FindTask, Job
from leasehold.domain.job import Enqueued
from leasehold.domain.records import ScheduleRow
from leasehold.operations import schedules
from leasehold.operations.local import Operator
from leasehold.tasks.definition import Registry
from leasehold.tasks.schedule import ScheduleOptions, schedule_for
from leasehold.threads import aio

RunSchedule = Callable[[str, str | None], Enqueued]
"""Makes a job of the schedule with this name, for this actor."""


class Schedules:
    """The schedules of one store, as `Remote` has them."""

    def __init__(self, operator: Operator, find_task: FindTask, run_schedule: RunSchedule) -> None:
        self._operator = operator
        self._find_task = find_task
        self._run_schedule = run_schedule

    def get(self, name: str) -> ScheduleRow:
        """Return the schedule. Raises ScheduleNotFound."""
        return self._operator.call(schedules.get_schedule, name)

    aget = aio(get)

    def pause(self, name: str, reason: str | None = None, *, actor: str | None = None) -> ScheduleRow:
        """Pause the schedule until `resume`; ticks missed meanwhile are not made up for."""
        return self._operator.call(schedules.pause_schedule, name, reason, actor=actor)

    apause = aio(pause)

    def resume(self, name: str, *, actor: str | None = None) -> bool:
        """Resume the schedule, with ticks from now on. False: it was not paused."""
        return self._operator.call(schedules.resume_schedule, name, actor=actor)

    aresume = aio(resume)

    def run(self, name: str, *, actor: str | None = None) -> Job[Any]:
        """Make a job of the schedule now, in addition to its ticks, even if the last job is still live."""
        made = self._run_schedule(name, actor)
        return Job(made.id, self._operator, self._find_task, created=made.created)

    arun = aio(run)

    def list(self) -> list[ScheduleRow]:
        """List every schedule: its next and last tick, its last job, and whether it is paused or orphaned."""
        return self._operator.call(schedules.list_schedules)

    alist = aio(list)


class AppSchedules(Schedules):
    """`app.schedules`: the schedules declared with `@app.schedule`, and the ones made with `set`."""

    def __init__(
        self, operator: Operator, find_task: FindTask, run_schedule: RunSchedule, tasks: Registry
    ) -> None:
        super().__init__(operator, find_task, run_schedule)
        self._tasks = tasks

    def set(
        self,
        name: str,
        task: str,
        args: Mapping[str, Any] | None = None,
        *,
        actor: str | None = None,
        **when: Unpack[ScheduleOptions],
    ) -> ScheduleRow:
        """Make a schedule, or change it: `app.schedules.set("nightly", "report", {"day": 1}, cron="0 3 * * *")`. Its
        jobs have the task's own settings. A schedule that a live worker declares in its code is refused: change it
        there."""
        schedule = schedule_for(self._tasks.find(task), name, args, when)
        return self._operator.call(schedules.set_schedule, schedule.name, schedule, actor=actor)

    aset = aio(set)

    def delete(self, name: str, *, actor: str | None = None) -> None:
        """Delete a schedule; its jobs stay. A schedule that a live worker declares in its code is refused: remove it
        there."""
        self._operator.call(schedules.delete_schedule, name, actor=actor)

    adelete = aio(delete)
