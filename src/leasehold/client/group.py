"""The handle of a group: its status, now or when it changes, and verbs on all its jobs."""

from __future__ import annotations

from typing import Unpack

from leasehold.domain.budgets import BudgetLine
from leasehold.domain.checks.texts import Names, checked_name
from leasehold.domain.checks.times import Duration
from leasehold.domain.groups import GroupStatus, StatusRequest
from leasehold.domain.records import Page
from leasehold.domain.states import State
from leasehold.domain.stop import StopManner, StopReport, StopRequest
from leasehold.operations import budgets, groups, jobs
from leasehold.operations.local import Operator
from leasehold.threads import aio


class Group:
    """The jobs that were enqueued with one `group=`. A group may still have no jobs."""

    def __init__(self, name: str, operator: Operator) -> None:
        self.name = checked_name(name, "group")
        self._operator = operator

    def __repr__(self) -> str:
        return f"<Group {self.name}>"

    def status(
        self,
        wait: Duration = 0,
        since: int | None = None,
        tasks: Names = None,
        *,
        partial: bool = False,
        noted: int | None = None,
    ) -> GroupStatus:
        """Return the group's counts, results and errors. With `wait`, and the `version` of an earlier status as
        `since`, it returns at once if the version has changed or no job of the group is live, else at the next change,
        else after `wait` with `changed=False`. Without `since` it waits for the next change after the call.

        With `partial=True` the status also has the progress and the updates of running jobs (`running`), and these end
        the wait too, at most twice a second. Pass `noted` of the earlier status as well."""
        return self._operator.group_status(
            StatusRequest(group=self.name, wait=wait, since=since, tasks=tasks, partial=partial, noted=noted)
        )

    async def astatus(
        self,
        wait: Duration = 0,
        since: int | None = None,
        tasks: Names = None,
        *,
        partial: bool = False,
        noted: int | None = None,
    ) -> GroupStatus:
        return await self._operator.agroup_status(
            StatusRequest(group=self.name, wait=wait, since=since, tasks=tasks, partial=partial, noted=noted)
        )

    def stop(self, scope: Names = None, **manner: Unpack[StopManner]) -> StopReport:
        """Stop all jobs of the group, or those of the tasks in `scope`. `mode`, `reason`, `wait`, `dry_run` and `actor`
        are those of `Leasehold.stop`. With `hold=True` the group refuses new jobs until `release()`; else the next job
        reopens it."""
        return self._operator.stop(StopRequest(group=self.name, tasks=scope, **manner))

    async def astop(self, scope: Names = None, **manner: Unpack[StopManner]) -> StopReport:
        return await self._operator.astop(StopRequest(group=self.name, tasks=scope, **manner))

    def release(self, *, actor: str | None = None) -> bool:
        """Lift the hold. False: the group was not on hold."""
        return self._operator.call(groups.release_group, self.name, actor=actor)

    arelease = aio(release)

    def budget(self, /, *, actor: str | None = None, **limits: int | None) -> list[BudgetLine]:
        """Set what the group's jobs may spend together, by unit: `group.budget(tokens=1_000_000)`; None lifts a limit.
        Without limits it only returns the budget and what was spent."""
        if not limits:
            return self._operator.call(budgets.group_budget, self.name)
        return self._operator.call(budgets.set_group_budget, self.name, limits, actor=actor)

    abudget = aio(budget)

    def jobs(self, *, state: State | None = None, limit: int = 50, cursor: str | None = None) -> Page:
        """Return one page of the group's jobs, newest first. The next page: `cursor=page.next`."""
        states = [] if state is None else [State(state)]
        return self._operator.call(jobs.list_jobs, state=states, group=self.name, limit=limit, cursor=cursor)

    ajobs = aio(jobs)
