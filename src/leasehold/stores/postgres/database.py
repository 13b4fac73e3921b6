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
from typing import Any, LiteralString, TypeVar

from leasehold.domain.errors import (
    DatabaseTooOld,
    DatabaseUnreachable,
    DriverMissing,
    InvalidInput,
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
    from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout
except ImportError as missing:
    raise DriverMissing("psycopg", "postgres") from missing

from leasehold.stores.postgres.dialect import as_array, in_dialect, jsonable, qualified
from leasehold.stores.postgres.prepared import QuickConnection
from leasehold.stores.postgres.wakeup import STOP

T = TypeVar("T")

OLDEST = 150000
CONNECT_SECONDS = 10
POOL_SECONDS = 15.0
STATEMENT_SECONDS = 30
TRIES = 12
_AGAIN = frozenset({"40001", "40P01", "55P03"})
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
        self.label = _label(url, self.schema)
        self._pooler = pooler
        self._pool_size = pool_size
        # Without a clock of ours `:now` is the statement's own time: stable, so that an index can use it.
        own_clock = self.clock.now() is None
        self._statements = {
            name: in_dialect(text, self.schema, own_clock) for name, text in _STATEMENTS.items()
        }
        # Handlers' own transactions may take seconds: they must not keep claims and settles from a connection.
        self._lendable = threading.Semaphore(max(1, pool_size // 2))
        self._pid = os.getpid()
        self._pool = self._open_pool()

    def transact(self, work: Callable[[PostgresSession], T]) -> T:
        refuse_inside(self.label)

        def in_transaction(connection: QuickConnection) -> T:
            with connection.transaction():
                return work(PostgresSession(connection, self._statements, self.clock))

        return self._repeat(in_transaction)

    def single(self, work: Callable[[PostgresSession], T]) -> T:
        refuse_inside(self.label)
        return self._in_session(work)

    def read(self, work: Callable[[PostgresSession], T]) -> T:
        return self._in_session(work)

    def _in_session(self, work: Callable[[PostgresSession], T]) -> T:
        return self._repeat(
            lambda connection: work(PostgresSession(connection, self._statements, self.clock))
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
        except (PoolTimeout, PoolClosed) as error:
            raise DatabaseUnreachable(self.label, str(error)) from error
        except psycopg.Error as error:
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
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
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

    def _repeat(self, work: Callable[[QuickConnection], T]) -> T:
        """What the database asks to be repeated is repeated: the transaction has left nothing behind."""
        self._survive_fork()
        tries = 0
        while True:
            try:
                with self._pool.connection() as connection, connection.in_use():
                    return work(connection)
            except (PoolTimeout, PoolClosed) as error:
                raise DatabaseUnreachable(self.label, str(error)) from error
            except psycopg.Error as error:
                tries += 1
                if tries == TRIES or not _worth_repeating(error):
                    if _is_trouble(error):
                        raise DatabaseUnreachable(self.label, str(error).strip()) from error
                    raise
                time.sleep(random.uniform(0.0, 0.01) * tries)

    def _open_pool(self) -> ConnectionPool[QuickConnection]:
        # Asked once by itself: the pool would retry in the background and say nothing about the reason.
        try:
            with psycopg.connect(self.url, connect_timeout=CONNECT_SECONDS) as probe:
                if probe.info.server_version < OLDEST:
                    raise DatabaseTooOld("PostgreSQL", str(probe.info.server_version // 10000), "15")
        except psycopg.OperationalError as error:
            raise DatabaseUnreachable(self.label, str(error).strip()) from error
        except psycopg.ProgrammingError:
            raise _bad_url() from None
        pool: ConnectionPool[QuickConnection] = ConnectionPool(
            self.url,
            min_size=1,
            max_size=self._pool_size,
            timeout=POOL_SECONDS,
            open=True,
            kwargs={
                **self._options(),
                "autocommit": True,
                "connect_timeout": CONNECT_SECONDS,
                "keepalives_idle": 30,
                "application_name": "leasehold",
                # A transaction-mode pooler hands each transaction to another backend: nothing prepared survives.
                "prepare_threshold": None if self._pooler else 5,
            },
            connection_class=QuickConnection,
            configure=_configure,
        )
        # A pool that nobody closes keeps the interpreter from ending: its threads are waited for one by one.
        weakref.finalize(self, _close_own, pool, os.getpid())
        return pool

    def _options(self) -> dict[str, str]:
        """No statement of ours takes long; one that does is stuck. The server judges by an estimate whether to compile
        one: with many rows waiting that is far off, and a claim of 5 ms was compiled for 80. A pooler takes no start-up
        options: set them on the database's role there."""
        return {} if self._pooler else {"options": f"-c statement_timeout={STATEMENT_SECONDS}s -c jit=off"}

    def _survive_fork(self) -> None:
        """A connection must not be used on both sides of a fork: the child opens its own pool and leaves the
        inherited one alone."""
        if self._pid == os.getpid():
            return
        with after_fork:
            if self._pid != os.getpid():
                _inherited.append(self._pool)
                self._pool = self._open_pool()
                self._pid = os.getpid()  # last: it says that the pool is this process's


_inherited: list[object] = []


def _close_own(pool: ConnectionPool[QuickConnection], pid: int) -> None:
    """Not in a forked child: the connections are the parent's."""
    if pid == os.getpid():
        pool.close()


def _configure(connection: QuickConnection) -> None:
    """UUIDs and JSON stay text: nobody looks inside them on the way, and parsing them shows in the profile."""
    for type_name in ("uuid", "json"):
        connection.adapters.register_loader(type_name, TextLoader)


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


def _bad_url() -> InvalidInput:
    """Without the driver's words: they quote the part that holds the password."""
    return InvalidInput(
        "url", "cannot be read", "use postgresql://user:password@host:port/database?option=value"
    )


def _label(url: str, schema: str) -> str:
    """The URL without its password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise _bad_url() from None
    host = parts.get("host", "localhost")
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{host}{port}/{parts.get('dbname', '')} (schema {schema})"
