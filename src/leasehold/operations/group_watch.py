"""Those who wait for groups: one thread for all of them, one read per change, whatever their number.

A waiter with a version puts a future here and reads nothing. The thread waits for hints, reads the versions of all
watched groups in one statement, and only where one has moved the status of that group, once for all who wait for it.
It is started by the first waiter and ends a moment after the last, so that clients that come back at once with the
version they were given find it still looking.

Those who also want to hear of progress and partial results cost the runs nothing: as long as there are any, the thread
reads twice a second how much the runs of their groups have told.
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

LISTENING, LOOKING = 1.0, 0.25
"""Seconds between two looks at the versions when no hint comes: with hints coming through, and without."""
LINGER = 1.0
"""Seconds that a group stays watched, and the thread alive, without a waiter."""
FRESH = 1.0
"""Seconds: claims move no version, so whoever has waited in vain gets a status not older than this."""
EASE = 2.0
"""A group whose status takes long to read is read at most for a third of the time."""
NOTES = 0.5
"""Seconds between two looks at what runs have told, for those who want to hear of it."""

Answer = Future[GroupStatus]


class Watched(NamedTuple):
    """A group or some of its tasks, with or without the partial results of its running jobs."""

    name: str
    tasks: tuple[str, ...] | None = None
    partial: bool = False


class Known(NamedTuple):
    """What a waiter has seen. Without `partial` nothing is noted."""

    version: int
    noted: int = 0


@dataclass(eq=False)
class _Waiting:
    """What is watched, and those who wait for it to change."""

    what: Watched
    status: GroupStatus | None = None
    """None: not read yet, or known to be old."""
    read_at: float = 0.0
    not_before: float = 0.0
    deferred: bool = False
    """It has moved, and is read as soon as `not_before` allows it."""
    left_at: float = 0.0
    """When the last waiter left."""
    waiters: dict[Answer, Known] = field(default_factory=dict)
    """Each with what it knows."""
    reading: threading.Lock = field(default_factory=threading.Lock)


class GroupWatch:
    """Of one store in one process."""

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
        """A future that gets the group's status as soon as its version is another one, or nothing of it is live; and
        whether the waiter must call `look_first`, because nobody has looked yet. Does not block."""
        future: Answer = Future()
        with self._lock:
            watched = self._watched.setdefault(what, _Waiting(what))
            watched.waiters[future] = since
            known = watched.status
            if known is not None and (_is_older(known, since) or not known.live):
                # The waiter knows better; or there was nobody to wait for, and so nobody has looked since.
                known = watched.status = None
            if known is not None and _concerns(known, since):
                self._answer(watched, [future], known)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leasehold-groups", daemon=True)
                self._thread.start()
            return future, known is None

    def look_first(self, what: Watched) -> None:
        """Read the group's status for all who have come by now; one of them reads, the others wait for it."""
        with self._lock:
            watched = self._watched.setdefault(what, _Waiting(what))
        with watched.reading:
            if watched.status is None:
                self._read(watched)
        self._notify(watched)

    def leave(self, what: Watched, future: Answer) -> GroupStatus:
        """The wait is over and nothing has changed: how it stands now."""
        with self._lock:
            watched = self._watched.setdefault(what, _Waiting(what))
            since = watched.waiters.get(future)
            self._forget(watched, future)
        if since is None and future.done() and not future.cancelled():
            return future.result()  # it came at the last moment
        with watched.reading:
            status = watched.status
            if status is None or time.monotonic() - watched.read_at > FRESH:
                status = self._read(watched)
        return replace(status, changed=since is not None and _known(status) != since)

    def drop(self, what: Watched, future: Answer) -> None:
        """The waiter has lost interest."""
        with self._lock:
            watched = self._watched.get(what)
            if watched is not None:
                self._forget(watched, future)

    # -- the thread's side -----------------------------------------------------------------------------------------
    def _run(self) -> None:
        wakeups = None
        try:
            wakeups = self.store.group_wakeups(self._listen_url)
            while self._look(wakeups):
                wakeups.wait(self._patience(wakeups))
        except Exception as error:
            self._fail(error)
        finally:
            if wakeups is not None:
                wakeups.close()

    def _patience(self, wakeups: Wakeups) -> float:
        now = time.monotonic()
        with self._lock:
            deferred = [watched.not_before - now for watched in self._watched.values() if watched.deferred]
            if any(what.partial for what in self._watched):
                deferred.append(self._noted_at + NOTES - now)
        return max(0.0, min([LISTENING if wakeups.listens else LOOKING, *deferred]))

    def _look(self, wakeups: Wakeups) -> bool:
        """Read the versions, and what has moved. False: nobody is left, the thread ends."""
        now = time.monotonic()
        with self._lock:
            for key, watched in list(self._watched.items()):
                if not watched.waiters and now - watched.left_at > LINGER:
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
            if self._has_moved(watched, versions.get(name, 0), noted):
                wakeups.stir()
                with watched.reading:
                    self._read(watched)
                self._notify(watched)
        return True

    def _notes(self, wanted: list[_Waiting], now: float) -> dict[str, int] | None:
        """How much the runs of those groups have told of which that is wanted. None: it is not time to look again."""
        names = sorted({watched.what.name for watched in wanted if watched.what.partial})
        if not names or now < self._noted_at + NOTES:
            return None
        self._noted_at = now
        return self.store.group_notes(names)

    def _has_moved(self, watched: _Waiting, version: int, noted: int | None) -> bool:
        """Whether it is to be read now. `noted` is None if nobody has looked, or cares."""
        with self._lock:
            known = watched.status
            # What was owed before is still owed, though the notes are not looked at each time.
            deferred, watched.deferred = watched.deferred, False
            same = known is not None and known.version == version
            if known is None or (same and (noted is None or noted == known.noted) and not deferred):
                return False  # nobody has looked yet, and who comes will; or nothing is new
            if not watched.waiters:
                watched.status = None
                return False
            watched.deferred = time.monotonic() < watched.not_before
            return not watched.deferred

    def _read(self, watched: _Waiting) -> GroupStatus:
        began = time.monotonic()
        status = watched.status = self.store.group_status(*watched.what)
        watched.read_at = time.monotonic()
        watched.not_before = watched.read_at + EASE * (watched.read_at - began)
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
        """The database is away: whoever waits is told, and may wait again."""
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
    with contextlib.suppress(InvalidStateError):  # the waiter has just given up
        how(future)
