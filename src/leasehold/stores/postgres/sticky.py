"""The connection that was used last is used next: its server process is still warm. The pool would hand out all of its
connections in turn, and a single producer then wakes another process for every job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool

from leasehold.stores.postgres.prepared import QuickConnection


class Warm:
    """One connection stays out of the pool between two uses, as long as nobody waits for the pool."""

    def __init__(self, pool: ConnectionPool[QuickConnection]) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._kept: QuickConnection | None = None
        self._asking = 0
        """Those who wait for the pool: what is given back must go there."""
        self._closed = False

    @contextmanager
    def lent(self) -> Iterator[QuickConnection]:
        connection = self._take()
        try:
            with connection.in_use():
                yield connection
        finally:
            self._give_back(connection)

    def _take(self) -> QuickConnection:
        with self._lock:
            if self._kept is not None:
                kept, self._kept = self._kept, None
                return kept
            self._asking += 1
        try:
            return self._pool.getconn()
        finally:
            with self._lock:
                self._asking -= 1

    def _give_back(self, connection: QuickConnection) -> None:
        """One that is broken, or was left in a transaction, is the pool's to mend."""
        sound = not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE
        with self._lock:
            if sound and self._kept is None and not self._asking and not self._closed:
                self._kept = connection
                return
        self._pool.putconn(connection)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            kept, self._kept = self._kept, None
        if kept is not None:
            self._pool.putconn(kept)
