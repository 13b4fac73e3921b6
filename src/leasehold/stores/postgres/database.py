"""PostgreSQL: a pool of autocommit connections, schema-qualified statements, no session state.

Nothing here needs a session to outlive a transaction (no SET, no session advisory lock), so a transaction-mode pooler
may stand in between.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, LiteralString, TypeVar

from leasehold.domain.errors import (
    DatabaseUnreachable,
    DriverMissing,
    InvalidInput,
    PermissionMissing,
    SchemaIncomplete,
)
from leasehold.stores.base.database import Clock, Columns, Overdue, Records, Row, SystemClock
from leasehold.stores.base.forks import after_fork
from leasehold.stores.base.lent import refuse_inside
from leasehold.stores.base.schema_name import checked_schema
from leasehold.stores.base.statements import read_statements

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
    from psycopg.rows import dict_row, tuple_row
    from psycopg.types.string import TextLoader
except ImportError as missing:
    raise DriverMissing("psycopg", "postgres") from missing

from leasehold.stores.postgres import settings
from leasehold.stores.postgres.dialect import as_array, in_dialect, jsonable, qualified
from leasehold.stores.postgres.instants import InstantLoader
from leasehold.stores.postgres.pool import Pool, PoolError
from leasehold.stores.postgres.prepared import QuickConnection
from leasehold.stores.postgres.urls import bad_url, label_of
from leasehold.stores.postgres.wakeup import STOP

T = TypeVar("T")

CONNECT_SECONDS = 10
TRIES = 12
_AGAIN = frozenset({"40001", "40P01", "55P03"})
_MISSING = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
)
_STATEMENTS = read_statements("leasehold.stores.postgres")


class PostgresSession:
    def __init__(self, connection: QuickConnection, statements: dict[str, str], clock: Clock) -> None:
        self._connection = connection
        self._statements = statements
        self._clock = clock

    def rows(self, statement: str, /, **parameters: Any) -> list[Row]:
        return self._rows(self._statements[statement], parameters)

    def tuples(self, statement: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(self._statements[statement], self._bound(parameters)).fetchall()

    def run(self, statement: str, /, **parameters: Any) -> None:
        self._connection.execute(self._statements[statement], self._bound(parameters))

    def quick(self, statement: str, /, **parameters: Any) -> int:
        """Run it without a cursor, with plain values; the number of rows it answers with."""
        now = self._clock.now()
        if now is not None:
            parameters["now"] = now
        return self._connection.run_quickly(statement, self._statements[statement], parameters)

    def copy(self, statement: str, texts: Iterable[str]) -> None:
        """Send rows to a COPY, as texts of whole rows."""
        with (
            self._connection.cursor() as cursor,
            cursor.copy(self._statements[statement].rstrip(" ;\n")) as rows,
        ):
            for text in texts:
                rows.write(text)

    def listing(self, names: Sequence[str], /, **parameters: Any) -> list[Row]:
        return self._rows(" ".join(self._statements[name] for name in names), parameters)

    def run_text(self, text: LiteralString, values: Sequence[Any] = ()) -> None:
        self._connection.execute(text, values)

    def _rows(self, text: str, parameters: dict[str, Any]) -> list[Row]:
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(text, self._bound(parameters)).fetchall()

    def _bound(self, parameters: dict[str, Any]) -> dict[str, Any]:
        bound: dict[str, Any] = {}
        for name, value in parameters.items():
            if isinstance(value, Records):
                bound[name] = json.dumps(value.items, default=jsonable)
            elif isinstance(value, Columns):
                bound |= {f"{name}.{column}": as_array(items) for column, items in value.columns.items()}
            else:
                bound[name] = value
        now = self._clock.now()
        if now is not None:
            bound["now"] = now
        return bound


class PostgresDatabase:
    def __init__(
        self,
        url: str,
        schema: str = "leasehold",
        clock: Clock | None = None,
        *,
        pool_size: int = 8,
        pooler: bool = False,
    ) -> None:
        self.schema = checked_schema(schema)
        self.clock: Clock = clock or SystemClock()
        self.url = url
        self.label = label_of(url, self.schema)
        self._pooler = pooler
        self._pool_size = pool_size
        self._role = ""
        # Without a clock of ours `:now` is the statement's own time: stable, so that an index can use it.
        own_clock = self.clock.now() is None
        self._statements = {
            name: in_dialect(text, self.schema, own_clock) for name, text in _STATEMENTS.items()
        }
        self._begin_process()
        self._open_first()

    def transact(self, work: Callable[[PostgresSession], T]) -> T:
        refuse_inside(self.label)
        committing = False

        def in_transaction(connection: QuickConnection) -> T:
            nonlocal committing
            committing = False
            with connection.transaction():
                answer = work(PostgresSession(connection, self._statements, self.clock))
                committing = True
                return answer

        return self._repeat(in_transaction, lambda: not committing)

    def single(self, work: Callable[[PostgresSession], T]) -> T:
        refuse_inside(self.label)
        return self._repeat(
            lambda connection: work(PostgresSession(connection, self._statements, self.clock)), lambda: False
        )

    def read(self, work: Callable[[PostgresSession], T]) -> T:
        return self._repeat(
            lambda connection: work(PostgresSession(connection, self._statements, self.clock)), lambda: True
        )

    @contextmanager
    def lend(self, seconds: float) -> Iterator[tuple[PostgresSession, QuickConnection]]:
        refuse_inside(self.label)
        self._survive_fork()
        began = None
        try:
            with (
                self._lendable,
                self._pool.connection() as connection,
                connection.in_use(),
                connection.transaction(),
            ):
                began = time.monotonic()
                # The server ends what hangs, in a statement or between two. Local to the transaction, so that a
                # pooler may stand in between.
                connection.execute(
                    "SELECT set_config('idle_in_transaction_session_timeout', %s, true),"
                    " set_config('statement_timeout', %s, true)",
                    [f"{seconds * 1000:.0f}"] * 2,
                )
                yield PostgresSession(connection, self._statements, self.clock), connection
                if connection.info.transaction_status is not TransactionStatus.INTRANS:
                    raise InvalidInput(
                        "transaction",
                        "was ended inside its block",
                        "leave COMMIT and ROLLBACK to the block's end",
                    )
                if time.monotonic() - began > seconds:
                    raise Overdue
        except PoolError as error:
            raise DatabaseUnreachable(self.label, str(error)) from error
        except psycopg.Error as error:
            if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                self._pool.discard()
            if began is not None and time.monotonic() - began >= seconds:
                raise Overdue from error
            if _is_trouble(error) and error.sqlstate not in _AGAIN:
                raise DatabaseUnreachable(self.label, str(error).strip()) from error
            raise

    def refuses_data(self, error: Exception) -> bool:
        if isinstance(error, psycopg.DataError | psycopg.errors.CheckViolation | UnicodeEncodeError):
            return True
        return isinstance(error, psycopg.Error) and _exceeds_a_limit(error)

    def notify(self) -> None:
        self._notify(self.channel)

    def notify_holders(self) -> None:
        self._notify(self.channel, STOP)

    def notify_watchers(self) -> None:
        self._notify(self.group_channel)

    def _notify(self, channel: str, payload: str = "") -> None:
        """Outside of any job's transaction: its commit waits for nobody's disk."""
        self.single(lambda session: session.run_text("SELECT pg_notify(%s, %s)", [channel, payload]))

    @property
    def channel(self) -> str:
        return f"leasehold_{self.schema}"

    @property
    def group_channel(self) -> str:
        """The dot keeps it apart from every schema's own channel."""
        return f"leasehold_{self.schema}.g"

    def close(self) -> None:
        if self._pid == os.getpid():
            self._pool.close()

    def schema_version(self) -> int:
        """0 when there is no schema yet."""
        try:
            return int(self.read(lambda session: session.tuples("schema_version"))[0][0])
        except SchemaIncomplete:
            return 0

    def prepare_schema(self, session: PostgresSession) -> int:
        """The present version, under a lock that lasts as long as the transaction: migrations of several processes
        follow each other. The lock is transaction-level, so a pooler may stand in between."""
        session.run_text(
            "SELECT pg_advisory_xact_lock(hashtext('leasehold migrations'), hashtext(%s))", [self.schema]
        )
        self.script(
            "CREATE SCHEMA IF NOT EXISTS leasehold;"
            "CREATE TABLE IF NOT EXISTS leasehold.migration"
            " (version integer PRIMARY KEY, applied_at timestamptz NOT NULL);",
            session,
        )
        return int(session.tuples("schema_version")[0][0])

    def drop_schema(self, session: PostgresSession) -> None:
        self.script("DROP SCHEMA IF EXISTS leasehold CASCADE;", session)

    def script(self, text: str, session: PostgresSession) -> None:
        """Run a migration inside the transaction of `session`."""
        session._connection.execute(qualified(text, self.schema).encode())

    def _repeat(self, work: Callable[[QuickConnection], T], harmless: Callable[[], bool]) -> T:
        """What the database asks to be repeated is repeated: the transaction has left nothing behind. Once, also what
        a connection has cost that was lost (if `harmless` says that nothing can have been done) or may only read."""
        self._survive_fork()
        tries, anew = 0, False
        while True:
            lost = False
            try:
                with self._pool.connection() as connection:
                    try:
                        with connection.in_use():
                            return work(connection)
                    except psycopg.Error:
                        lost = connection.closed
                        raise
            except PoolError as error:
                raise DatabaseUnreachable(self.label, str(error)) from error
            except psycopg.Error as error:
                read_only = isinstance(error, psycopg.errors.ReadOnlySqlTransaction)
                if read_only:
                    self._pool.discard()  # they were opened before a failover, or under another setting
                if not anew and (read_only or (lost and harmless())):
                    anew = True
                    continue
                tries += 1
                if tries == TRIES or not _worth_repeating(error):
                    raise self._translated(error) from error
                time.sleep(random.uniform(0.0, 0.01) * tries)

    def _translated(self, error: psycopg.Error) -> Exception:
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return PermissionMissing(self.label, self._role, _first_line(error))
        if isinstance(error, _MISSING):
            return SchemaIncomplete(self.label, _first_line(error))
        if _is_trouble(error):
            return DatabaseUnreachable(self.label, str(error).strip())
        return error

    def _begin_process(self) -> None:
        # Handlers' own transactions may take seconds: they must not keep claims and settles from a connection.
        self._lendable = threading.Semaphore(max(1, self._pool_size // 2))
        self._pool = Pool(partial(_connect, self.url, self._options()), self._pool_size)
        weakref.finalize(self, _close_own, self._pool, os.getpid())
        self._pid = os.getpid()  # last: it says that the others are this process's

    def _open_first(self) -> None:
        try:
            first = _connect(self.url, self._options())
        except psycopg.OperationalError as error:
            raise DatabaseUnreachable(self.label, str(error).strip()) from error
        except psycopg.ProgrammingError:
            raise bad_url() from None
        try:
            settings.check(first, self.label)
        except BaseException:
            first.close()
            raise
        self._role = first.info.user
        self._pool.add(first)

    def _options(self) -> dict[str, Any]:
        return settings.options(self._pooler) | {
            # A transaction-mode pooler hands each transaction to another backend: nothing prepared survives.
            "prepare_threshold": None if self._pooler else 5
        }

    def _survive_fork(self) -> None:
        """A connection must not be used on both sides of a fork: the child opens its own and leaves the inherited ones
        alone."""
        if self._pid == os.getpid():
            return
        with after_fork:
            if self._pid != os.getpid():
                _inherited.append(self._pool)
                self._begin_process()


_inherited: list[object] = []


def _connect(url: str, options: dict[str, Any]) -> QuickConnection:
    given = conninfo_to_dict(url).get("options")
    if given and "options" in options:  # ours last: they are those that we rely on
        options = {**options, "options": f"{given} {options['options']}"}
    connection = QuickConnection.connect(
        url,
        autocommit=True,
        connect_timeout=CONNECT_SECONDS,
        keepalives_idle=30,
        application_name="leasehold",
        **options,
    )
    # UUIDs and JSON stay text: nobody looks inside them on the way, and parsing them shows in the profile.
    for type_name in ("uuid", "json"):
        connection.adapters.register_loader(type_name, TextLoader)
    connection.adapters.register_loader("timestamptz", InstantLoader)
    return connection


def _close_own(pool: Pool, pid: int) -> None:
    """Not in a forked child: the connections are the parent's."""
    if pid == os.getpid():
        pool.close()


def _first_line(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error)).strip()


def _worth_repeating(error: psycopg.Error) -> bool:
    if isinstance(error, psycopg.errors.UniqueViolation):
        # A lost race for a lane, or for a unique key between the look and the write: the next try sees the winner.
        return error.diag.constraint_name in ("lane_hold_pkey", "unique_key_pkey")
    return error.sqlstate in _AGAIN


def _is_trouble(error: psycopg.Error) -> bool:
    """The connection, the server or its disk; not the statement or its values."""
    kinds = psycopg.OperationalError | psycopg.InterfaceError | psycopg.errors.ReadOnlySqlTransaction
    # A session that ends in the middle of an answer: psycopg raises an InternalError of its own, without a code.
    cut_off = isinstance(error, psycopg.InternalError) and error.sqlstate is None
    return cut_off or (isinstance(error, kinds) and not _exceeds_a_limit(error))


def _exceeds_a_limit(error: psycopg.Error) -> bool:
    """Class 54: a value too large or nested too deep. psycopg files it under OperationalError."""
    return (error.sqlstate or "").startswith("54")
