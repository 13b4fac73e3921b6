"""A group in the user's hands: its status, now or as soon as it changes, and the verbs on all of its jobs."""

from __future__ import annotations

from typing import Unpack

from leasehold.client.aio import aio
from leasehold.domain.budgets import BudgetLine
from leasehold.domain.checks.durations import Duration
from leasehold.domain.checks.names import Names, checked_name
from leasehold.domain.groups import GroupStatus
from leasehold.domain.records import Page
from leasehold.domain.states import State
from leasehold.domain.stop import StopManner, StopReport, StopRequest
from leasehold.operations import budgets, groups, jobs
from leasehold.operations.local import Operator


class Group:
    """The jobs that were enqueued with one `group=`. There need not be any yet."""

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
        """How far it is, what came out, what went wrong. With `wait` and the `version` of an earlier status as `since`:
        at once if that is no longer the version or if nothing of the group is live, else as soon as something changes,
        else after `wait` with `changed=False`. Without `since` it waits for the next change after the call.

        With `partial=True` it also tells of those that run how far they are and what they have emitted (`runs`), and
        what they tell ends the wait too, at most twice a second. Give `noted` of the earlier status back as well."""
        return self._operator.group_status(
            self.name, wait=wait, since=since, tasks=tasks, partial=partial, noted=noted
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
            self.name, wait=wait, since=since, tasks=tasks, partial=partial, noted=noted
        )

    def stop(self, scope: Names = None, **manner: Unpack[StopManner]) -> StopReport:
        """Stop all of its jobs, or those of the tasks in `scope`. `mode`, `reason`, `wait`, `dry_run` and `actor` are
        those of `Leasehold.stop`. With `hold=True` nothing comes into the group until `release()`; else the next job
        reopens it."""
        return self._operator.stop(StopRequest(group=self.name, tasks=scope, **manner))

    async def astop(self, scope: Names = None, **manner: Unpack[StopManner]) -> StopReport:
        return await self._operator.astop(StopRequest(group=self.name, tasks=scope, **manner))

    def release(self, *, actor: str | None = None) -> bool:
        """Lift the hold. False: there was none."""
        return self._operator.call(groups.release_group, self.name, actor=actor)

    arelease = aio(release)

    def budget(self, /, *, actor: str | None = None, **limits: int | None) -> list[BudgetLine]:
        """Set what its jobs may spend together, by unit: `group.budget(tokens=1_000_000)`; None lifts a limit. Without
        limits: only tell how it stands."""
        if not limits:
            return self._operator.call(budgets.group_budget, self.name)
        return self._operator.call(budgets.set_group_budget, self.name, limits, actor=actor)

    abudget = aio(budget)

    def jobs(self, *, state: State | None = None, limit: int = 50, cursor: str | None = None) -> Page:
        """One page of its jobs, newest first. Ask for the next with `cursor=page.next`."""
        states = [] if state is None else [State(state)]
        return self._operator.call(jobs.list_jobs, state=states, group=self.name, limit=limit, cursor=cursor)

    ajobs = aio(jobs)
