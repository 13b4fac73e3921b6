"""A group in the user's hands: its status, now or as soon as it changes, and the verbs on all of its jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from leasehold.domain.budgets import BudgetLine
from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.errors import InvalidInput
from leasehold.domain.groups import GroupStatus
from leasehold.domain.states import State
from leasehold.domain.stop import StopMode, StopReport
from leasehold.domain.views import Filter, Page
from leasehold.operations.group_watch import GroupWatch
from leasehold.tasks.definition import checked_name

if TYPE_CHECKING:
    from leasehold.operations.operations import Operations

Kinds = str | Iterable[str] | None


class Group:
    """The jobs that were enqueued with one `group=`. There need not be any yet."""

    def __init__(self, name: str, operations: Operations) -> None:
        self.name = checked_name(name, "group")
        self._operations = operations

    def __repr__(self) -> str:
        return f"<Group {self.name}>"

    def status(self, wait: Duration = 0, since: int | None = None, kinds: Kinds = None) -> GroupStatus:
        """How far it is, what came out, what went wrong. With `wait` and the `version` of an earlier status as `since`:
        at once if that is no longer the version or if nothing of the group is live, else as soon as something changes,
        else after `wait` with `changed=False`."""
        return self._operations.group_status(self.name, wait=wait, since=since, kinds=kinds)

    async def astatus(self, wait: Duration = 0, since: int | None = None, kinds: Kinds = None) -> GroupStatus:
        return await self._operations.agroup_status(self.name, wait=wait, since=since, kinds=kinds)

    def stop(
        self,
        scope: Kinds = None,
        *,
        mode: StopMode = "graceful",
        reason: str | None = None,
        wait: Duration = 30,
        dry_run: bool = False,
        hold: bool = False,
        actor: str | None = None,
    ) -> StopReport:
        """Stop all of its jobs, or those of the kinds in `scope`; see `Leasehold.stop` for the modes. With `hold=True`
        nothing comes into the group until `release()`; else the next job reopens it."""
        return self._operations.stop(
            group=self.name,
            kinds=scope,
            mode=mode,
            reason=reason,
            wait=wait,
            dry_run=dry_run,
            hold=hold,
            actor=actor,
        )

    async def astop(
        self,
        scope: Kinds = None,
        *,
        mode: StopMode = "graceful",
        reason: str | None = None,
        wait: Duration = 30,
        dry_run: bool = False,
        hold: bool = False,
        actor: str | None = None,
    ) -> StopReport:
        return await asyncio.to_thread(
            self.stop, scope, mode=mode, reason=reason, wait=wait, dry_run=dry_run, hold=hold, actor=actor
        )

    def release(self, *, actor: str | None = None) -> bool:
        """Lift the hold. False: there was none."""
        return self._operations.release_group(self.name, actor=actor)

    async def arelease(self, *, actor: str | None = None) -> bool:
        return await asyncio.to_thread(self.release, actor=actor)

    def budget(self, **limits: int | None) -> list[BudgetLine]:
        """Set what its jobs may spend together, by unit: `group.budget(tokens=1_000_000)`; None lifts a limit. Without
        limits: only tell how it stands."""
        if not limits:
            return self._operations.group_budget(self.name)
        return self._operations.set_group_budget(self.name, limits)

    async def abudget(self, **limits: int | None) -> list[BudgetLine]:
        return await asyncio.to_thread(lambda: self.budget(**limits))

    def jobs(self, *, state: State | None = None, limit: int = 50, before: str | None = None) -> Page:
        """One page of its jobs, newest first. Ask for the next with `before=page.next`."""
        states = () if state is None else (State(state),)
        return self._operations.list_jobs(Filter(states, group=self.name), limit, before)

    async def ajobs(self, *, state: State | None = None, limit: int = 50, before: str | None = None) -> Page:
        return await asyncio.to_thread(self.jobs, state=state, limit=limit, before=before)


class GroupPoll:
    """One `status(wait=…, since=…)`."""

    def __init__(
        self, watch: GroupWatch, name: str, wait: Duration, since: int | None, kinds: tuple[str, ...] | None
    ) -> None:
        self._watch = watch
        self._name = name
        self._wait = seconds(wait, "wait")
        if since is not None and (isinstance(since, bool) or not isinstance(since, int)):
            raise InvalidInput(
                "since", f"{since!r} is not a version", "give the version of an earlier status"
            )
        self._since = since
        self._kinds = kinds

    def run(self) -> GroupStatus:
        if self._wait == 0 or self._since is None:
            return self._now()
        future, unread = self._watch.expect(self._name, self._kinds, self._since)
        try:
            if unread:
                self._watch.look_first(self._name, self._kinds)
            return future.result(self._wait)
        except TimeoutError:
            return self._watch.leave(self._name, self._kinds, future)
        finally:
            self._watch.drop(self._name, self._kinds, future)

    async def run_async(self) -> GroupStatus:
        """Holds no thread while it waits."""
        if self._wait == 0 or self._since is None:
            return await asyncio.to_thread(self._now)
        future, unread = self._watch.expect(self._name, self._kinds, self._since)
        try:
            if unread:
                await asyncio.to_thread(self._watch.look_first, self._name, self._kinds)
            return await asyncio.wait_for(asyncio.wrap_future(future), self._wait)
        except TimeoutError:
            return await asyncio.to_thread(self._watch.leave, self._name, self._kinds, future)
        finally:
            self._watch.drop(self._name, self._kinds, future)

    def _now(self) -> GroupStatus:
        status = self._watch.store.group_status(self._name, self._kinds)
        return replace(status, changed=self._since is None or status.version != self._since)


def checked_names(names: Kinds, field: str) -> tuple[str, ...] | None:
    """One name or several, each once, in order: so that the same question is recognised as the same."""
    if names is None:
        return None
    listed = [names] if isinstance(names, str) else list(names)
    return tuple(sorted({checked_name(name, field) for name in listed}))
