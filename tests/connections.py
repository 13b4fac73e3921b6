"""Every kind of connection that a user may enqueue over, each with a transaction to begin and to end.

They are used in one way: `async with connect(kind, backend) as user: await user.begin(); …; await user.commit()`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from tests.backends import Backend

ON_POSTGRES = (
    "psycopg",
    "psycopg async",
    "asyncpg",
    "asyncpg pool",
    "sqlalchemy connection, psycopg",
    "sqlalchemy session, psycopg",
    "sqlalchemy async connection, psycopg",
    "sqlalchemy async connection, asyncpg",
    "sqlalchemy async session, psycopg",
    "sqlalchemy async session, asyncpg",
    "django",
)
ON_SQLITE = (
    "sqlite3",
    "sqlite3 immediate",
    "aiosqlite",
    "sqlalchemy connection, sqlite3",
    "sqlalchemy session, sqlite3",
    "sqlalchemy async connection, aiosqlite",
    "sqlalchemy async session, aiosqlite",
    "django",
)
KINDS = [("postgres", kind) for kind in ON_POSTGRES] + [("sqlite", kind) for kind in ON_SQLITE]
ORDERS = "create table if not exists orders (name text)"


class User:
    """Somebody with a connection. `tx` is what goes to `using(tx=…)`."""

    is_async = False

    def __init__(self, tx: Any) -> None:
        self.tx = tx

    async def begin(self) -> None:
        """Most begin by themselves."""

    async def execute(self, sql: str) -> None:
        self.tx.execute(sql)

    async def commit(self) -> None:
        self.tx.commit()

    async def rollback(self) -> None:
        self.tx.rollback()

    async def call(self, plain: Callable[..., Any], coroutine: Callable[..., Any], *args: Any) -> Any:
        """The twin that fits the connection."""
        return await coroutine(*args) if self.is_async else plain(*args)

    async def enqueue(self, task: Any, *args: Any, **settings: Any) -> Any:
        joined = task.using(tx=self.tx, **settings)
        return await self.call(joined.enqueue, joined.aenqueue, *args)

    async def enqueue_many(self, task: Any, calls: list[Any], **settings: Any) -> Any:
        joined = task.using(tx=self.tx, **settings)
        return await self.call(joined.enqueue_many, joined.aenqueue_many, calls)


class AsyncUser(User):
    is_async = True

    async def execute(self, sql: str) -> None:
        await self.tx.execute(sql)

    async def commit(self) -> None:
        await self.tx.commit()

    async def rollback(self) -> None:
        await self.tx.rollback()


class Immediate(User):
    async def begin(self) -> None:
        self.tx.execute("begin immediate")


class Asyncpg(AsyncUser):
    async def begin(self) -> None:
        self._transaction = self.tx.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()


class Alchemy(User):
    async def execute(self, sql: str) -> None:
        from sqlalchemy import text

        self.tx.execute(text(sql))


class AsyncAlchemy(AsyncUser):
    async def execute(self, sql: str) -> None:
        from sqlalchemy import text

        await self.tx.execute(text(sql))


class Django(User):
    """In a thread of its own, as Django wants it; in an `atomic` block."""

    def __init__(self, tx: Any, thread: ThreadPoolExecutor) -> None:
        super().__init__(tx)
        self._thread = thread

    async def inside(self, call: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)

    async def begin(self) -> None:
        from django.db import transaction

        self._block = transaction.atomic()
        await self.inside(self._block.__enter__)

    async def execute(self, sql: str) -> None:
        def run() -> None:
            with self.tx.cursor() as cursor:
                cursor.execute(sql)

        await self.inside(run)

    async def commit(self) -> None:
        await self.inside(self._block.__exit__, None, None, None)

    async def rollback(self) -> None:
        from django.db import transaction

        await self.inside(transaction.set_rollback, True)
        await self.commit()

    async def call(self, plain: Callable[..., Any], coroutine: Callable[..., Any], *args: Any) -> Any:
        return await self.inside(plain, *args)


@asynccontextmanager
async def connect(kind: str, backend: Backend) -> AsyncIterator[User]:
    backend.query(ORDERS)
    if kind.startswith("sqlalchemy"):
        connecting = _alchemy(kind, backend)
    elif kind == "django":
        connecting = _django(backend)
    else:
        connecting = _driver(kind, backend)
    async with connecting as user:
        yield user


@asynccontextmanager
async def _driver(kind: str, backend: Backend) -> AsyncIterator[User]:
    if kind == "psycopg":
        import psycopg

        with psycopg.connect(backend.url) as connection:
            yield User(connection)
    elif kind == "psycopg async":
        import psycopg

        async with await psycopg.AsyncConnection.connect(backend.url) as connection:
            yield AsyncUser(connection)
    elif kind == "asyncpg":
        import asyncpg

        connection = await asyncpg.connect(backend.url)
        try:
            yield Asyncpg(connection)
        finally:
            await connection.close()
    elif kind == "asyncpg pool":
        import asyncpg

        async with (
            asyncpg.create_pool(backend.url, min_size=1, max_size=1) as pool,
            pool.acquire() as connection,
        ):
            yield Asyncpg(connection)
    elif kind == "aiosqlite":
        import aiosqlite

        async with aiosqlite.connect(file_of(backend)) as connection:
            yield AsyncUser(connection)
    else:
        immediate = kind == "sqlite3 immediate"
        connection = sqlite3.connect(file_of(backend), isolation_level=None if immediate else "")
        try:
            yield (Immediate if immediate else User)(connection)
        finally:
            connection.close()


@asynccontextmanager
async def _alchemy(kind: str, backend: Backend) -> AsyncIterator[User]:
    from sqlalchemy import create_engine
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
    from sqlalchemy.orm import Session

    kind, driver = kind.split(", ")
    _, _, rest = backend.url.partition("://")
    url = {"sqlite3": f"sqlite://{rest}", "aiosqlite": f"sqlite+aiosqlite://{rest}"}.get(
        driver, f"postgresql+{driver}://{rest}"
    )
    if "async" in kind:
        engine = create_async_engine(url)
        try:
            async with AsyncSession(engine) if "session" in kind else engine.connect() as connection:
                yield AsyncAlchemy(connection)
        finally:
            await engine.dispose()
    else:
        plain = create_engine(url)
        try:
            with Session(plain) if "session" in kind else plain.connect() as connection:
                yield Alchemy(connection)
        finally:
            plain.dispose()


@asynccontextmanager
async def _django(backend: Backend) -> AsyncIterator[User]:
    import django
    from django.conf import settings
    from django.db import connection, connections

    if not settings.configured:
        settings.configure(DATABASES={"default": {}})
        django.setup()
    if backend.name == "sqlite":
        place: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": file_of(backend)}
    else:
        from psycopg.conninfo import conninfo_to_dict

        given = conninfo_to_dict(backend.url)
        names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port", "PASSWORD": "password"}
        place = {"ENGINE": "django.db.backends.postgresql"}
        place |= {name: str(given.get(key) or "") for name, key in names.items()}
    connections.databases.update(connections.configure_settings({"default": place}))
    with ThreadPoolExecutor(1) as thread:
        user = Django(connection, thread)
        try:
            yield user
        finally:
            await user.inside(lambda: connection.close())  # that of its thread


def file_of(backend: Backend) -> str:
    return backend.url.removeprefix("sqlite:///")
