"""PostgreSQL: one schema over autocommit connections, schema-qualified statements, no session state; wake-ups by
NOTIFY.

Nothing here needs a session to outlive a transaction (no SET, no session advisory lock), so a transaction-mode pooler
may stand in between.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, tuple_row

from leasehold.domain.errors import (
    DatabaseDamaged,
    DatabaseUnreachable,
    InvalidInput,
    PermissionMissing,
    ReadTooSlow,
    SchemaIncomplete,
    StoreError,
)
from leasehold.stores.database.database import (
    Clock,
    Columns,
    Overdue,
    Records,
    Row,
    SystemClock,
    refuse_inside,
)
from leasehold.stores.database.read_timeout import longest_read
from leasehold.stores.database.statements import PARAMETER, checked_schema, read_statements
from leasehold.stores.database.wakeups import ANYTHING, Hint, listen_here
from leasehold.stores.postgres.connections import (
    ANSWER_SECONDS,
    STATEMENT_SECONDS,
    BoundedConnection,
    Connections,
    NoAnswer,
    QuickConnection,
    label_of,
    network_options,
)
from leasehold.stores.postgres.pool import PoolClosed
from leasehold.stores.verbs.audit import unrecorded, waiting_for

# -- statements and values as PostgreSQL reads them --------------------------------------------------------------------


def in_dialect(text: str, schema: str, own_clock: bool) -> str:
    def placeholder(match: re.Match[str]) -> str:
        name, column = match.groups(default="")
        if name == "now":
            return "statement_timestamp()" if own_clock else "%(now)s::timestamptz"
        return f"%({name}{column})s"

    return qualified(PARAMETER.sub(placeholder, text.replace("%", "%%")), schema)


def qualified(text: str, schema: str) -> str:
    text = re.sub(r"SCHEMA IF (NOT )?EXISTS leasehold\b", rf'SCHEMA IF \1EXISTS "{schema}"', text)
    return re.sub(r"\bleasehold\.", f'"{schema}".', text)


def as_array(items: Sequence[Any]) -> str:
    """An array literal. The driver's own conversion visits every item in Python, at several times the cost."""
    kinds = set(map(type, items))
    texts: Iterable[str]
    if kinds <= _BARE:
        texts = map(str, items)
    elif kinds == {type(None)}:
        texts = itertools.repeat("NULL", len(items))
    else:
        texts = map(_item, items)
    return "{" + ",".join(texts) + "}"


_BARE = frozenset({int, float})


def _item(item: Any) -> str:
    if item is None:
        return "NULL"
    if isinstance(item, str):
        if "\\" in item or '"' in item:
            item = item.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{item}"'
    return str(item)


def jsonable(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"cannot send {type(value).__name__} to the database")


# -- database ----------------------------------------------------------------------------------------------------------

T = TypeVar("T")

ANSWER_MARGIN = ANSWER_SECONDS - STATEMENT_SECONDS
"""Seconds by which the server's limit comes before our own."""
TRIES = 12
_AGAIN = frozenset({"40001", "40P01", "55P03"})
_MIRROR = re.compile(r"\bmirror_\w*_[0-9a-f]{8}\b")
"""A mirror's function, in the context of an error."""
_MISSING = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
)
STATEMENTS = read_statements("leasehold.stores.postgres")


class Statements(dict[str, str]):
    """The statements for one schema, each written at its first use: there may be many schemas."""

    def __init__(self, schema: str, own_clock: bool) -> None:
        super().__init__()
        self.schema = schema
        self._own_clock = own_clock

    def __missing__(self, name: str) -> str:
        text = self[name] = in_dialect(STATEMENTS[name], self.schema, self._own_clock)
        return text


