"""A SQLite connection lent to a handler, in a transaction that only the store ends.

A lent connection refuses to commit or to roll back (sqlite3's own `executescript` and `with connection:` would commit
silently), and after its time the transaction is rolled back even if the handler hangs: nothing else can write
meanwhile. SQLite's callbacks are not used for it: a callback that waits for the interpreter, while the interpreter
waits for the connection, would never end.
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
    """Each call that may keep SQLite busy waits for the connection's turn, fetches included."""

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
        """Lets one statement run at a time, the rollback of a late block included."""
        self._cursors: weakref.WeakSet[LentCursor] = weakref.WeakSet()
        self._timer: threading.Timer | None = None
        self._ended = False
        self._overdue = False
        self._late = False
        self._pid = os.getpid()

    # -- the loan ------------------------------------------------------------------------------------------------------
    def lend(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._end_late)
        timer.daemon = True
        with contextlib.suppress(RuntimeError):  # the interpreter is ending: the loan has no limit
            timer.start()
            self._timer = timer

    def end_loan(self) -> None:
        """End the loan once its block is over: the timer no longer rolls back. Raises Overdue if the block was late."""
        with self._turn:
            self._ended = not self._late and not self._overdue
        if self._timer is None:
            return
        if not self._ended:
            # The timer has interrupted the block, and rolls it back as soon as it has its turn.
            self._timer.join()
            raise Overdue
        self._timer.cancel()

    def end(self, statement: str) -> None:
        """Run COMMIT or ROLLBACK, whatever the state of the loan."""
        sqlite3.Cursor(self).execute(statement)

    def _end_late(self) -> None:
        while not self._turn.acquire(timeout=_INTERRUPT_EVERY):
            # Set before the interruption: the block may notice it, and end, before this thread has its turn.
            self._late = True
            self.interrupt()
        try:
            if self._ended:
                return
            # Set first: a statement that comes after the rollback would be a transaction by itself.
            self._overdue = True
            self._close_cursors()  # an unfinished read would keep the interruption alive
            if self.in_transaction:
                self.end("ROLLBACK")
            super().close()
        finally:
            self._turn.release()

    def close(self) -> None:
        """Close the connection and its cursors: SQLite keeps the file open while a cursor exists."""
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
