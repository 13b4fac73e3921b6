"""A few connections, shared by the threads of a process.

A call that finds none idle opens one itself. So it gets the error at once, and the next call uses a database that is
back: none waits for a background thread that tries less and less often. A session that the server has ended
is found out before it is used, and without a round trip.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
from psycopg.pq import TransactionStatus

from leasehold.stores.postgres.prepared import QuickConnection

WAIT_SECONDS = 15.0
"""Seconds to wait for a connection when all are in use."""
LIFETIME = 3600.0
"""Seconds after which a connection is replaced: the name may lead to another server by now."""
IDLE_FOR = 600.0
"""Seconds after which an unused connection is closed."""


class PoolError(Exception):
    """No connection is to be had from here, whatever the database says."""


class Pool:
    def __init__(self, connect: Callable[[], QuickConnection], size: int) -> None:
        self._connect = connect
        self._size = size
        self._free = size
        self._changed = threading.Condition(threading.Lock())
        self._idle: list[tuple[QuickConnection, float]] = []
        """The one that was used last is taken first, so that those which are not needed can go."""
        self._good_since = 0.0
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[QuickConnection]:
        connection = self._take()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def discard(self) -> None:
        """Replace all that are open now: they were opened before the database changed its state."""
        self._good_since = time.monotonic()
        self._close_idle(self._idle)

    def add(self, connection: QuickConnection) -> None:
        self._idle.append((connection, time.monotonic()))

    def close(self) -> None:
        """Those in use are closed when they are given back."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._close_idle(self._idle)

    def _take(self) -> QuickConnection:
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or self._free, WAIT_SECONDS):
                raise PoolError(f"all {self._size} connections were in use for {WAIT_SECONDS:g} s")
            if self._closed:
                raise PoolError("this store was closed")
            self._free -= 1
        try:
            return self._alive() or self._connect()
        except BaseException:
            self._release()
            raise

    def _alive(self) -> QuickConnection | None:
        with suppress(IndexError):
            while True:
                connection, _ = self._idle.pop()
                if connection.is_quiet():
                    return connection
                connection.close()
        return None

    def _give_back(self, connection: QuickConnection) -> None:
        try:
            if connection.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                with suppress(psycopg.Error):
                    connection.rollback()
            now = time.monotonic()
            oldest = max(self._good_since, now - LIFETIME)
            usable = connection.pgconn.transaction_status == TransactionStatus.IDLE
            if usable and connection.opened_at > oldest and not self._closed:
                self._idle.append((connection, now))
            else:
                connection.close()
            if self._closed:
                self._close_idle(self._idle)
            elif self._idle[:1] and self._idle[0][1] < now - IDLE_FOR:
                self._close_idle([self._idle.pop(0)])
        finally:
            self._release()

    def _release(self) -> None:
        with self._changed:
            self._free += 1
            self._changed.notify()

    @staticmethod
    def _close_idle(idle: list[tuple[QuickConnection, float]]) -> None:
        with suppress(IndexError):
            while True:
                idle.pop()[0].close()
