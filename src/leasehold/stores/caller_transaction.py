"""The user's own transaction: runs statements over the user's connection, of any driver or framework."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, TypeVar

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.stores.database.database import Row
from leasehold.threads import to_thread, until_done

# -- a session over the caller's transaction ---------------------------------------------------------------------------

Answer = tuple[Sequence[str], Sequence[tuple[Any, ...]]]
"""The names of the columns, and the rows."""
Execute = Callable[[str, Any], Answer]
Bind = Callable[[str, str, Mapping[str, Any]], tuple[str, Any]]
"""Turns a statement's name, its text and its parameters into the arguments of `Execute`."""
Style = Literal["named", "dollars"]
"""How the driver wants parameters: by name (`%(name)s` or `:name`, as the database has it), or as `$1`, `$2` …"""


@frozen
class Borrowed:
    """A connection of the user's. Nothing here commits, rolls back or closes it."""

    database: Literal["postgres", "sqlite"]
    style: Style
    execute: Callable[[str, Any], Any]
    """Returns an Answer; with an async driver, an awaitable of one."""
    in_transaction: Callable[[], bool]
    """Whether the next write waits for the user's commit. Called after the first statement: some drivers open a
    transaction only then."""
    is_async: bool = False


class BorrowedSession:
    in_doubt = False

    def __init__(
        self,
        execute: Execute,
        bind: Bind,
        statements: Mapping[str, str],
        read: Callable[[str, Any], Any] = lambda _, value: value,
    ) -> None:
        self._execute = execute
        self._bind = bind
        self._statements = statements
        self._read = read
        """Turns a column's name and value into the value in `rows`."""

    def rows(self, statement: str, /, **parameters: Any) -> list[Row]:
        return self._rows(statement, self._statements[statement], parameters)

    def tuples(self, statement: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        _, rows = self._answer(statement, self._statements[statement], parameters)
        return [tuple(map(_plain, row)) for row in rows]

    def run(self, statement: str, /, **parameters: Any) -> None:
        self._answer(statement, self._statements[statement], parameters)

    def listing(self, names: Sequence[str], /, **parameters: Any) -> list[Row]:
        return self._rows(names[0], " ".join(self._statements[name] for name in names), parameters)

    def _rows(self, statement: str, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        names, rows = self._answer(statement, text, parameters)
        return [{n: self._read(n, _plain(v)) for n, v in zip(names, row, strict=True)} for row in rows]

    def _answer(self, statement: str, text: str, parameters: Mapping[str, Any]) -> Answer:
        return self._execute(*self._bind(statement, text, parameters))


def _plain(value: Any) -> Any:
    """The value as our own connections return it: the user's may read UUIDs, JSON and text in its own way."""
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, dict | list):
        return json.dumps(value)
    if isinstance(value, bytes):
        return value.decode()
    return value


# -- over an async connection ------------------------------------------------------------------------------------------

T = TypeVar("T")


async def in_thread(work: Callable[[Execute], T], execute: Callable[[str, Any], Awaitable[Answer]]) -> T:
    """Run `work` in a thread, with an `Execute` for this loop's connection. A cancelled caller gets control back only
    when the thread has ended: a write after the caller's rollback would be a transaction by itself."""
    loop = asyncio.get_running_loop()
    under_way: Future[Answer] | None = None
    cancelled = False

    async def answer(sql: str, parameters: Any) -> Answer:
        if cancelled:
            raise asyncio.CancelledError
        return await execute(sql, parameters)

    def hop(sql: str, parameters: Any) -> Answer:
        nonlocal under_way
        under_way = asyncio.run_coroutine_threadsafe(answer(sql, parameters), loop)
        return under_way.result()

    def cancel() -> None:
        nonlocal cancelled
        cancelled = True
        if under_way is not None:
            under_way.cancel()

    call = asyncio.ensure_future(to_thread(work, hop))
    stop = await until_done(call, cancel)
    if stop is not None:
        if not call.cancelled():
            call.exception()  # retrieve it, or asyncio logs "exception was never retrieved"
        raise stop
    return call.result()


# -- parameters as drivers want them -----------------------------------------------------------------------------------

_NAMED = re.compile(r"%\(([\w.]+)\)s")


def as_dollars(text: str, bound: Mapping[str, str | None]) -> tuple[str, list[str | None]]:
    """Turns `%(name)s` into `$1`. Every value is sent as text and cast by the server: asyncpg would require each
    value's own type."""
    sql, order = _in_dollars(text)
    return sql, [bound[name] for name in order]


@lru_cache(maxsize=512)
def _in_dollars(text: str) -> tuple[str, tuple[str, ...]]:
    order: dict[str, int] = {}

    def placeholder(match: re.Match[str]) -> str:
        return f"${order.setdefault(match[1], len(order) + 1)}::text"

    return _NAMED.sub(placeholder, text).replace("%%", "%"), tuple(order)


# -- drivers -----------------------------------------------------------------------------------------------------------
# A driver is recognised by the module of its class, so that nothing is imported that the user has not imported.


def over_psycopg(connection: Any) -> Borrowed:
    _refuse_pipeline(connection)
    # Not `connection.cursor()`, which would use the user's own cursor and row factories.
    psycopg = sys.modules["psycopg"]

    def execute(sql: str, parameters: Any) -> Answer:
        with psycopg.Cursor(connection, row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute(sql, parameters)
            return _names(cursor), cursor.fetchall() if cursor.description else []

    return Borrowed("postgres", "named", execute, lambda: _is_open(connection))


def over_psycopg_async(connection: Any) -> Borrowed:
    _refuse_pipeline(connection)
    psycopg = sys.modules["psycopg"]

    async def execute(sql: str, parameters: Any) -> Answer:
        async with psycopg.AsyncCursor(connection, row_factory=psycopg.rows.tuple_row) as cursor:
            await cursor.execute(sql, parameters)
            return _names(cursor), await cursor.fetchall() if cursor.description else []

    return Borrowed("postgres", "named", execute, lambda: _is_open(connection), is_async=True)


def _is_open(connection: Any) -> bool:
    return bool(connection.info.transaction_status.name == "INTRANS")


def _refuse_pipeline(connection: Any) -> None:
    """The rows of a statement would come only when the pipeline is synchronized."""
    if not connection.closed and connection.pgconn.pipeline_status:
        raise InvalidInput(
            "tx", "the connection is in pipeline mode", "enqueue before or after the block of `pipeline()`"
        )


def over_asyncpg(connection: Any) -> Borrowed:
    async def execute(sql: str, parameters: Any) -> Answer:
        records = await connection.fetch(sql, *parameters)
        return list(records[0].keys()) if records else [], [tuple(record.values()) for record in records]

    return Borrowed("postgres", "dollars", execute, connection.is_in_transaction, is_async=True)


def over_sqlite3(connection: Any) -> Borrowed:
    def execute(sql: str, parameters: Any) -> Answer:
        cursor = connection.cursor()
        cursor.row_factory = None
        try:
            cursor.execute(sql, parameters)
            return _names(cursor), cursor.fetchall()
        finally:
            cursor.close()

    return Borrowed("sqlite", "named", execute, lambda: _will_be_open(connection))


def over_aiosqlite(connection: Any) -> Borrowed:
    async def execute(sql: str, parameters: Any) -> Answer:
        cursor = await connection.cursor()
        cursor.row_factory = None
        try:
            await cursor.execute(sql, parameters)
            return _names(cursor), list(await cursor.fetchall())
        finally:
            await cursor.close()

    return Borrowed("sqlite", "named", execute, lambda: _will_be_open(connection), is_async=True)


def _will_be_open(connection: Any) -> bool:
    """sqlite3 begins a transaction by itself before the first write, unless it is configured not to."""
    autocommit = getattr(connection, "autocommit", None)  # since Python 3.12
    if connection.in_transaction or autocommit is False:
        return True
    return autocommit is not True and connection.isolation_level is not None


def _names(cursor: Any) -> list[str]:
    return [column[0] for column in cursor.description or ()]


def _sqlite3_is_closed(connection: Any) -> bool:
    try:
        connection.in_transaction, connection.total_changes  # noqa: B018 — raises for one that is closed
    except (ValueError, sys.modules["sqlite3"].ProgrammingError):
        return True
    return False


_DRIVERS: dict[str, Callable[[Any], Borrowed]] = {
    "psycopg.Connection": over_psycopg,
    "psycopg.AsyncConnection": over_psycopg_async,
    "asyncpg.connection.Connection": over_asyncpg,
    "asyncpg.pool.PoolConnectionProxy": over_asyncpg,
    "sqlite3.Connection": over_sqlite3,
    "aiosqlite.core.Connection": over_aiosqlite,
}
_IS_CLOSED: dict[Callable[[Any], Borrowed], Callable[[Any], Any]] = {
    over_psycopg: lambda connection: connection.closed,
    over_psycopg_async: lambda connection: connection.closed,
    over_asyncpg: lambda connection: connection.is_closed(),
    over_sqlite3: _sqlite3_is_closed,
    over_aiosqlite: _sqlite3_is_closed,
}


def over_driver(connection: Any) -> Borrowed:
    """For a driver's connection that a framework wraps. It may be closed: the framework must see the driver's own
    error, or its pool would keep the connection for ever."""
    return _driver_of(connection)(connection)


def over_open_driver(connection: Any) -> Borrowed:
    """For a driver's connection that a user gives, or that we have lent."""
    over = _driver_of(connection)
    if _IS_CLOSED[over](connection):
        raise InvalidInput(
            "tx", f"this {class_of(connection)} is closed", "enqueue before the connection is closed"
        )
    return over(connection)


def _driver_of(connection: Any) -> Callable[[Any], Borrowed]:
    for name in names_of(connection):
        if name in _DRIVERS:
            return _DRIVERS[name]
    raise unknown(connection)


def names_of(given: Any) -> list[str]:
    """The full names of the object's class and of its base classes."""
    return [f"{one.__module__}.{one.__qualname__}" for one in type(given).__mro__]


def class_of(given: Any) -> str:
    return f"{type(given).__module__}.{type(given).__qualname__}"


def unknown(given: Any) -> InvalidInput:
    return InvalidInput(
        "tx",
        f"a {class_of(given)} is no connection that Leasehold knows",
        "give the connection itself: of psycopg, asyncpg, sqlite3 or aiosqlite, a Connection or Session of SQLAlchemy"
        " over one of these (or their async twins), Django's connection, or what ctx.complete and step(tx=True) lend",
    )


# -- frameworks --------------------------------------------------------------------------------------------------------


# -- SQLAlchemy ------------------------------------------------------------------------------------------------------
def over_connection(connection: Any) -> Borrowed:
    """Runs statements through `exec_driver_sql`: SQLAlchemy begins the transaction with its own first statement, and a
    statement that bypassed it before that would be committed by itself."""
    _refuse_closed_sqlalchemy(connection)
    inner = over_driver(connection.connection.driver_connection)
    return replace(inner, execute=lambda *call: _execute(connection, *call), is_async=False)


def over_session(session: Any) -> Borrowed:
    return over_connection(session.connection())


async def over_async_connection(connection: Any) -> Borrowed:
    _refuse_closed_sqlalchemy(connection)
    inner = over_driver((await connection.get_raw_connection()).driver_connection)

    async def execute(*call: Any) -> Answer:
        answer: Answer = await connection.run_sync(_execute, *call)
        return answer

    return replace(inner, execute=execute, is_async=True)


async def over_async_session(session: Any) -> Borrowed:
    return await over_async_connection(await session.connection())


def _execute(connection: Any, sql: str, parameters: Any) -> Answer:
    result = connection.exec_driver_sql(sql, parameters)
    return (list(result.keys()), [tuple(row) for row in result]) if result.returns_rows else ([], [])


def _refuse_closed_sqlalchemy(connection: Any) -> None:
    if connection.closed:
        raise InvalidInput(
            "tx", "this SQLAlchemy connection is closed", "enqueue before the connection is closed"
        )


# -- Django ----------------------------------------------------------------------------------------------------------
def over_django(connection: Any) -> Borrowed:
    """Uses the driver's connection: Django's own cursors would interpret our statements in their own way."""
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    return over_driver(connection.connection)


# -- what ctx.complete lends -----------------------------------------------------------------------------------------
def over_lent(transaction: Any) -> Borrowed:
    return over_open_driver(transaction.connection)


async def over_lent_async(transaction: Any) -> Borrowed:
    """Our statements run in a thread of the worker, as the transaction's own do."""
    inner: Borrowed = await transaction.run(over_open_driver)

    async def execute(sql: str, parameters: Any) -> Answer:
        answer: Answer = await transaction.run(lambda _: inner.execute(sql, parameters))
        return answer

    return replace(inner, execute=execute, is_async=True)


FRAMEWORKS: dict[str, Callable[[Any], Borrowed]] = {
    "sqlalchemy.engine.base.Connection": over_connection,
    "sqlalchemy.orm.session.Session": over_session,
    "sqlalchemy.orm.scoping.scoped_session": over_session,
    "django.db.backends.base.base.BaseDatabaseWrapper": over_django,
    "django.utils.connection.ConnectionProxy": over_django,
    "leasehold.run.complete.SyncTransaction": over_lent,
}
ASYNC_FRAMEWORKS: dict[str, Callable[[Any], Awaitable[Borrowed]]] = {
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": over_async_connection,
    "sqlalchemy.ext.asyncio.session.AsyncSession": over_async_session,
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": over_async_session,
    "leasehold.run.complete.Transaction": over_lent_async,
}

# -- from what a user gives as `tx` to a session -----------------------------------------------------------------------

_PLAIN = dict.fromkeys(_DRIVERS, over_open_driver) | FRAMEWORKS


def borrow(tx: Any) -> Borrowed:
    """For a caller that cannot await: connections of async drivers are refused."""
    for name in names_of(tx):
        if name in ASYNC_FRAMEWORKS:
            raise _needs_await(tx)
        if name in _PLAIN:
            borrowed = _PLAIN[name](tx)
            if borrowed.is_async:
                raise _needs_await(tx)
            return borrowed
    raise unknown(tx)


async def aborrow(tx: Any) -> Borrowed:
    """Takes connections of sync and async drivers."""
    for name in names_of(tx):
        if name in ASYNC_FRAMEWORKS:
            return await ASYNC_FRAMEWORKS[name](tx)
        if name in _PLAIN:
            return _PLAIN[name](tx)
    raise unknown(tx)


def _needs_await(tx: Any) -> InvalidInput:
    return InvalidInput(
        "tx",
        f"a {class_of(tx)} has to be awaited, and enqueue does not",
        "use aenqueue: await task.using(tx=connection).aenqueue(…)",
    )
