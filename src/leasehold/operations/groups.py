"""The verbs on groups, and the stop of all jobs that match."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.names import Names, checked_name, checked_names
from leasehold.domain.errors import InvalidInput
from leasehold.domain.groups import GroupPage, GroupStatus
from leasehold.domain.stop import StopReport, StopRequest, check_tasks
from leasehold.operations.arguments import Actor, GroupName, Limit, OfGroupState, PageCursor
from leasehold.operations.group_watch import GroupWatch, Known, Watched
from leasehold.operations.local import LocalOperator
from leasehold.operations.notify import notify_watchers
from leasehold.operations.stop import Stop, Watch, ignore
from leasehold.operations.verb import Backend, KnownTask, read, verb
from leasehold.threads import to_thread

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore


@read("groups.list", guard="all queues", http="GET /v1/groups")
def list_groups(
    backend: Backend, state: OfGroupState = None, limit: Limit = 50, cursor: PageCursor = None
) -> GroupPage:
    """List groups by name: state, live jobs, and the last stop."""
    return backend.store.list_groups(state, limit, cursor)


@verb(
    "group.release",
    scope="operate",
    guard="all queues",
    http="POST /v1/groups/{name:path}/release",
    after=notify_watchers,
)
def release_group(backend: Backend, name: GroupName, *, actor: Actor = None) -> bool:
    """Lift the hold that a stop put on a group."""
    return backend.store.release_group(name, actor)


class GroupOperations(LocalOperator):
    """The methods that wait: a group's status, and the stop of all jobs that match."""

    def __init__(
        self,
        find_store: Callable[[], JobStore],
        find_tasks: Callable[[], Mapping[str, str]],
        listen_url: str | None,
        find_task: Callable[[str], KnownTask | None],
    ) -> None:
        super().__init__(find_store, find_task)
        self._find_tasks = find_tasks
        """The registered tasks, each with its queue."""
        self._listen_url = listen_url
        self._group_watch: GroupWatch | None = None

    def group_status(
        self,
        name: str,
        *,
        wait: Duration = 0,
        since: int | None = None,
        tasks: Names = None,
        partial: bool = False,
        noted: int | None = None,
    ) -> GroupStatus:
        return self._poll(name, wait, since, tasks, partial, noted).run()

    async def agroup_status(
        self,
        name: str,
        *,
        wait: Duration = 0,
        since: int | None = None,
        tasks: Names = None,
        partial: bool = False,
        noted: int | None = None,
    ) -> GroupStatus:
        return await self._poll(name, wait, since, tasks, partial, noted).run_async()

    def stop(self, request: StopRequest, watch: Watch = ignore) -> StopReport:
        """Stop all jobs that match; `watch` is called repeatedly during the wait, with the report so far."""
        return self._begin(request).wait(watch)

    async def astop(self, request: StopRequest) -> StopReport:
        """As `stop`, without a thread while it waits for running jobs."""
        one = await to_thread(self._begin, request)
        pauses = one.pauses()
        while (pause := await to_thread(next, pauses, None)) is not None:
            await asyncio.sleep(pause)
        return one.report()

    def _begin(self, request: StopRequest) -> Stop:
        """Begin a stop: cancel jobs that do not run, and flag running ones."""
        known = self._find_tasks()
        if not known or not known.keys() >= set(request.scope.tasks or ()):
            stored = {task: queue for queue, task in self._store.list_gates()}
            check_tasks(request.scope, known, stored)
            known = known or stored
        one = Stop(self._store, request, known)
        if request.dry_run:
            return one.begin()
        scope = request.scope
        target = scope.group or scope.queue or scope.lane
        requested = {
            "scope": scope.as_dict(),
            "mode": request.mode,
            "reason": request.reason,
            "hold": request.hold,
        }
        # The audit entry does not span the wait: a wait changes nothing that this has not changed.
        with self._recorded("stop", target, request.actor, **requested):
            return one.begin()

    def _poll(
        self, name: str, wait: Duration, since: int | None, tasks: Names, partial: bool, noted: int | None
    ) -> GroupPoll:
        what = Watched(checked_name(name, "group"), checked_names(tasks, "tasks"), bool(partial))
        return GroupPoll(self._watch_of(self._store), what, wait, since, noted)

    def _watch_of(self, store: JobStore) -> GroupWatch:
        """Return the watch that all waiters share; a new one after a fork or for another store."""
        watch = self._group_watch
        if watch is None or watch.store is not store or watch.pid != os.getpid():
            watch = self._group_watch = GroupWatch(store, self._listen_url)
        return watch


class GroupPoll:
    """One call of `status(wait=…, since=…)`."""

    def __init__(
        self, watch: GroupWatch, what: Watched, wait: Duration, since: int | None, noted: int | None
    ) -> None:
        self._watch = watch
        self._what = what
        self._wait = seconds(wait, "wait")
        self._since = _checked_number("since", since, "give the version of an earlier status")
        self._noted = _checked_number("noted", noted, "give `noted` of an earlier status")
        if noted is not None and not what.partial:
            raise InvalidInput(
                "noted", "is about updates of running jobs", "use it together with partial=True"
            )

    def run(self) -> GroupStatus:
        if self._wait == 0:
            return self._now()
        future, unread = self._watch.expect(self._what, self._known())
        try:
            if unread:
                self._watch.read_first(self._what)
            return future.result(self._wait)
        except TimeoutError:
            return self._watch.leave(self._what, future)
        finally:
            self._watch.drop(self._what, future)

    async def run_async(self) -> GroupStatus:
        """As `run`, without a thread while it waits."""
        if self._wait == 0:
            return await to_thread(self._now)
        known = self._given()
        if known is None:
            known = await to_thread(self._known)
        future, unread = self._watch.expect(self._what, known)
        try:
            if unread:
                await to_thread(self._watch.read_first, self._what)
            return await asyncio.wait_for(asyncio.wrap_future(future), self._wait)
        except TimeoutError:
            return await to_thread(self._watch.leave, self._what, future)
        finally:
            self._watch.drop(self._what, future)

    def _given(self) -> Known | None:
        """Return what the caller has seen, if the arguments say so completely; else None."""
        if self._since is None or (self._what.partial and self._noted is None):
            return None
        return Known(self._since, self._noted or 0)

    def _known(self) -> Known:
        """Return what the caller has seen; read what the arguments leave out."""
        store, name = self._watch.store, self._what.name
        version, noted = self._since, self._noted or 0
        if version is None:
            version = store.group_versions([name]).get(name, 0)
        if self._what.partial and self._noted is None:
            noted = store.group_notes([name]).get(name, 0)
        return Known(version, noted)

    def _now(self) -> GroupStatus:
        status = self._watch.store.group_status(*self._what)
        same = self._since == status.version and self._noted in (None, status.noted)
        return replace(status, changed=not same)


def _checked_number(field: str, value: int | None, remedy: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise InvalidInput(field, f"{value!r} is not a version", remedy)
    return value
