"""A connection in other hands: a handler writes through it, in a transaction that is ours to end.

While it is lent, BEGIN, COMMIT and ROLLBACK are refused (sqlite3's own `executescript` would commit first, without a
word), and after its time the transaction is rolled back even if the handler hangs: nobody else can write meanwhile.
"""

from __future__ import annotations

import sqlite3
import threading

from leasehold.stores.database import Overdue

_STEPS = 10_000
"""Of SQLite's machine, between two looks at the time: a statement that runs for long is stopped, the ROLLBACK is
shorter than that."""


class Guard:
    def __init__(self, connection: sqlite3.Connection, seconds: float) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._ended = False
        self.overdue = False
        connection.set_authorizer(self._authorize)
        connection.set_progress_handler(lambda: self.overdue, _STEPS)
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def lift(self, quietly: bool = False) -> bool:
        """The block is over; the connection is ours again. False, or Overdue: it was too late."""
        with self._lock:
            if not self.overdue and not self._ended:
                self._ended = True
                self._timer.cancel()
                self._connection.set_authorizer(None)
                self._connection.set_progress_handler(None, 0)
        if self.overdue and not quietly:
            raise Overdue
        return not self.overdue

    def _end(self) -> None:
        with self._lock:
            if self._ended:
                return
            # From here on the authorizer refuses everything but our ROLLBACK: a statement of the handler that came
            # right after it would else be a transaction by itself.
            self.overdue = True
            self._connection.set_authorizer(self._authorize)
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._connection.close()

    def _authorize(self, action: int, what: str | None, *_: object) -> int:
        if action == sqlite3.SQLITE_TRANSACTION:
            return sqlite3.SQLITE_OK if self.overdue and what == "ROLLBACK" else sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_DENY if self.overdue else sqlite3.SQLITE_OK
