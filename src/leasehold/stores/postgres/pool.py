"""The pool: the connections of a process that calls take and give back.

A call that finds no idle connection opens one itself. So it gets the error at once, and the next call uses a database
that is back: no call waits for a background thread that tries less and less often. The pool notices a session that
the server has ended before its use, without a round trip.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, Protocol, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from leasehold.domain.errors import PoolExhausted

WAIT_SECONDS = 15.0
"""Seconds to wait for a connection when all are in use."""
SLOW_AFTER = 1.0
"""Seconds after which a connection in use no longer counts towards the pool's size: its call may wait for a lock on one
tenant's tables, and other calls must not wait with it."""
MOST_SLOW = 8
"""Most connections that do not count."""
CHECK_SLOW_EVERY = 0.1
"""Seconds between two looks for connections that have become slow."""
CONNECTION_LIFETIME = 3600.0
"""Seconds after which a connection is replaced: the host name may lead to another server by then."""
IDLE_SECONDS = 1.0
"""Seconds without use after which a connection must prove that it is alive."""
IDLE_FOR = 600.0
"""Seconds after which an unused connection is closed."""


class Poolable(Protocol):
    """What the pool knows of a connection."""

    pgconn: Any
    opened_at: float
    unproven: bool

    def is_quiet(self) -> bool: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Poolable)


class PoolClosed(Exception):
    """The store was closed."""


class Pool(Generic[C]):
    """At most `size` connections. Callers that wait get a place in the order in which they came, and a place that is
    given back goes to the first of them: a thread that calls in a loop must not take it again each time."""

    def __init__(self, connect: Callable[[], C], size: int, label: str) -> None:
        self._connect = connect
        self._size = size
        self._label = label
        self._lock = threading.Lock()
        self._taken: dict[threading.Lock, float] = {}
        """When the connections in use were taken, by place."""
        self._queue: deque[threading.Lock] = deque()
        """The places of callers that wait: a lock, held until the caller has its place or the pool is closed."""
        self._idle: list[tuple[C, float]] = []
        """The connection used last is taken first, so that connections that are not needed can be closed."""
        self._good_since = 0.0
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[C]:
        place = self._take_place()
        try:
            connection = self._alive() or self._connect()
        except BaseException:
            self._release(place)
            raise
        try:
            yield connection
        finally:
            self._give_back(connection, place)

    def discard(self) -> None:
        """Replace all connections that are open now: they were opened before the database changed its state."""
        self._good_since = time.monotonic()
        self._close_idle(self._idle)

    def add(self, connection: C) -> None:
        self._idle.append((connection, time.monotonic()))

    def close(self) -> None:
        """Close idle connections; those in use are closed when they are given back."""
        with self._lock:
            self._closed = True
            while self._queue:
                self._queue.popleft().release()
        self._close_idle(self._idle)

    def _take_place(self) -> threading.Lock:
        place = threading.Lock()
        with self._lock:
            if not self._closed and not self._queue and not self._is_full():
                self._taken[place] = time.monotonic()
                return place
            if not self._closed:
                place.acquire()
                self._queue.append(place)
        try:
            self._wait_for(place)
            if self._closed:
                raise PoolClosed
        except BaseException:  # Ctrl-C, too
            self._release(place)
            raise
        return place

    def _wait_for(self, place: threading.Lock) -> None:
        until = time.monotonic() + WAIT_SECONDS
        while not self._closed and not place.acquire(timeout=CHECK_SLOW_EVERY):
            with self._lock:
                self._hand_over()  # calls may have become slow meanwhile
                if place in self._queue and time.monotonic() >= until:
                    raise PoolExhausted(self._label, self._size, WAIT_SECONDS)

    def _hand_over(self) -> None:
        """Give free places to those who wait, in their order. Under the lock."""
        while self._queue and not self._is_full():
            place = self._queue.popleft()
            self._taken[place] = time.monotonic()
            place.release()

    def _is_full(self) -> bool:
        if len(self._taken) < self._size:
            return False
        before = time.monotonic() - SLOW_AFTER
        slow = sum(taken_at <= before for taken_at in self._taken.values())
        return len(self._taken) - min(slow, MOST_SLOW) >= self._size

    def _alive(self) -> C | None:
        with suppress(IndexError):
            while True:
                connection, since = self._idle.pop()
                if connection.is_quiet():
                    connection.unproven = time.monotonic() - since > IDLE_SECONDS
                    return connection
                connection.close()
        return None

    def _give_back(self, connection: C, place: threading.Lock) -> None:
        try:
            if connection.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                with suppress(psycopg.Error):
                    connection.rollback()
            now = time.monotonic()
            oldest = max(self._good_since, now - CONNECTION_LIFETIME)
            usable = connection.pgconn.transaction_status == TransactionStatus.IDLE
            spare = len(self._taken) + len(self._idle) > self._size
            if usable and connection.opened_at > oldest and not self._closed and not spare:
                self._idle.append((connection, now))
            else:
                connection.close()
            if self._closed:
                self._close_idle(self._idle)
            elif self._idle[:1] and self._idle[0][1] < now - IDLE_FOR:
                self._close_idle([self._idle.pop(0)])
        finally:
            self._release(place)

    def _release(self, place: threading.Lock) -> None:
        """Give back a place, or leave the queue."""
        with self._lock:
            if self._taken.pop(place, None) is None:
                with suppress(ValueError):
                    self._queue.remove(place)
            self._hand_over()

    @staticmethod
    def _close_idle(idle: list[tuple[C, float]]) -> None:
        with suppress(IndexError):
            while True:
                idle.pop()[0].close()
