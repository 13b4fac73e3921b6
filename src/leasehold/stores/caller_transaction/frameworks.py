"""What stands above a driver's connection: SQLAlchemy, Django, and the transactions that we lend to handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from leasehold.domain.errors import InvalidInput
from leasehold.stores.caller_transaction.borrowed import Answer, Borrowed
from leasehold.stores.caller_transaction.drivers import over_driver


# -- SQLAlchemy ------------------------------------------------------------------------------------------------------
def over_connection(connection: Any) -> Borrowed:
    """Through `exec_driver_sql`, never past it: SQLAlchemy begins the transaction with its own first statement, and
    what went past it before that would be committed by itself."""
    _refuse_closed(connection)
    inner = over_driver(connection.connection.driver_connection)
    return replace(inner, execute=lambda *call: _execute(connection, *call), is_async=False)


def over_session(session: Any) -> Borrowed:
    return over_connection(session.connection())


async def over_async_connection(connection: Any) -> Borrowed:
    _refuse_closed(connection)
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


def _refuse_closed(connection: Any) -> None:
    if connection.closed:
        raise InvalidInput(
            "tx", "this SQLAlchemy connection is closed", "enqueue before the connection is closed"
        )


# -- Django ----------------------------------------------------------------------------------------------------------
def over_django(connection: Any) -> Borrowed:
    """Over the driver's connection: Django's own cursors would read our statements in their way."""
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    return over_driver(connection.connection)


# -- what ctx.complete lends -----------------------------------------------------------------------------------------
def over_lent(transaction: Any) -> Borrowed:
    return over_driver(transaction.connection)


async def over_lent_async(transaction: Any) -> Borrowed:
    """Its statements run in a thread of the worker, as its own do."""
    inner: Borrowed = await transaction.run(over_driver)

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
