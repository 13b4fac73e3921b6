"""Groups: their verbs, the stop of all matching jobs, and waits for changes, which share one thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from leasehold.domain.checks.texts import checked_name, checked_names
from leasehold.domain.checks.times import seconds
from leasehold.domain.errors import InvalidInput
from leasehold.domain.groups import GroupPage, GroupStatus, StatusRequest
from leasehold.domain.stop import StopReport, StopRequest, check_tasks
from leasehold.operations.arguments import Actor, GroupName, Limit, OfGroupState, PageCursor
from leasehold.operations.local import LocalOperator
from leasehold.operations.stop import OnProgress, Stop, ignore
from leasehold.operations.verb import Backend, KnownTask, notify_watchers, read, verb
from leasehold.stores.database.wakeups import Wakeups
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

    def group_status(self, request: StatusRequest) -> GroupStatus:
        return self._poll(request).run()

    async def agroup_status(self, request: StatusRequest) -> GroupStatus:
        return await self._poll(request).run_async()

    def stop(self, request: StopRequest, on_progress: OnProgress = ignore) -> StopReport:
        """Stop all jobs that match. During the wait, call `on_progress` repeatedly with the report so far."""
        return self._begin(request).wait(on_progress)

    async def astop(self, request: StopRequest) -> StopReport:
        """Like `stop`, but holds no thread while it waits for running jobs."""
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
        # The audit entry ends before the wait, which only repeats the same stop on jobs that it finds late.
        with self._recorded("stop", target, request.actor, **requested):
            return one.begin()

    def _poll(self, request: StatusRequest) -> GroupPoll:
        name, tasks = checked_name(request.group, "group"), checked_names(request.tasks, "tasks")
        what = Watched(name, tasks, bool(request.partial))
        return GroupPoll(self._watch_of(self._store), what, request, self._check_wait)

    def _watch_of(self, store: JobStore) -> GroupWatch:
        """Return the watch that all waiters share; a new one after a fork or for another store."""
        watch = self._group_watch
        if watch is None or watch.store is not store or watch.pid != os.getpid():
            watch = self._group_watch = GroupWatch(store, self._listen_url)
        return watch


class GroupPoll:
    """One call of `status(wait=…, since=…)`."""

    def __init__(
        self, watch: GroupWatch, what: Watched, request: StatusRequest, check_wait: Callable[[str], None]
    ) -> None:
        self._watch = watch
        self._what = what
        self._check_wait = check_wait
        self._wait = seconds(request.wait, "wait")
        self._since = _checked_number("since", request.since, "give the version of an earlier status")
        self._noted = _checked_number("noted", request.noted, "give `noted` of an earlier status")
        if self._noted is not None and not what.partial:
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
            if not future.done():
                self._check_wait(f"group {self._what.name}")
            return future.result(self._wait)
        except TimeoutError:
            return self._watch.leave(self._what, future)
        finally:
            self._watch.drop(self._what, future)

    async def run_async(self) -> GroupStatus:
        """Like `run`, but holds no thread while it waits."""
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
        """Return what the caller has seen, if the arguments contain all of it; else None."""
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


# -- one thread for all waiters ----------------------------------------------------------------------------------------
# A waiter adds a future and reads nothing. The thread waits for notifications, reads the versions of all watched groups
# in one statement, and reads the status of a group only if its version has changed, once for all its waiters. The first
# waiter starts the thread. The thread ends a moment after the last waiter leaves, so that a client that calls again at
# once, with the new version, still finds it.
#
# Waiters for progress and partial results cost the running jobs nothing: while there are such waiters, the thread
# counts the updates of their groups twice a second.

logger = logging.getLogger("leasehold.groups")

POLL_LISTENING, POLL_NOT_LISTENING = 1.0, 0.25
"""Seconds between two reads of the versions without a notification: if the store listens for them, and if not."""
LINGER_FOR = 1.0
"""Seconds that a group stays watched, and the thread alive, without a waiter."""
FRESH_FOR = 1.0
"""Greatest age in seconds of a status after a wait without a change: claims do not change the version."""
READ_PAUSE = 2.0
"""The pause after reading a status, as a multiple of the time that the read took: reads take at most a third of the
time."""
COUNT_UPDATES_EVERY = 0.5
"""Seconds between two counts of updates, for waiters with `partial`."""

Answer = Future[GroupStatus]


class Watched(NamedTuple):
    """A group, or some tasks of it; `partial` adds the updates of its running jobs."""

    name: str
    tasks: tuple[str, ...] | None = None
    partial: bool = False


class Known(NamedTuple):
    """What a waiter has seen: the version and, with `partial`, the number of updates."""

    version: int
    noted: int = 0


@dataclass(eq=False)
class _Waiting:
    """A watched group, and its waiters."""

    what: Watched
    status: GroupStatus | None = None
    """None: not read yet, or outdated."""
    read_at: float = 0.0
    not_before: float = 0.0
    deferred: bool = False
    """Whether the group has changed and its status must be read at `not_before`."""
    left_at: float = 0.0
    """When the last waiter left."""
    waiters: dict[Answer, Known] = field(default_factory=dict)
    """Each waiter, with what it has seen."""
    reading: threading.Lock = field(default_factory=threading.Lock)


class GroupWatch:
    """Watches the groups of one store, in one process."""

    def __init__(self, store: JobStore, listen_url: str | None = None) -> None:
        self.store = store
        self.pid = os.getpid()
        self._listen_url = listen_url
        self._lock = threading.Lock()
        self._watched: dict[Watched, _Waiting] = {}
        self._noted_at = float("-inf")
        self._thread: threading.Thread | None = None

    # -- the waiters' side -----------------------------------------------------------------------------------------
    def expect(self, what: Watched, since: Known) -> tuple[Answer, bool]:
        """Add a waiter. Return a future of the group's status, done when the version differs or no job is live, and
        whether the waiter must call `read_first`, because no valid status was read yet. Does not block."""
        future: Answer = Future()
        with self._lock:
            watched = self._watched.setdefault(what, _Waiting(what))
            watched.waiters[future] = since
            known = watched.status
            if known is not None and (_is_older(known, since) or not known.live):
                # A status that is older than `since`, or final, may be outdated: without waiters the thread reads none.
                known = watched.status = None
            if known is not None and _concerns(known, since):
                self._answer(watched, [future], known)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leasehold-groups", daemon=True)
                self._thread.start()
            return future, known is None

    def read_first(self, what: Watched) -> None:
        """Read the group's status for all present waiters; one of them reads, the others wait for it."""
        with self._lock:
            watched = self._watched.setdefault(what, _Waiting(what))
        with watched.reading:
            if watched.status is None:
                self._read(watched)
        self._notify(watched)

    def leave(self, what: Watched, future: Answer) -> GroupStatus:
        """Remove a waiter whose time is over, and return the present status."""
        with self._lock:
            watched = self._watched.setdefault(what, _Waiting(what))
            since = watched.waiters.get(future)
            self._forget(watched, future)
        if since is None and future.done() and not future.cancelled():
            return future.result()  # the change came at the last moment
        with watched.reading:
            status = watched.status
            if status is None or time.monotonic() - watched.read_at > FRESH_FOR:
                status = self._read(watched)
        return replace(status, changed=since is not None and _known(status) != since)

    def drop(self, what: Watched, future: Answer) -> None:
        """Remove a waiter."""
        with self._lock:
            watched = self._watched.get(what)
            if watched is not None:
                self._forget(watched, future)

    # -- the thread's side -----------------------------------------------------------------------------------------
    def _run(self) -> None:
        wakeups = None
        try:
            wakeups = self.store.group_wakeups(self._listen_url)
            while self._read_changed(wakeups):
                wakeups.wait(self._pause(wakeups))
        except Exception as error:
            self._fail(error)
        finally:
            if wakeups is not None:
                wakeups.close()

    def _pause(self, wakeups: Wakeups) -> float:
        now = time.monotonic()
        with self._lock:
            deferred = [watched.not_before - now for watched in self._watched.values() if watched.deferred]
            if any(what.partial for what in self._watched):
                deferred.append(self._noted_at + COUNT_UPDATES_EVERY - now)
        return max(0.0, min([POLL_LISTENING if wakeups.listens else POLL_NOT_LISTENING, *deferred]))

    def _read_changed(self, wakeups: Wakeups) -> bool:
        """Read the versions, and each status that has changed. False: no waiter is left, and the thread ends."""
        now = time.monotonic()
        with self._lock:
            for key, watched in list(self._watched.items()):
                if not watched.waiters and now - watched.left_at > LINGER_FOR:
                    del self._watched[key]
            if not self._watched:
                self._thread = None
                return False
            wanted = list(self._watched.values())
        versions = self.store.group_versions(sorted({watched.what.name for watched in wanted}))
        notes = self._notes(wanted, now)
        for watched in wanted:
            name = watched.what.name
            noted = notes.get(name, 0) if notes is not None and watched.what.partial else None
            if self._has_changed(watched, versions.get(name, 0), noted):
                wakeups.expect_more()
                with watched.reading:
                    self._read(watched)
                self._notify(watched)
        return True

    def _notes(self, wanted: list[_Waiting], now: float) -> dict[str, int] | None:
        """Count the updates of groups watched with `partial`. None: it is not time to count again."""
        names = sorted({watched.what.name for watched in wanted if watched.what.partial})
        if not names or now < self._noted_at + COUNT_UPDATES_EVERY:
            return None
        self._noted_at = now
        return self.store.group_notes(names)

    def _has_changed(self, watched: _Waiting, version: int, noted: int | None) -> bool:
        """Whether to read the status now. `noted` is None if the updates were not counted."""
        with self._lock:
            known = watched.status
            # A deferred read is still due, even if the updates were not counted this time.
            deferred, watched.deferred = watched.deferred, False
            same = known is not None and known.version == version
            if known is None or (same and (noted is None or noted == known.noted) and not deferred):
                return False  # the next waiter reads it; or nothing is new
            if not watched.waiters:
                watched.status = None
                return False
            watched.deferred = time.monotonic() < watched.not_before
            return not watched.deferred

    def _read(self, watched: _Waiting) -> GroupStatus:
        began = time.monotonic()
        status = watched.status = self.store.group_status(*watched.what)
        watched.read_at = time.monotonic()
        watched.not_before = watched.read_at + READ_PAUSE * (watched.read_at - began)
        return status

    def _notify(self, watched: _Waiting) -> None:
        with self._lock:
            status = watched.status
            if status is not None:
                concerned = [f for f, since in watched.waiters.items() if _concerns(status, since)]
                self._answer(watched, concerned, status)

    def _answer(self, watched: _Waiting, futures: list[Answer], status: GroupStatus) -> None:
        for future in futures:
            since = watched.waiters[future]
            self._forget(watched, future)
            seen = replace(status, changed=_known(status) != since)
            _settle(future, lambda one, seen=seen: one.set_result(seen))  # type: ignore[misc] # mypy cannot infer a lambda with a default

    def _forget(self, watched: _Waiting, future: Answer) -> None:
        if watched.waiters.pop(future, None) is not None and not watched.waiters:
            watched.left_at = time.monotonic()

    def _fail(self, error: Exception) -> None:
        """Pass a database error to all waiters, who may wait again."""
        with self._lock:
            self._thread = None
            futures = [future for watched in self._watched.values() for future in watched.waiters]
            self._watched.clear()
        if not futures:
            logger.debug("stopped watching groups: %s", error)
        for future in futures:
            _settle(future, lambda one: one.set_exception(error))


def _known(status: GroupStatus) -> Known:
    return Known(status.version, status.noted)


def _concerns(status: GroupStatus, since: Known) -> bool:
    return _known(status) != since or not status.live


def _is_older(status: GroupStatus, since: Known) -> bool:
    return status.version < since.version or (status.version == since.version and status.noted < since.noted)


def _settle(future: Answer, how: Callable[[Answer], None]) -> None:
    with contextlib.suppress(InvalidStateError):  # the waiter has just left
        how(future)
