"""A connection in other hands: a handler writes through it, in a transaction that is ours to end.

While it is lent it refuses to commit or to roll back (sqlite3's own `executescript` and `with connection:` would commit
without a word), and after its time the transaction is rolled back even if the handler hangs: no other can write
meanwhile. No callback of SQLite's is used for it: one that waits for the interpreter, while the interpreter waits for
the connection, would never end.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn

from leasehold.stores.database.database import Overdue

_CONTROL = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:begin|commit|end|rollback(?!\s+(?:transaction\s+)?to\b))\b", re.I | re.S
)
_INTERRUPT_EVERY = 0.02


class LentCursor(sqlite3.Cursor):
    """Whatever may keep SQLite busy takes its turn, reading on included."""

    connection: LentConnection

    def execute(self, sql: str, parameters: Any = (), /) -> LentCursor:
        with self.connection.turn(sql):
            super().execute(sql, parameters)
        return self

    def executemany(self, sql: str, parameters: Any, /) -> LentCursor:
        with self.connection.turn(sql):
            super().executemany(sql, parameters)
        return self

    def executescript(self, sql_script: str, /) -> NoReturn:
        _refuse("executescript")

    def fetchone(self) -> Any:
        with self.connection.turn():
            return super().fetchone()

    def fetchmany(self, *args: Any, **kwargs: Any) -> list[Any]:
        with self.connection.turn():
            return super().fetchmany(*args, **kwargs)

    def fetchall(self) -> list[Any]:
        with self.connection.turn():
            return super().fetchall()

    def __next__(self) -> Any:
        with self.connection.turn():
            return super().__next__()


class LentConnection(sqlite3.Connection):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._turn = threading.Lock()
        """One statement at a time, the rollback of a late one included."""
        self._cursors: weakref.WeakSet[LentCursor] = weakref.WeakSet()
        self._timer: threading.Timer | None = None
        self._ended = False
        self._overdue = False
        self._late = False
        self._pid = os.getpid()

    # -- ours ------------------------------------------------------------------------------------------------------
    def lend(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._end_late)
        self._timer.daemon = True
        self._timer.start()

    def take_back(self) -> None:
        """The block is over, and from here on the transaction is safe from the clock. Overdue: it came too late."""
        with self._turn:
            self._ended = not self._late and not self._overdue
        if self._timer is None:
            return
        if not self._ended:
            # The clock has interrupted the block, and undoes it as soon as it has its turn.
            self._timer.join()
            raise Overdue
        self._timer.cancel()

    def end(self, statement: str) -> None:
        """COMMIT or ROLLBACK."""
        sqlite3.Cursor(self).execute(statement)

    def _end_late(self) -> None:
        while not self._turn.acquire(timeout=_INTERRUPT_EVERY):
            # Said before the interruption: the block may notice it, and end, before we have our turn.
            self._late = True
            self.interrupt()
        try:
            if self._ended:
                return
            # Said first: a statement that comes after the rollback would be a transaction by itself.
            self._overdue = True
            self._close_cursors()  # a read that was begun would keep the interruption alive
            if self.in_transaction:
                self.end("ROLLBACK")
            super().close()
        finally:
            self._turn.release()

    def close(self) -> None:
        """Whole: SQLite keeps the file open while a cursor of it exists."""
        self._close_cursors()
        super().close()

    def _close_cursors(self) -> None:
        for cursor in list(self._cursors):
            with contextlib.suppress(sqlite3.Error):
                cursor.close()

    @contextlib.contextmanager
    def turn(self, sql: str = "") -> Iterator[None]:
        with self._turn:
            if self._overdue or self._late:
                raise Overdue
            if self._pid != os.getpid():
                raise sqlite3.ProgrammingError(
                    "this process was forked inside the transaction, which is its parent's"
                )
            if self._timer is not None and _CONTROL.match(sql):
                _refuse(sql.strip())
            yield

    # -- the handler's ---------------------------------------------------------------------------------------------
    def cursor(self, factory: Any = LentCursor) -> Any:
        cursor = super().cursor(LentCursor)
        self._cursors.add(cursor)
        return cursor

    def execute(self, sql: str, parameters: Any = (), /) -> LentCursor:
        cursor: LentCursor = self.cursor()
        return cursor.execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> LentCursor:
        cursor: LentCursor = self.cursor()
        return cursor.executemany(sql, parameters)

    def commit(self) -> NoReturn:
        _refuse("commit")

    def rollback(self) -> NoReturn:
        _refuse("rollback")

    def executescript(self, sql_script: str, /) -> NoReturn:
        _refuse("executescript")

    def __enter__(self) -> NoReturn:
        _refuse("with connection")


def _refuse(what: str) -> NoReturn:
    raise sqlite3.ProgrammingError(
        f"{what}: this transaction is ended by its block; for a part of it use SAVEPOINT, RELEASE and ROLLBACK TO"
    )
