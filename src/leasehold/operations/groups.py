"""The verbs on groups, and the stop of all jobs that match."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.names import Names, checked_name, checked_names
from leasehold.domain.errors import InvalidInput
from leasehold.domain.groups import GroupStatus
from leasehold.domain.stop import StopReport, StopRequest
from leasehold.operations.base import StoreDoor
from leasehold.operations.group_watch import GroupWatch
from leasehold.operations.stop import Watch, nobody, stop
from leasehold.stores.contract import Store


class GroupOperations(StoreDoor):
    def __init__(
        self,
        find_store: Callable[[], Store],
        find_kinds: Callable[[], Mapping[str, str]],
        listen_url: str | None,
    ) -> None:
        super().__init__(find_store)
        self._find_kinds = find_kinds
        """The registered kinds, each with its own queue."""
        self._listen_url = listen_url
        self._group_watch: GroupWatch | None = None

    def group_status(
        self, name: str, *, wait: Duration = 0, since: int | None = None, kinds: Names = None
    ) -> GroupStatus:
        return self._poll(name, wait, since, kinds).run()

    async def agroup_status(
        self, name: str, *, wait: Duration = 0, since: int | None = None, kinds: Names = None
    ) -> GroupStatus:
        return await self._poll(name, wait, since, kinds).run_async()

    def release_group(self, name: str, *, actor: str | None = None) -> bool:
        released = self._store.release_group(checked_name(name, "group"), actor)
        self._store.tell_watchers()
        return released

    def stop(self, request: StopRequest, watch: Watch = nobody) -> StopReport:
        """Stop all jobs that match; `watch` is called now and then with the report so far."""
        known = self._find_kinds() or {kind: queue for queue, kind in self._store.list_gates()}
        return stop(self._store, request, known, watch)

    def _poll(self, name: str, wait: Duration, since: int | None, kinds: Names) -> GroupPoll:
        return GroupPoll(
            self._watch_of(self._store),
            checked_name(name, "group"),
            wait,
            since,
            checked_names(kinds, "kinds"),
        )

    def _watch_of(self, store: Store) -> GroupWatch:
        """One for all waiters; another one for another store, and on the other side of a fork."""
        watch = self._group_watch
        if watch is None or watch.store is not store or watch.pid != os.getpid():
            watch = self._group_watch = GroupWatch(store, self._listen_url)
        return watch


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
