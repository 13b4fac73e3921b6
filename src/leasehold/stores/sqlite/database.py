"""SQLite: a writer connection behind a lock, a reader for each read, times as whole microseconds, and wake-ups."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from leasehold.domain.checks.times import EARLIEST, LATEST
from leasehold.domain.errors import DatabaseTooOld, DatabaseUnreachable, ReadTooSlow, SchemaIncomplete
from leasehold.stores.caller_transaction import BorrowedSession, Execute
from leasehold.stores.database.database import Clock, Columns, Records, Row, SystemClock, refuse_inside
from leasehold.stores.database.places import BOOLEANS, TIMES
from leasehold.stores.database.read_timeout import longest_read
from leasehold.stores.database.statements import parameters, read_statements
from leasehold.stores.database.wakeups import ANYTHING, NOTHING, Hint, listen_here
from leasehold.stores.sqlite.connections import (
    BUSY_SECONDS,
    DAMAGE,
    WAITS_BY_ITSELF,
    Connections,
    KeptConnection,
    primary_code,
)
from leasehold.stores.sqlite.lending import LentConnection
from leasehold.stores.verbs.audit import waiting_for

T = TypeVar("T")

OLDEST = (3, 35, 0)
"""The first version with RETURNING."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST, _LAST = ((instant - _EPOCH) // _MICROSECOND for instant in (EARLIEST, LATEST))
_TROUBLE = DAMAGE | frozenset(
    {
        sqlite3.SQLITE_INTERNAL,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_UNREADABLE = ("malformed JSON", "Could not decode to UTF-8")
STATEMENTS = read_statements("leasehold.stores.sqlite")
LOCK_RETRY = 0.0005, 0.004
"""Least and most seconds until the file's lock is tried again. A try costs some microseconds."""
STEPS_A_LOOK = 1000
"""Steps of SQLite's virtual machine between two looks at the clock, in a read with a time limit."""
_TAKES_NOW = {name for name, text in STATEMENTS.items() if "now" in parameters(text)}


class SqliteSession:
    in_doubt = False

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock

    def now(self) -> int:
        """The time in microseconds, as statements get it."""
        return _now(self._clock)

    def rows(self, statement: str, /, **parameters: Any) -> list[Row]:
        return self._rows(statement, STATEMENTS[statement], parameters)

    def tuples(self, statement: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._execute(statement, STATEMENTS[statement], parameters).fetchall()

    def run(self, statement: str, /, **parameters: Any) -> None:
        self._execute(statement, STATEMENTS[statement], parameters).fetchall()

    def listing(self, names: Sequence[str], /, **parameters: Any) -> list[Row]:
        return self._rows(names[0], " ".join(STATEMENTS[name] for name in names), parameters)

    def _rows(self, statement: str, text: str, parameters: dict[str, Any]) -> list[Row]:
        cursor = self._execute(statement, text, parameters)
        names = [column[0] for column in cursor.description or ()]
        return [{n: python_value(n, v) for n, v in zip(names, row, strict=True)} for row in cursor.fetchall()]

    def _execute(self, statement: str, text: str, parameters: dict[str, Any]) -> sqlite3.Cursor:
        return self._connection.execute(text, _bound_for(statement, parameters, self._clock))


_AS_IT_IS = frozenset({str, int, float, bool, bytes, type(None)})


def _bound_for(statement: str, parameters: Mapping[str, Any], clock: Clock) -> dict[str, Any]:
    # Most values pass unchanged: a call for each would be a seventh of the time of a single enqueue.
    bound = {name: v if type(v) in _AS_IT_IS else _bound(v) for name, v in parameters.items()}
    if statement in _TAKES_NOW:
        bound["now"] = _now(clock)
    return bound


class SqliteDatabase:
    """A database in one file. Every write transaction begins IMMEDIATE: a transaction that reads before it writes could
    be refused at once, whatever the busy time-out."""

    def __init__(
        self, path: str, clock: Clock | None = None, *, create: bool = True, family: str | None = None
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise DatabaseTooOld("SQLite", sqlite3.sqlite_version, ".".join(map(str, OLDEST)))
        self.path = path
        self.clock: Clock = clock or SystemClock()
        self.label = f"sqlite:///{path}"
        self.family = family or self.label
        self.on_replaced: list[Callable[[], None]] = []
        """Called when another file is found at the path: what was cached from the old file is no longer true."""
        self._file = Connections(path, self.label, self.on_replaced)
        weakref.finalize(self, self._file.forget)
        if create:
            self._file.create()
        with self._file.inside(), self._file.writing:
            self._file.writer()

    def identity(self) -> str:
        """Of the file, by file system and inode. The file system's own id outlives a restart of the machine, which may
        renumber devices."""
        path = self._file.path
        try:
            system, found = os.statvfs(path).f_fsid, os.stat(path)
        except OSError as error:
            raise DatabaseUnreachable(self.label, str(error)) from error
        return hashlib.sha256(f"{system or found.st_dev}/{found.st_ino}".encode()).hexdigest()[:16]

    def path_of_tenant(self, name: str) -> Path:
        return Path(f"{self._file.path}.tenants") / f"{name}.db"

    def transact(self, work: Callable[[SqliteSession], T], *, idempotent: bool = False) -> T:
        refuse_inside(self.family)
        if (waiting := waiting_for(self.label)) is not None:
            return waiting.go_with(self.transact, work)
        file = self._file
        with file.inside():
            try:
                with file.writing:
                    connection = file.writer()
                    self._begin(connection)
                    try:
                        answer = work(SqliteSession(connection, self.clock))
                        file.check_ours(connection)
                        connection.execute("COMMIT")
                    except BaseException as error:
                        if file.owns(connection) and connection.in_transaction:
                            connection.execute("ROLLBACK")
                        raise self._translated(error) from error
                    file.check(connection)
                    return answer
            finally:
                if file.closed:
                    file.close_writer()

    def single(self, work: Callable[[SqliteSession], T], *, idempotent: bool = False) -> T:
        return self.transact(work)

    @contextmanager
    def lend(self, seconds: float) -> Iterator[tuple[SqliteSession, sqlite3.Connection]]:
        """Lends a connection of its own, closed at the end: code that keeps it cannot write into our transactions."""
        refuse_inside(self.family)
        file = self._file
        with file.inside():
            file.check_open()
            connection = file.open(LentConnection)
            try:
                connection.execute(WAITS_BY_ITSELF)
                self._begin(connection)
                connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")
                connection.lend(seconds)
                try:
                    yield SqliteSession(connection, self.clock), connection
                    file.check_ours(connection)
                    connection.end_loan()
                    connection.end("COMMIT")
                except BaseException as error:
                    if file.owns(connection):
                        connection.end_loan()
                        if connection.in_transaction:
                            connection.end("ROLLBACK")
                    raise self._translated(error) from error
                file.check(connection)
            finally:
                file.close(connection)

    def read(self, work: Callable[[SqliteSession], T]) -> T:
        file = self._file
        with file.inside():
            connection = file.take()
            seconds = longest_read()
            if seconds is not None:
                until = time.monotonic() + seconds
                connection.set_progress_handler(lambda: time.monotonic() > until, STEPS_A_LOOK)
            try:
                answer = work(SqliteSession(connection, self.clock))
                file.check(connection)
                return answer
            except sqlite3.DatabaseError as error:
                if seconds is not None and primary_code(error) == sqlite3.SQLITE_INTERRUPT:
                    raise ReadTooSlow(self.label, seconds) from error
                raise self._translated(error) from error
            finally:
                if seconds is not None:
                    connection.set_progress_handler(None, 0)
                file.give_back(connection)

    def read_pragma(self, pragma: str) -> Any:
        """The value of a pragma."""
        with closing(self.keep()) as kept:
            return kept.read_pragma(pragma)

    def keep(self) -> KeptConnection:
        """A connection that its caller keeps open."""
        return KeptConnection(self._file)

    def session_over(self, execute: Execute) -> BorrowedSession:
        """A session over the user's connection."""

        def bind(statement: str, text: str, given: Mapping[str, Any]) -> tuple[str, Any]:
            return text, _bound_for(statement, given, self.clock)

        return BorrowedSession(execute, bind, STATEMENTS, python_value)

    def refuses_data(self, error: Exception) -> bool:
        if isinstance(error, sqlite3.IntegrityError):
            return error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_CHECK
        return isinstance(
            error, sqlite3.DataError | sqlite3.InterfaceError | UnicodeEncodeError | OverflowError
        )

    def refuses_row(self, error: Exception) -> bool:
        if isinstance(error, sqlite3.OperationalError):
            return str(error).startswith(_UNREADABLE)
        return isinstance(error, sqlite3.IntegrityError) or self.refuses_data(error)

    def close(self) -> None:
        """Does not wait: a thread that is using a connection finishes its call and closes it."""
        with self._file.inside():
            self._file.close_all()

    def check_writable(self) -> None:
        """Raises DatabaseUnreachable if this process may not write the file. SQLite itself begins a transaction on such
        a file, and refuses the first write in it."""
        if not os.access(self._file.path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise DatabaseUnreachable(
                self.label,
                "the file is read-only for this user",
                "let this user write the file and its folder",
            )

    def schema_version(self) -> int:
        """The schema's version; 0 when there is no schema yet."""

        def work(session: SqliteSession) -> int:
            try:
                return int(session.tuples("schema_version")[0][0])
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_ERROR:
                    raise
                return 0  # there is no such table

        return self.read(work)

    def script(self, text: str) -> None:
        """Run a migration inside the transaction that `transact` has open."""
        for statement in _split(text):
            self._file.writer().execute(statement)

    def _translated(self, error: BaseException) -> BaseException:
        """Turns file trouble (full, read-only, locked, gone, damaged) and missing tables into our errors; others
        stay."""
        if isinstance(error, sqlite3.DatabaseError):
            if primary_code(error) in _TROUBLE:
                return self._file.unreachable(error)
            # SQLite adds the database's name to a missing table that a trigger writes to: a mirror's.
            if str(error).startswith(
                ("no such table: leasehold_", "no such table: main.", "no such column: ")
            ):
                return SchemaIncomplete(self.label, str(error))
        return error

    def _begin(self, connection: sqlite3.Connection) -> None:
        # There is no queue for the lock: another process can win every time. So try often, and for long.
        deadline = time.monotonic() + 4 * BUSY_SECONDS
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.DatabaseError as error:
                busy = primary_code(error) == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > deadline:
                    raise self._translated(error) from error
                self._file.check_open()
                time.sleep(random.uniform(*LOCK_RETRY))


def _now(clock: Clock) -> int:
    """All processes of a SQLite file share one machine, so its clock is the database's."""
    now = clock.now()
    return time.time_ns() // 1000 if now is None else (now - _EPOCH) // _MICROSECOND


def _bound(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MICROSECOND
    if isinstance(value, Records):
        return json.dumps(value.items, default=_jsonable)
    if isinstance(value, Columns):
        return json.dumps(list(zip(*value.columns.values(), strict=True)), default=_jsonable)
    if isinstance(value, list | tuple):
        return json.dumps(value)
    return value


def _jsonable(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MICROSECOND
    raise TypeError(f"cannot send {type(value).__name__} to the database")


def python_value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in TIMES:
        # One unreadable row must not break a whole list.
        return _EPOCH + timedelta(microseconds=min(max(value, _FIRST), _LAST))
    if name in BOOLEANS:
        return bool(value)
    return value


def _split(script: str) -> list[str]:
    """The statements of a migration, without sqlite3.executescript, which would commit first."""
    found, current = [], ""
    for line in script.splitlines(keepends=True):
        if line.lstrip().startswith("--"):
            continue
        current += line
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found


# -- wake-ups ----------------------------------------------------------------------------------------------------------

EAGER_EVERY, CALM_EVERY = 0.01, 0.05
EAGER_FOR = 30.0
"""Seconds of frequent looks after work, when more work is likely; a quiet file is looked at less often. A change alone
does not start them: the workers' own heartbeats are changes too."""


class SqliteWakeups:
    def __init__(self, database: SqliteDatabase, *labels: str) -> None:
        self._kept = database.keep()
        self._listener = listen_here(*labels)
        self._version = self._data_version()
        self._work_seen_at = float("-inf")
        self._closed = False
        self._waiting = threading.Lock()

    def wait(self, seconds: float) -> Hint:
        with self._waiting:
            return NOTHING if self._closed else self._wait(seconds)

    def _wait(self, seconds: float) -> Hint:
        deadline = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            pause = EAGER_EVERY if now - self._work_seen_at < EAGER_FOR else CALM_EVERY
            received = self._listener.wait(max(0.0, min(pause, deadline - now)))
            if self._closed:
                return NOTHING
            version = self._data_version()
            if version != self._version:
                # A commit does not say what it changed.
                self._version = version
                return ANYTHING
            if received or time.monotonic() >= deadline:
                return received

    def subscribe(self, on_hint: Callable[[Hint], None]) -> bool:
        """Commits of other processes send no hint: only polling finds them."""
        return False

    def expect_more(self) -> None:
        self._work_seen_at = time.monotonic()

    @property
    def listens(self) -> bool:
        return True

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        with self._waiting:
            self._kept.close()

    def _data_version(self) -> tuple[int, int]:
        """Versions of two connections cannot be compared: a new connection counts as a change."""
        version = int(self._kept.read_pragma("PRAGMA data_version"))
        return self._kept.openings, version