class PostgresSession:
    def __init__(
        self, connection: QuickConnection, statements: Statements, clock: Clock, in_doubt: bool = False
    ) -> None:
        self.connection = connection
        """For SQL that is not a named statement: migrations, and queries about the server."""
        self._statements = statements
        self._clock = clock
        self.in_doubt = in_doubt

    def rows(self, statement: str, /, **parameters: Any) -> list[Row]:
        return self._rows(self._statements[statement], parameters)

    def tuples(self, statement: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        with self.connection.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(self._statements[statement], bound(parameters, self._clock)).fetchall()

    def run(self, statement: str, /, **parameters: Any) -> None:
        self.connection.execute(self._statements[statement], bound(parameters, self._clock))

    def quick(self, statement: str, /, **parameters: Any) -> int:
        """Run a statement without a cursor, with plain values; returns the number of its rows."""
        now = self._clock.now()
        if now is not None:
            parameters["now"] = now
        return self.connection.run_quickly(self._statements[statement], parameters)

    def copy(self, statement: str, texts: Iterable[str]) -> None:
        """Send rows to a COPY; each text holds whole rows."""
        with (
            self.connection.cursor() as cursor,
            cursor.copy(self._statements[statement].rstrip(" ;\n")) as rows,
        ):
            for text in texts:
                rows.write(text)

    def listing(self, names: Sequence[str], /, **parameters: Any) -> list[Row]:
        return self._rows(" ".join(self._statements[name] for name in names), parameters)

    def run_text(self, text: LiteralString, values: Sequence[Any] = ()) -> None:
        self.connection.execute(text, values)

    def _rows(self, text: str, parameters: dict[str, Any]) -> list[Row]:
        with self.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(text, bound(parameters, self._clock)).fetchall()


def bound(parameters: Mapping[str, Any], clock: Clock) -> dict[str, Any]:
    """The parameters by their names in the statements, as values that the driver can send."""
    values: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, Records):
            values[name] = json.dumps(value.items, default=jsonable)
        elif isinstance(value, Columns):
            values |= {f"{name}.{column}": as_array(items) for column, items in value.columns.items()}
        else:
            values[name] = value
    now = clock.now()
    if now is not None:
        values["now"] = now
    return values


