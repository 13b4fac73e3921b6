"""docs/guides/sqlalchemy.md, driven from outside: the page's own application under uvicorn, with a real worker; and the
URL of an engine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from leasehold import Leasehold
from leasehold.contrib.sqlalchemy import url_of
from leasehold.errors import InvalidInput, JobNotFound
from tests.backends import Backend
from tests.contrib.guide import Project, ask, ended

DRIVERS = {"sqlite": ("sqlite", "sqlite+aiosqlite"), "postgres": ("postgresql+psycopg", "postgresql+asyncpg")}


# -- over HTTP ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def project(backend: Backend, tmp_path: Path) -> Iterator[Project]:
    """The application of the page, with its tables."""
    _, _, place = backend.url.partition("://")
    plain, asynchronous = (f"{driver}://{place}" for driver in DRIVERS[backend.name])
    project = Project(tmp_path, {"DATABASE_URL": plain, "ASYNC_DATABASE_URL": asynchronous})
    project.environment["LEASEHOLD_SCHEMA"] = backend.schema
    project.lay_out("guides/sqlalchemy.md")
    backend.query("drop table if exists orders")
    project.python("shop.py")
    yield project
    backend.query("drop table orders")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_order_and_its_job_are_committed_or_rolled_back_together_and_a_worker_ships_it(project, backend):
    with project.serves("-m", "uvicorn", "--port", "0", "web_async:web") as url:
        bought = {}
        for route in ("buy", "buy-async"):
            status, bought[route] = ask(f"{url}/{route}?item={route}", {})
            assert status == 202
            job = f"{url}/jobs/{bought[route]['job']}"
            assert ask(job) == (200, {"state": "queued", "result": None})
            assert ask(f"{url}/{route}?item=unicorn", {}) == (409, {"detail": "out of stock"})
        wanted = dict.fromkeys(bought, False)
        assert {order["item"]: order["shipped"] for order in ask(f"{url}/orders")[1]} == wanted
        stored = json.loads(project.python("-m", "leasehold", "jobs", "--json", LEASEHOLD_APP="shop:app"))
        assert {job["id"] for job in stored} == {one["job"] for one in bought.values()}, (
            "the unicorns' are gone too"
        )
        assert ask(f"{url}/jobs/00000000-0000-7000-8000-000000000000")[0] == 404
        with project.stays("-m", "leasehold", "worker", "shop:app"):
            for route in bought:
                job = f"{url}/jobs/{bought[route]['job']}"
                assert ended(job) == {"state": "succeeded", "result": f"{route} is on its way"}
            _, again = ask(f"{url}/buy-async?item=milk", {})  # committed while the worker waits
            assert ended(f"{url}/jobs/{again['job']}") == {
                "state": "succeeded",
                "result": "milk is on its way",
            }
        assert all(order["shipped"] for order in ask(f"{url}/orders")[1])


# -- sessions ----------------------------------------------------------------------------------------------------------
def test_sessions_do_what_the_page_says_of_flush_savepoints_and_rollback(backend):
    from sqlalchemy.orm import Session

    driver = DRIVERS[backend.name][0]
    engine = create_engine(f"{driver}://{backend.url.partition('://')[2]}")
    try:
        with Leasehold(url_of(engine), schema=backend.schema) as app:

            @app.task
            def ship(order: int) -> None: ...

            with Session(engine) as session:
                session.execute(text("select 1"))
                kept = ship.using(tx=session).enqueue(1)
                savepoint = session.begin_nested()
                lost = ship.using(tx=session).enqueue(2)
                savepoint.rollback()
                with pytest.raises(InvalidInput):
                    ship.using(tx=session).enqueue("three")  # refused before anything is written
                also_kept = ship.using(tx=session.connection()).enqueue(4)
                with pytest.raises(JobNotFound):
                    kept.refresh()
                session.commit()
                after = ship.using(tx=session).enqueue(5)
            found = {job.id for job in app.jobs().jobs}
            assert found == {kept.id, also_kept.id}
            assert not found & {lost.id, after.id}, "a session that is closed rolls back"
    finally:
        engine.dispose()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_the_pool_of_an_async_engine_heals_after_a_restart_of_the_server(start_postgres, driver):
    """Also if an enqueue is the first statement of each session: SQLAlchemy must see that the connection is gone."""
    server = start_postgres(fsync=False)
    url = server.create_database("shop")

    async def enqueue(engine, ship) -> None:
        async with AsyncSession(engine) as session:
            await ship.using(tx=session).aenqueue(1)
            await session.commit()

    async def use(app, ship) -> tuple[int, int]:
        engine = create_async_engine(f"postgresql+{driver}://{url.partition('://')[2]}")
        await asyncio.gather(*(enqueue(engine, ship) for _ in range(4)))
        await asyncio.to_thread(server.restart)  # the loop learns that the connections are gone
        failed = 0
        for _ in range(14):
            try:
                await enqueue(engine, ship)
            except DBAPIError:
                failed += 1
        await engine.dispose()
        return failed, app.count()["queued"]

    with Leasehold(url) as app:
        app.upgrade()

        @app.task
        def ship(order: int) -> None: ...

        failed, stored = asyncio.run(use(app, ship))
    assert failed <= 1
    assert stored == 4 + 14 - failed


# -- the URL -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("driver", ["postgresql+psycopg", "postgresql+asyncpg", "postgresql"])
def test_the_url_of_postgres_means_what_the_engine_means(driver):
    odd = "p@s:s/w?r d%20+#&"
    url = URL.create(driver, "a@b", odd, "db.example", 5433, "my shop", {"options": "-c search_path=a,b"})
    engine = create_async_engine(url) if "asyncpg" in driver else create_engine(url)
    assert conninfo_to_dict(url_of(engine)) == {
        "user": "a@b", "password": odd, "host": "db.example", "port": "5433", "dbname": "my shop",
        "options": "-c search_path=a,b",
    }  # fmt: skip


def test_sockets_addresses_and_ssl_are_taken_over():
    socket = create_engine("postgresql+psycopg://me@/shop?host=/run/pg&port=6000")
    assert conninfo_to_dict(url_of(socket)) == {
        "user": "me",
        "dbname": "shop",
        "host": "/run/pg",
        "port": "6000",
    }
    address = create_async_engine("postgresql+asyncpg://[::1]:5432/shop?ssl=require")
    assert conninfo_to_dict(url_of(address)) == {
        "host": "::1", "port": "5432", "dbname": "shop", "sslmode": "require",
    }  # fmt: skip


def test_a_sqlite_file_is_named_wherever_the_process_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert url_of(create_engine("sqlite:///a b.db?timeout=3")) == f"sqlite:///{tmp_path}/a b.db"
    assert (
        url_of(create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db"))
        == f"sqlite:///{tmp_path}/shop.db"
    )


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://", ":memory:"),
        ("sqlite:///file:shop.db?uri=true", "no plain file"),
        ("postgresql+psycopg:///shop?host=one:1&host=two:2", "several values for 'host'"),
    ],
)
def test_an_engine_without_a_url_for_jobs_is_refused(url, words):
    with pytest.raises(InvalidInput, match=words) as refused:
        url_of(create_engine(url))
    assert refused.value.field == "engine"


def test_a_user_of_plain_engines_needs_no_greenlet():
    """`pip install sqlalchemy` brings none, and `sqlalchemy.ext.asyncio` cannot be imported without it."""
    program = (
        "import sys; sys.modules['greenlet'] = None\n"
        "from sqlalchemy import create_engine\n"
        "from leasehold.contrib.sqlalchemy import url_of\n"
        "print(url_of(create_engine('sqlite:////shop.db')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "sqlite:////shop.db", done.stderr
