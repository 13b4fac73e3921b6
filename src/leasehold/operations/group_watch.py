"""Waits for groups: one thread for all waiters, and one read per change, whatever their number.

A waiter adds a future and reads nothing. The thread waits for notifications, reads the versions of all watched groups
in one statement, and reads the status of a group only if its version has changed, once for all its waiters. The first
waiter starts the thread. It ends a moment after the last waiter, so that clients that return at once with the new
version still find it.

Waiters for progress and partial results cost the running jobs nothing: while there are such waiters, the thread counts
the updates of their groups twice a second.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from leasehold.domain.groups import GroupStatus
from leasehold.stores.database.wakeups import Wakeups

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

logger = logging.getLogger("leasehold.groups")

POLL_LISTENING, POLL_NOT_LISTENING = 1.0, 0.25
"""Seconds between two reads of the versions without a notification: if notifications arrive, and if they do not."""
LINGER_FOR = 1.0
"""Seconds that a group stays watched, and the thread alive, without a waiter."""
FRESH_FOR = 1.0
"""Seconds: claims do not change the version, so after a wait without a change the status is at most this old."""
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
    """Whether it has changed and is to be read at `not_before`."""
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
        """Return a future of the group's status, done when its version differs or no job of it is live, and whether the
        waiter must call `read_first`, because no status was read yet. Does not block."""
        future: Answer = Future()
        with self._lock:
            watched = self._watched.setdefault(what, _Waiting(what))
            watched.waiters[future] = since
            known = watched.status
            if known is not None and (_is_older(known, since) or not known.live):
                # The status is older than the waiter's, or final, and may be outdated: without waiters nothing is read.
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
        """Return the present status, after a wait without a change."""
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
                wakeups.stir()
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