class PostgresDatabase:
    def __init__(
        self,
        url: str,
        schema: str = "leasehold",
        clock: Clock | None = None,
        *,
        pool_size: int = 8,
        pooler: bool = False,
        beside: PostgresDatabase | None = None,
    ) -> None:
        """`beside`: the database of the app, whose connections this tenant's schema shares."""
        self.schema = checked_schema(schema) if beside is None else schema
        self.clock: Clock = clock or SystemClock()
        self.url = url
        self.label = label_of(url, self.schema)
        self.family: str = self.label if beside is None else beside.family
        # Without an injected clock, `:now` is the statement's own time: stable, so that an index can use it.
        self.statements = Statements(self.schema, own_clock=self.clock.now() is None)
        self._identity: str | None = None
        self._shares = beside is not None
        self.connections: Connections = (
            Connections(url, self.label, size=pool_size, pooler=pooler)
            if beside is None
            else beside.connections
        )

    def identity(self) -> str:
        """Of the schema, by the cluster's identifier, which a standby shares, and the oids of database and schema. A
        role that may not read the identifier takes the server's address."""
        if self._identity is None:
            is_allowed, database, schema, address = self.read(
                lambda session: session.tuples("identify_schema")
            )[0]
            if is_allowed:
                address = self.read(lambda session: session.tuples("identify_cluster"))[0][0]
            parts = f"{address}/{database}/{schema}"
            self._identity = hashlib.sha256(parts.encode()).hexdigest()[:16]
        return self._identity

    def transact(self, work: Callable[[PostgresSession], T], *, idempotent: bool = False) -> T:
        refuse_inside(self.family)
        if (waiting := waiting_for(self.label)) is not None:
            return waiting.go_with(self.transact, work)
        committing = False

        def in_transaction(connection: QuickConnection) -> T:
            nonlocal committing
            session = PostgresSession(connection, self.statements, self.clock, in_doubt=committing)
            committing = False
            with connection.transaction():
                answer = work(session)
                committing = True
                return answer

        return self._repeat(in_transaction, lambda: idempotent or not committing)

    def single(self, work: Callable[[PostgresSession], T], *, idempotent: bool = False) -> T:
        refuse_inside(self.family)
        if (waiting := waiting_for(self.label)) is not None:
            return waiting.go_with(self.transact, work)
        in_doubt = False

        def by_itself(connection: QuickConnection) -> T:
            nonlocal in_doubt
            session = PostgresSession(connection, self.statements, self.clock, in_doubt)
            in_doubt = True
            return work(session)

        return self._repeat(by_itself, lambda: idempotent)

    def read(self, work: Callable[[PostgresSession], T]) -> T:
        seconds = longest_read()
        if seconds is not None:
            return self._read_within(work, seconds)
        return self._repeat(
            lambda connection: work(PostgresSession(connection, self.statements, self.clock)), lambda: True
        )

    def _read_within(self, work: Callable[[PostgresSession], T], seconds: float) -> T:
        """Limits the time of each statement. The limit is local to a transaction, so that it works behind a pooler. The
        pipeline sends BEGIN and the limit together with the first statement."""

        def timed(connection: QuickConnection) -> T:
            try:
                with connection.answering_within(seconds + ANSWER_MARGIN), connection.pipeline():
                    connection.execute("BEGIN", prepare=False)
                    connection.execute(
                        "SELECT set_config('statement_timeout', %s, true)",
                        [f"{max(1, seconds * 1000):.0f}"],
                        prepare=False,
                    )
                    answer = work(PostgresSession(connection, self.statements, self.clock))
                    connection.execute("COMMIT", prepare=False)  # after an error the pool rolls back
                    return answer
            except psycopg.errors.QueryCanceled as error:
                raise ReadTooSlow(self.label, seconds) from error

        return self._repeat(timed, lambda: True)

    @contextmanager
    def lend(self, seconds: float) -> Iterator[tuple[PostgresSession, QuickConnection]]:
        refuse_inside(self.family)
        began = None
        try:
            with (
                self.connections.lendable,
                self.connections.pool.connection() as connection,
                connection.in_use(),
                connection.answering_within(seconds + ANSWER_MARGIN),
                connection.transaction(),
            ):
                began = time.monotonic()
                # The server ends a block that hangs, in a statement or between two. The limits are local to the
                # transaction, so that they work behind a pooler.
                connection.execute(
                    "SELECT set_config('idle_in_transaction_session_timeout', %s, true),"
                    " set_config('statement_timeout', %s, true)",
                    [f"{seconds * 1000:.0f}"] * 2,
                )
                yield PostgresSession(connection, self.statements, self.clock), connection
                if connection.info.transaction_status is not TransactionStatus.INTRANS:
                    raise InvalidInput(
                        "transaction",
                        "was ended inside its block",
                        "leave COMMIT and ROLLBACK to the block's end",
                    )
                if time.monotonic() - began > seconds:
                    raise Overdue
        except PoolClosed as error:
            raise DatabaseUnreachable(self.label, "this store was closed") from error
        except psycopg.Error as error:
            if isinstance(error, psycopg.errors.ReadOnlySqlTransaction | NoAnswer):
                self.connections.pool.discard()
            late = began is not None and time.monotonic() - began >= seconds
            if late and not isinstance(error, NoAnswer):
                raise Overdue from error
            if _is_trouble(error) and error.sqlstate not in _AGAIN:
                raise DatabaseUnreachable(self.label, str(error).strip()) from error
            raise

    def refuses_data(self, error: Exception) -> bool:
        if isinstance(error, psycopg.DataError | psycopg.errors.CheckViolation | UnicodeEncodeError):
            return True
        return isinstance(error, psycopg.Error) and _exceeds_a_limit(error)

    def refuses_row(self, error: Exception) -> bool:
        cause = error.__cause__ if isinstance(error, StoreError) else error
        if not isinstance(cause, psycopg.Error):
            return cause is error and self.refuses_data(error)
        refused = isinstance(
            cause, psycopg.IntegrityError | psycopg.errors.RaiseException | psycopg.errors.DataCorrupted
        )
        # Inside the function of a mirror it is the user's table that is missing, or that our role may not write.
        return refused or self.refuses_data(cause) or _MIRROR.search(cause.diag.context or "") is not None

    def notify(self, hint: Hint) -> None:
        self._notify(self.channel, PAYLOADS[hint])

    def notify_tenants(self, session: PostgresSession, hint: Hint) -> None:
        """Notifies with the commit of `session`."""
        for one in (Hint.WORK, Hint.STOP):
            if one in hint:
                session.run_text("SELECT pg_notify(%s, %s)", [self.tenant_channel, PAYLOADS[one]])

    def notify_watchers(self) -> None:
        self._notify(self.group_channel)

    def _notify(self, channel: str, payload: str = "") -> None:
        """Notifies outside of any job's transaction, so that the commit does not wait for the disk."""
        with unrecorded():
            self.single(
                lambda session: session.run_text("SELECT pg_notify(%s, %s)", [channel, payload]),
                idempotent=True,
            )

    @property
    def channel(self) -> str:
        return f"leasehold_{self.schema}"

    @property
    def tenant_channel(self) -> str:
        return f"leasehold_{self.schema}.t"

    @property
    def group_channel(self) -> str:
        """The dot keeps this channel apart from every schema's own channel."""
        return f"leasehold_{self.schema}.g"

    def close(self) -> None:
        if not self._shares:
            self.connections.close()

    def schema_version(self) -> int:
        """The schema's version; 0 when there is no schema yet."""
        try:
            return int(self.read(lambda session: session.tuples("schema_version"))[0][0])
        except SchemaIncomplete:
            return 0

    def prepare_schema(self, session: PostgresSession) -> int:
        """Creates a missing schema and returns its version, under a lock until the end of the transaction, so that
        migrations of several processes follow each other. A transaction-level lock works behind a pooler. A migration
        of a large table may take long: the server sets it no limit."""
        session.run_text("SELECT set_config('statement_timeout', '0', true)")
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

    def has_schema(self) -> bool:
        query = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
        return bool(self.read(lambda session: session.connection.execute(query, [self.schema]).fetchone()))

    def drop_schema(self, session: PostgresSession) -> None:
        self.script("DROP SCHEMA IF EXISTS leasehold CASCADE;", session)

    def script(self, text: str, session: PostgresSession) -> None:
        """Run a migration inside the transaction of `session`."""
        self.run_as_it_is(qualified(text, self.schema), session)

    def run_as_it_is(self, text: str, session: PostgresSession) -> None:
        """Run a script whose names are already qualified."""
        session.connection.execute(text.encode())

    def _repeat(self, work: Callable[[QuickConnection], T], harmless: Callable[[], bool]) -> T:
        """Repeats work when the database requests it: the transaction has left nothing behind. Repeats it once if the
        connection was read-only, or was lost and `harmless` says that a repetition does no harm."""
        tries, anew = 0, False
        while True:
            lost = False
            try:
                with self.connections.pool.connection() as connection:
                    connection.unproven = connection.unproven and harmless()
                    try:
                        with connection.in_use():
                            return work(connection)
                    except psycopg.Error:
                        lost = connection.closed
                        raise
            except PoolClosed as error:
                raise DatabaseUnreachable(self.label, "this store was closed") from error
            except psycopg.Error as error:
                read_only = isinstance(error, psycopg.errors.ReadOnlySqlTransaction)
                if read_only or lost:
                    # The connection, like the others, was opened before a failover, a restart or a change of settings.
                    self.connections.pool.discard()
                if not anew and (read_only or (lost and harmless())):
                    anew = True
                    continue
                tries += 1
                if tries == TRIES or not _worth_repeating(error):
                    raise self._translated(error) from error
                time.sleep(random.uniform(0.0, 0.01) * tries)

    def _translated(self, error: psycopg.Error) -> Exception:
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return PermissionMissing(self.label, self.connections.role, _first_line(error))
        if isinstance(error, _MISSING):
            return SchemaIncomplete(self.label, _first_line(error))
        if isinstance(error, psycopg.errors.DataCorrupted | psycopg.errors.IndexCorrupted):
            return DatabaseDamaged(self.label, _first_line(error))
        # The server raises XX000, for instance, when a schema is dropped under a statement.
        if _is_trouble(error) or isinstance(error, psycopg.errors.InternalError_):
            return DatabaseUnreachable(self.label, str(error).strip())
        return error


