"""SQLite: a writer connection behind a lock, a reader for each read that is under way, times as whole microseconds."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from leasehold.domain.errors import DatabaseTooOld, DatabaseUnreachable
from leasehold.stores.base.database import Clock, Columns, Records, Row, SystemClock
from leasehold.stores.base.forks import after_fork
from leasehold.stores.base.lent import refuse_inside
from leasehold.stores.base.rows import FLAGS, TIMES
from leasehold.stores.base.statements import parameters, read_statements
from leasehold.stores.sqlite.lending import LentConnection

T = TypeVar("T")
C = TypeVar("C", bound=sqlite3.Connection)

OLDEST = (3, 35, 0)
"""RETURNING."""
BUSY_SECONDS = 5.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TROUBLE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_STATEMENTS = read_statements("leasehold.stores.sqlite")
_TAKES_NOW = {name for name, text in _STATEMENTS.items() if "now" in parameters(text)}

_PRAGMAS = (
    # Readers do not stop the writer, nor it them.
    "PRAGMA journal_mode = WAL",
    # An acknowledged enqueue survives a power cut.
    "PRAGMA synchronous = FULL",
    "PRAGMA wal_autocheckpoint = 10000",
    "PRAGMA cache_size = -64000",
    "PRAGMA temp_store = MEMORY",
)


class SqliteSession:
    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock

    def now(self) -> int:
        """In microseconds, as statements are given it."""
        return _now(self._clock)

    def rows(self, statement: str, /, **parameters: Any) -> list[Row]:
        return self._rows(statement, _STATEMENTS[statement], parameters)

    def tuples(self, statement: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._execute(statement, _STATEMENTS[statement], parameters).fetchall()

    def run(self, statement: str, /, **parameters: Any) -> None:
        self._execute(statement, _STATEMENTS[statement], parameters).fetchall()

    def listing(self, names: Sequence[str], /, **parameters: Any) -> list[Row]:
        return self._rows(names[0], " ".join(_STATEMENTS[name] for name in names), parameters)

    def _rows(self, statement: str, text: str, parameters: dict[str, Any]) -> list[Row]:
        cursor = self._execute(statement, text, parameters)
        names = [column[0] for column in cursor.description or ()]
        return [{n: python_value(n, v) for n, v in zip(names, row, strict=True)} for row in cursor.fetchall()]

    def _execute(self, statement: str, text: str, parameters: dict[str, Any]) -> sqlite3.Cursor:
        bound = {name: _bound(value) for name, value in parameters.items()}
        if statement in _TAKES_NOW:
            bound["now"] = _now(self._clock)
        return self._connection.execute(text, bound)


class SqliteDatabase:
    """One file. Every write transaction begins IMMEDIATE: a read that turned into a write would be refused at once,
    whatever the busy time-out."""

    def __init__(self, path: str, clock: Clock | None = None) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise DatabaseTooOld("SQLite", sqlite3.sqlite_version, ".".join(map(str, OLDEST)))
        self.path = path
        self.clock: Clock = clock or SystemClock()
        self.label = f"sqlite:///{path}"
        self._closed = False
        self._begin_process(create=True)

    def _begin_process(self, create: bool) -> None:
        """The connections of this process. Closing one while another thread is inside it takes the whole process down,
        so the writer is closed under its lock, and a reader only by whoever has taken it out of `_idle`."""
        self._lock = threading.Lock()
        self._returning = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._writer = self._connect(create)
        weakref.finalize(self, _close_forgotten, self._writer, self._lock, self._idle, os.getpid())
        self._pid = os.getpid()  # last: it says that the others are this process's

    def transact(self, work: Callable[[SqliteSession], T]) -> T:
        refuse_inside(self.label)
        self._check_open()  # before the lock: another thread of the parent may have held it when it was forked
        try:
            with self._lock:
                self._check_open()
                connection = self._writer
                self._begin(connection)
                try:
                    answer = work(SqliteSession(connection, self.clock))
                    connection.execute("COMMIT")
                except BaseException as error:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise self._translated(error) from error
                return answer
        finally:
            if self._closed:
                self._close_writer()

    def single(self, work: Callable[[SqliteSession], T]) -> T:
        return self.transact(work)

    @contextmanager
    def lend(self, seconds: float) -> Iterator[tuple[SqliteSession, sqlite3.Connection]]:
        """Over a connection of its own, closed at the end: who keeps it cannot write into our transactions."""
        refuse_inside(self.label)
        self._check_open()
        with closing(self._open_file(LentConnection)) as connection:
            self._begin(connection)
            connection.lend(seconds)
            try:
                yield SqliteSession(connection, self.clock), connection
                connection.take_back()
                connection.end("COMMIT")
            except BaseException as error:
                connection.take_back()
                if connection.in_transaction:
                    connection.end("ROLLBACK")
                raise self._translated(error) from error

    def read(self, work: Callable[[SqliteSession], T]) -> T:
        self._check_open()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect(create=False)
        try:
            return work(SqliteSession(connection, self.clock))
        except sqlite3.OperationalError as error:
            raise self._translated(error) from error
        finally:
            self._return(connection)

    def refuses_data(self, error: Exception) -> bool:
        if isinstance(error, sqlite3.IntegrityError):
            return error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_CHECK
        return isinstance(
            error, sqlite3.DataError | sqlite3.InterfaceError | UnicodeEncodeError | OverflowError
        )

    def close(self) -> None:
        """Waits for nobody: whoever is inside a connection ends what is under way, and closes it."""
        if self._pid != os.getpid():
            self._closed = True  # the connections are the parent's
            return
        with self._returning:
            self._closed = True
        self._close_writer()
        _close_all(self._idle)

    def _close_writer(self) -> None:
        """Unless somebody is inside: then he does it when he leaves, for by now he sees that we are closed."""
        if self._lock.acquire(blocking=False):
            try:
                self._writer.close()
            finally:
                self._lock.release()

    def schema_version(self) -> int:
        """0 when there is no schema yet."""

        def work(session: SqliteSession) -> int:
            try:
                return int(session.tuples("schema_version")[0][0])
            except sqlite3.OperationalError:
                return 0

        return self.read(work)

    def script(self, text: str) -> None:
        """Run a migration inside the transaction that `transact` has open."""
        for statement in _split(text):
            self._writer.execute(statement)

    def _translated(self, error: BaseException) -> BaseException:
        """Trouble with the file (full, read-only, locked, gone) is the database's; the rest is raised as it is."""
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _TROUBLE:
            return DatabaseUnreachable(self.label, str(error))
        return error

    def _begin(self, connection: sqlite3.Connection) -> None:
        # The busy time-out is not a queue: another process can win every time. A few tries more, spread out.
        deadline = time.monotonic() + 4 * BUSY_SECONDS
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise self._translated(error) from error
                self._check_open()
                time.sleep(random.uniform(0.001, 0.02))

    def connect(self) -> sqlite3.Connection:
        """A connection for somebody who keeps it."""
        return self._connect(create=False)

    def _return(self, connection: sqlite3.Connection) -> None:
        with self._returning:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self, create: bool) -> sqlite3.Connection:
        if create and self.path != ":memory:":
            try:
                Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DatabaseUnreachable(self.label, str(error)) from error
        return self._open_file(sqlite3.connect)

    def _open_file(self, connect: Callable[..., C]) -> C:
        """Whoever asks must close it."""
        try:
            connection = connect(
                self.path,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise DatabaseUnreachable(self.label, str(error)) from error
        try:
            for pragma in _PRAGMAS:
                connection.execute(pragma)
        except sqlite3.Error as error:
            connection.close()
            raise DatabaseUnreachable(self.label, str(error)) from error
        return connection

    def _check_open(self) -> None:
        """A thread that is late must not open a connection that nobody will close."""
        if self._closed:
            raise DatabaseUnreachable(self.label, "this store was closed")
        self._survive_fork()

    def _survive_fork(self) -> None:
        """A connection must not be used on both sides of a fork: the child opens its own and leaves the inherited
        ones alone (closing them would drop the parent's file locks)."""
        if self._pid == os.getpid():
            return
        with after_fork:
            if self._pid != os.getpid():
                _inherited.append((self._writer, self._idle))
                self._begin_process(create=False)


_inherited: list[object] = []


def _close_forgotten(
    writer: sqlite3.Connection, lock: threading.Lock, idle: list[sqlite3.Connection], pid: int
) -> None:
    """When the database is forgotten without a close, or the process ends, perhaps with a daemon thread at work. Not
    in a forked child: closing there would drop the parent's file locks."""
    if pid != os.getpid():
        return
    _close_all(idle)
    if lock.acquire(timeout=BUSY_SECONDS):
        try:
            writer.close()
        finally:
            lock.release()


def _close_all(idle: list[sqlite3.Connection]) -> None:
    with suppress(IndexError):
        while True:
            idle.pop().close()


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
        return _EPOCH + timedelta(microseconds=value)
    if name in FLAGS:
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
