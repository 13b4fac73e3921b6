"""The connections of drivers, each as something that executes. A driver is known by the module of its class: none is
imported for it that the user has not imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from leasehold.domain.errors import InvalidInput
from leasehold.stores.caller_transaction.borrowed import Answer, Borrowed


def over_psycopg(connection: Any) -> Borrowed:
    _refuse_closed(connection, connection.closed)
    # Not `connection.cursor()`: the user's own cursor and row factories stay out of it.
    psycopg = sys.modules["psycopg"]

    def execute(sql: str, parameters: Any) -> Answer:
        with psycopg.Cursor(connection, row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute(sql, parameters)
            return _names(cursor), cursor.fetchall() if cursor.description else []

    return Borrowed("postgres", "named", execute, lambda: _is_open(connection))


def over_psycopg_async(connection: Any) -> Borrowed:
    _refuse_closed(connection, connection.closed)
    psycopg = sys.modules["psycopg"]

    async def execute(sql: str, parameters: Any) -> Answer:
        async with psycopg.AsyncCursor(connection, row_factory=psycopg.rows.tuple_row) as cursor:
            await cursor.execute(sql, parameters)
            return _names(cursor), await cursor.fetchall() if cursor.description else []

    return Borrowed("postgres", "named", execute, lambda: _is_open(connection), is_async=True)


def _is_open(connection: Any) -> bool:
    return bool(connection.info.transaction_status.name == "INTRANS")


def over_asyncpg(connection: Any) -> Borrowed:
    _refuse_closed(connection, connection.is_closed())

    async def execute(sql: str, parameters: Any) -> Answer:
        records = await connection.fetch(sql, *parameters)
        return list(records[0].keys()) if records else [], [tuple(record.values()) for record in records]

    return Borrowed("postgres", "dollars", execute, connection.is_in_transaction, is_async=True)


def over_sqlite3(connection: Any) -> Borrowed:
    try:
        connection.in_transaction, connection.total_changes  # noqa: B018 — raises for one that is closed
    except sys.modules["sqlite3"].ProgrammingError:
        _refuse_closed(connection, True)

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
    try:
        connection.in_transaction  # noqa: B018 — raises for one that is closed
    except (ValueError, sys.modules["sqlite3"].ProgrammingError):
        _refuse_closed(connection, True)

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


def _refuse_closed(connection: Any, closed: Any) -> None:
    if closed:
        raise InvalidInput(
            "tx", f"this {class_of(connection)} is closed", "enqueue before the connection is closed"
        )


DRIVERS: dict[str, Callable[[Any], Borrowed]] = {
    "psycopg.Connection": over_psycopg,
    "psycopg.AsyncConnection": over_psycopg_async,
    "asyncpg.connection.Connection": over_asyncpg,
    "asyncpg.pool.PoolConnectionProxy": over_asyncpg,
    "sqlite3.Connection": over_sqlite3,
    "aiosqlite.core.Connection": over_aiosqlite,
}


def over_driver(connection: Any) -> Borrowed:
    """Of the connection that a framework has underneath, or that we have lent."""
    for name in names_of(connection):
        if name in DRIVERS:
            return DRIVERS[name](connection)
    raise unknown(connection)


def names_of(given: Any) -> list[str]:
    """The names of its class and of the base classes."""
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