def _first_line(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error)).strip()


def _worth_repeating(error: psycopg.Error) -> bool:
    if isinstance(error, psycopg.errors.UniqueViolation):
        # A lost race for a lane, or for a unique key between the look and the write: the next try sees the winner.
        return error.diag.constraint_name in ("lane_hold_pkey", "unique_key_pkey")
    return error.sqlstate in _AGAIN


def _is_trouble(error: psycopg.Error) -> bool:
    """Whether the connection, the server or its disk failed, and not the statement or its values."""
    kinds = psycopg.OperationalError | psycopg.InterfaceError | psycopg.errors.ReadOnlySqlTransaction
    # If a session ends in the middle of a reply, psycopg raises an InternalError of its own, without a code.
    cut_off = isinstance(error, psycopg.InternalError) and error.sqlstate is None
    return cut_off or (isinstance(error, kinds) and not _exceeds_a_limit(error))


def _exceeds_a_limit(error: psycopg.Error) -> bool:
    """Whether it is of class 54, which psycopg files under OperationalError: a value too large or nested too deep."""
    return (error.sqlstate or "").startswith("54")


# -- wake-ups ----------------------------------------------------------------------------------------------------------
# Without wake-ups, everything still happens within a poll interval.

logger = logging.getLogger("leasehold.wakeups")

