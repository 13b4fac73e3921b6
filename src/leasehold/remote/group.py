"""A group on a server: its status, now or as soon as it changes, and the verbs on all of its jobs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from typing_extensions import Unpack

from leasehold.domain.budgets import checked_amount, checked_unit
from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.names import Names, checked_name, checked_names
from leasehold.domain.stop import StopRequest
from leasehold.remote import decode
from leasehold.remote.exchange import LONGEST_WAIT, Ask, Talk, get, once, part, post
from leasehold.remote.job import Job
from leasehold.remote.lists import listing
from leasehold.remote.stop import StopManner, stopping
from leasehold.remote.transport import Line
from leasehold.remote.values import Page
from leasehold.types import BudgetLine, GroupStatus, State, StopReport


class Group:
    """The jobs that were enqueued with one `group=`. There need not be any yet."""

    def __init__(self, name: str, line: Line) -> None:
        self.name = checked_name(name, "group")
        self._line = line

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
        what they tell ends the wait too. Give `noted` of the earlier status back as well."""
        return self._line.run(self._status(wait, since, tasks, partial, noted))

    async def astatus(
        self,
        wait: Duration = 0,
        since: int | None = None,
        tasks: Names = None,
        *,
        partial: bool = False,
        noted: int | None = None,
    ) -> GroupStatus:
        return await self._line.arun(self._status(wait, since, tasks, partial, noted))

    def stop(self, scope: Names = None, **manner: Unpack[StopManner]) -> StopReport:
        """Stop all of its jobs, or those of the kinds in `scope`. `mode`, `reason`, `wait` and `dry_run` are those of
        `Remote.stop`. With `hold=True` nothing comes into the group until `release()`; else the next job reopens it."""
        return self._line.run(stopping(StopRequest(group=self.name, tasks=scope, **manner)))

    async def astop(self, scope: Names = None, **manner: Unpack[StopManner]) -> StopReport:
        return await self._line.arun(stopping(StopRequest(group=self.name, tasks=scope, **manner)))

    def release(self) -> bool:
        """Lift the hold. False: there was none."""
        return self._line.run(once(post(f"{self._path}/release"), decode.changed))

    async def arelease(self) -> bool:
        return await self._line.arun(once(post(f"{self._path}/release"), decode.changed))

    def budget(self, /, **limits: int | None) -> list[BudgetLine]:
        """Set what its jobs may spend together, by unit: `group.budget(tokens=1_000_000)`; None lifts a limit. Without
        limits: only tell how it stands."""
        return self._line.run(once(self._budgeting(limits), decode.budget))

    async def abudget(self, /, **limits: int | None) -> list[BudgetLine]:
        return await self._line.arun(once(self._budgeting(limits), decode.budget))

    def jobs(self, *, state: State | None = None, limit: int = 50, before: str | None = None) -> Page:
        """One page of its jobs, newest first. Ask for the next with `before=page.next`."""
        return self._line.run(listing(_one(state), limit, before, group=self.name))

    async def ajobs(self, *, state: State | None = None, limit: int = 50, before: str | None = None) -> Page:
        return await self._line.arun(listing(_one(state), limit, before, group=self.name))

    @property
    def _path(self) -> str:
        return f"/v1/groups/{part(self.name)}"

    def _status(
        self, wait: Duration, since: int | None, tasks: Names, partial: bool, noted: int | None
    ) -> Talk[GroupStatus]:
        until = time.monotonic() + seconds(wait, "wait")
        named = checked_names(tasks, "tasks")
        while True:
            left = max(0.0, until - time.monotonic())
            answer = yield get(
                self._path,
                wait=min(left, LONGEST_WAIT),
                since=since,
                tasks=list(named or ()),
                partial=partial,
                noted=noted,
            )
            status = decode.status(answer, self._result)
            if status.changed or not status.live or left <= LONGEST_WAIT:
                return status
            since, noted = status.version, status.noted if partial else None

    def _budgeting(self, limits: Mapping[str, int | None]) -> Ask:
        path = f"{self._path}/budget"
        checked = {
            checked_unit(unit): None if limit is None else checked_amount(unit, limit)
            for unit, limit in limits.items()
        }
        return Ask("PUT", path, body={"limits": checked}, repeat=True) if checked else get(path)

    def _result(self, job_id: str) -> Any:
        return Job(job_id, self._line).result(timeout=0)


def _one(state: State | None) -> tuple[State, ...]:
    return () if state is None else (State(state),)