PAYLOADS = {Hint.WORK: "", Hint.STOP: "stop", Hint.HOOKS: "hooks"}
_HINTS = {payload: hint for hint, payload in PAYLOADS.items()}
PROBE_SECONDS = 10.0
"""Seconds of silence after which the listener probes its connection: a half-open one delivers and raises nothing."""
PROBE_ANSWER_SECONDS = 10.0
"""Seconds to wait for the answer to a probe."""


class PostgresWakeups:
    def __init__(self, url: str, received: Mapping[str, str]) -> None:
        """`received`: each channel with the label under which this process passes on its own hints."""
        self._url = url
        self._channels = list(received)
        self._listener = listen_here(*received.values())
        self._closed = threading.Event()
        self._listening = False
        self._thread = threading.Thread(target=self._listen_for_ever, name="leasehold-listen", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> Hint:
        return self._listener.wait(seconds)

    def subscribe(self, on_hint: Callable[[Hint], None]) -> bool:
        self._listener.subscribe(on_hint)
        return True

    def expect_more(self) -> None:
        """Does nothing: a notification arrives at once anyway."""

    @property
    def listens(self) -> bool:
        return self._listening

    def close(self) -> None:
        self._closed.set()
        self._listener.close()

    def _listen_for_ever(self) -> None:
        pause = 0.1
        while not self._closed.is_set():
            try:
                self._listen()
                pause = 0.1
            except Exception as error:  # from callbacks too: if this thread ended, `listens` would be wrong
                self._listening = False
                logger.info("not listening for wake-ups (%s); polling instead", str(error).strip())
                self._closed.wait(pause)
                pause = min(pause * 2, 5.0)

    def _listen(self) -> None:
        options = network_options(self._url)
        with BoundedConnection.connect(
            self._url, autocommit=True, application_name="leasehold listener", **options
        ) as connection:
            connection.answer_within = PROBE_ANSWER_SECONDS
            for channel in self._channels:
                connection.execute(f'LISTEN "{channel}"')
            self._listening = True
            # One look finds changes that were missed before the LISTEN.
            self._listener.receive(ANYTHING)
            received_at = time.monotonic()
            while not self._closed.is_set():
                for received in connection.notifies(timeout=1.0, stop_after=1):
                    received_at = time.monotonic()
                    self._listener.receive(_HINTS.get(received.payload, Hint.WORK))
                if time.monotonic() - received_at > PROBE_SECONDS:
                    self._probe(connection)
                    received_at = time.monotonic()

    def _probe(self, connection: psycopg.Connection[tuple[str]]) -> None:
        channels = {row[0] for row in connection.execute("SELECT pg_listening_channels()").fetchall()}
        if not channels.issuperset(self._channels):
            raise psycopg.OperationalError(
                "the connection no longer listens; a transaction pooler may be in between"
            )
