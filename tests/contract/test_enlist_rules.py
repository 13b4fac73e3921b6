"""What an enqueue in the user's own transaction promises, refuses, and locks."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from typing import Any

import pytest

from leasehold import Context, Leasehold, Rate, Retry, Slot, SyncContext
from leasehold.errors import DuplicateJob, GroupOnHold, InvalidInput, JobNotFound
from tests.backends import Backend, new_id
from tests.connections import ORDERS, connect, file_of
from tests.workers import burst, until


def plain_connection(backend: Backend, **options: Any) -> Any:
    """The driver's own, with a transaction that begins by itself."""
    backend.query(ORDERS)
    if backend.name == "sqlite":
        return sqlite3.connect(file_of(backend), **options)
    import psycopg

    return psycopg.connect(backend.url, **options)


@pytest.fixture
def connection(backend: Backend):
    with closing(plain_connection(backend)) as connection:
        yield connection


@pytest.fixture
def ship(app: Leasehold):
    @app.task(name=f"ship-{new_id()}")
    def ship(order: int = 0) -> int:
        return order

    return ship


def jobs_in(backend: Backend) -> int:
    return backend.query("select count(*) from leasehold.job")[0][0]


# -- what is refused -------------------------------------------------------------------------------------------------
def refused(call: Any, *words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        call()
    assert caught.value.field == "tx"
    for word in words:
        assert word in str(caught.value)


def test_autocommit_without_a_transaction_is_refused(backend, ship):
    options = {"isolation_level": None} if backend.name == "sqlite" else {"autocommit": True}
    with closing(plain_connection(backend, **options)) as connection:
        refused(lambda: ship.using(tx=connection).enqueue(1), "autocommit", "begin one first")
        assert jobs_in(backend) == 0
        connection.execute("begin")
        ship.using(tx=connection).enqueue(1)
        connection.execute("commit")
    assert jobs_in(backend) == 1


def test_sqlalchemy_in_autocommit_is_refused(backend, ship):
    from sqlalchemy import create_engine

    backend.query(ORDERS)
    url = backend.url.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        refused(lambda: ship.using(tx=connection).enqueue(1), "autocommit")
    engine.dispose()
    assert jobs_in(backend) == 0


def test_a_closed_connection_is_refused(connection, ship):
    connection.close()
    refused(lambda: ship.using(tx=connection).enqueue(1), "closed")


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
@pytest.mark.parametrize("kind", ["psycopg", "asyncpg", "sqlalchemy session, psycopg"])
@pytest.mark.parametrize(
    ("setting", "bad", "good"), [("array_nulls", "off", "on"), ("datestyle", "German, DMY", "ISO, YMD")]
)
def test_a_setting_of_the_connection_that_would_harm_is_refused_by_name_before_anything_is_written(
    backend, ship, kind, setting, bad, good
):
    """array_nulls: the job would have the lane and the unique key "NULL"."""

    async def use() -> None:
        async with connect(kind, backend) as user:
            await user.begin()
            await user.execute(f"set {setting} = '{bad}'")
            with pytest.raises(InvalidInput, match=rf"tx: {setting} is '{bad}'.*SET {setting} = '{good}'"):
                await user.enqueue(ship, 1)
            await user.execute(f"set {setting} = '{good}'")
            await user.enqueue(ship, 1)
            await user.commit()

    asyncio.run(use())
    assert backend.query("select lane, unique_key from leasehold.jobs") == [(None, None)]


ODD = {
    "intervalstyle": "sql_standard",
    "timezone": "Asia/Kathmandu",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "quote_all_identifiers": "on",
    "search_path": "pg_temp",
    "transform_null_equals": "on",
    "standard_conforming_strings": "off",
    "default_transaction_isolation": "serializable",
}


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
@pytest.mark.parametrize("kind", ["psycopg", "asyncpg"])
def test_no_other_setting_of_the_connection_changes_what_is_stored(backend, app, kind):
    @app.task(name=f"odd-{new_id()}", lane="{text}")
    def odd(text: str) -> None: ...

    async def use() -> list[str]:
        made = []
        async with connect(kind, backend) as user:
            for settings in ({}, ODD):
                for name, value in settings.items():
                    await user.execute(f"set {name} = '{value}'")
                await user.commit() if kind == "psycopg" else None
                await user.begin()
                options = {"unique": f"k{len(made)}", "group": "g", "delay": 3600.5, "tags": ["ż\\'\""]}
                job = await user.enqueue(odd, "żółw \\ ' \" {NULL}", **options)
                made.append(job.id)
                await user.commit()
        return made

    usual, strange = (app.get(job).__row__ for job in asyncio.run(use()))
    for name in ("args", "lane", "group", "tags", "priority", "lease_seconds", "state"):
        assert getattr(strange, name) == getattr(usual, name)
    assert (strange.created_at - usual.created_at).total_seconds() < 60
    assert (strange.available_at - strange.created_at).total_seconds() == 3600.5
    assert strange.unique_key == "k1"


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_connection_in_pipeline_mode_is_refused(backend, ship, connection):
    with connection.pipeline():
        refused(lambda: ship.using(tx=connection).enqueue(1), "pipeline")
    ship.using(tx=connection).enqueue(1)
    connection.commit()
    assert jobs_in(backend) == 1


@pytest.mark.parametrize("has_schema", [False, True])
def test_another_database_is_refused(backend, ship, tmp_path, request, has_schema):
    """Also one that has jobs of its own, under the same names."""
    if backend.name == "sqlite":
        other = Backend("sqlite", f"sqlite:///{tmp_path}/other.db", backend.schema)
        names = ["other.db", "jobs.db"]
    else:
        url = request.getfixturevalue("postgres_server").create_database(f"other_{time.time_ns()}")
        other, names = Backend("postgres", url, backend.schema), ["other_"]
    if has_schema:
        other.open().upgrade()
        other.close_opened()
    with closing(plain_connection(other)) as connection:
        refused(lambda: ship.using(tx=connection).enqueue(1), *names)


def test_another_kind_of_database_is_refused(backend, ship, postgres_url):
    import psycopg

    if backend.name == "sqlite":
        with psycopg.connect(postgres_url) as connection:
            refused(lambda: ship.using(tx=connection).enqueue(1), "PostgreSQL")
    else:
        with closing(sqlite3.connect(":memory:")) as connection:
            refused(lambda: ship.using(tx=connection).enqueue(1), "SQLite")


def test_what_is_no_connection_is_refused(ship, connection):
    for thing in (object(), "postgresql://", connection.cursor()):
        refused(lambda thing=thing: ship.using(tx=thing).enqueue(1), type(thing).__name__, "sqlite3")
    refused(lambda: ship.using(tx=None).enqueue(1), "leave it out")


def test_an_async_connection_is_refused_by_enqueue(backend, ship):
    async def use() -> None:
        kinds = (
            ("aiosqlite", "sqlalchemy async session, aiosqlite")
            if backend.name == "sqlite"
            else ("psycopg async", "asyncpg", "sqlalchemy async connection, asyncpg")
        )
        for kind in kinds:
            async with connect(kind, backend) as user:
                await user.begin()
                refused(lambda user=user: ship.using(tx=user.tx).enqueue(1), "aenqueue")
                refused(lambda user=user: ship.using(tx=user.tx).enqueue_many([{"order": 1}]), "aenqueue")
                await user.rollback()

    asyncio.run(use())


def test_tx_is_refused_where_no_enqueue_could_join_it(app, ship, connection):
    joined = ship.using(tx=connection)
    refused(lambda: app.run_now(joined.using(max_running=1)), "run_now")
    refused(lambda: app.chain(joined), "chain")
    refused(lambda: app.dag().add("one", joined), "DAG")
    refused(lambda: app.schedule(every="1h")(joined), "schedule")
    refused(lambda: app.task(tx=connection)(lambda: None), "task")

    @app.task
    def parent(ctx: SyncContext) -> None:
        refused(lambda: ctx.enqueue(joined), "follow-up")

    job = parent.enqueue()
    burst(app)
    job.result(timeout=0)


# -- other calls -----------------------------------------------------------------------------------------------------
def test_every_way_to_enqueue_takes_tx(app, backend, connection, ship):
    joined = ship.using(tx=connection)
    joined.bind(1).enqueue()
    joined.enqueue_many([{"order": n} for n in range(1200)])
    app.enqueue(ship.name, {"order": 2}, tx=connection)
    asyncio.run(joined.aenqueue(3))
    asyncio.run(joined.aenqueue_many([{"order": 4}]))
    asyncio.run(joined.bind(5).aenqueue())
    asyncio.run(app.aenqueue(ship.name, {"order": 6}, tx=connection))
    assert jobs_in(backend) == 0
    connection.commit()
    assert jobs_in(backend) == 1206


def test_the_users_own_ways_to_read_rows_do_not_matter(backend, ship):
    with closing(plain_connection(backend)) as connection:
        if backend.name == "sqlite":
            connection.row_factory = sqlite3.Row
            connection.text_factory = bytes
        else:
            from psycopg.rows import dict_row

            connection.row_factory = dict_row
        holder = ship.using(tx=connection, unique="k", lane="l", group="g").enqueue(1)
        job = ship.using(tx=connection, unique="k", lane="l", group="g", on_duplicate="replace").enqueue(2)
        connection.commit()
    assert (holder.refresh().state, job.refresh().state) == ("cancelled", "queued")


def test_it_works_in_a_file_that_the_app_has_not_opened_yet(backend, app, ship, monkeypatch):
    """Opening the store must not wait for the very transaction that the job goes into."""
    # Whoever waits for the lock shall do so for longer than we look.
    for module in ("database", "connections"):
        monkeypatch.setattr(f"leasehold.stores.sqlite.{module}.BUSY_SECONDS", 40.0)
    app.close()
    began = time.monotonic()
    with closing(plain_connection(backend)) as connection:
        connection.execute(
            "begin immediate" if backend.name == "sqlite" else "insert into orders values ('x')"
        )
        job = ship.using(tx=connection).enqueue(1)
        connection.commit()
    assert time.monotonic() - began < 30.0
    assert job.refresh().state == "queued"


def test_limits_of_a_rolled_back_job_are_made_again(app, backend, connection):
    @app.task(
        name=f"limited-{new_id()}",
        slots={f"browser-{new_id()}": Slot(limit=1)},
        rate=Rate(f"r-{new_id()}", "600/min", burst=10),
    )
    def limited() -> str:
        return "ran"

    limited.using(tx=connection).enqueue()
    connection.rollback()
    job = limited.using(tx=connection).enqueue()
    connection.commit()
    plain = limited.enqueue()
    burst(app)
    assert (job.result(timeout=5), plain.result(timeout=5)) == ("ran", "ran")


# -- parents, keys, groups -------------------------------------------------------------------------------------------
def test_a_parent_that_has_not_ended_is_refused(backend, app, ship, connection):
    parent = ship.enqueue(1)
    with pytest.raises(InvalidInput, match="has not ended"):
        ship.using(tx=connection, after=[parent]).enqueue(2)
    with pytest.raises(JobNotFound):
        ship.using(tx=connection, after=[new_id()]).enqueue(2)
    connection.commit()
    assert jobs_in(backend) == 1
    burst(app)
    child = ship.using(tx=connection, after=[parent]).enqueue(3)
    connection.commit()
    assert child.refresh().state == "queued"
    burst(app)
    assert child.result(timeout=0) == 3


def test_a_key_that_is_held_is_refused_before_anything_is_written(backend, ship, connection):
    holder = ship.using(unique="k{order}").enqueue(2)
    many = ship.using(tx=connection, unique="k{order}", on_duplicate="raise")
    with pytest.raises(DuplicateJob) as caught:
        many.enqueue_many([{"order": 1}, {"order": 2}])
    assert caught.value.job_id == holder.id
    with pytest.raises(DuplicateJob):
        many.enqueue_many([{"order": 3}, {"order": 3}])
    connection.commit()
    assert jobs_in(backend) == 1


def test_a_group_on_hold_is_refused_before_anything_is_written(backend, app, ship, connection):
    app.group("g").stop(hold=True)
    with pytest.raises(GroupOnHold):
        ship.using(tx=connection, group="g").enqueue(1)
    connection.commit()
    assert jobs_in(backend) == 0


def test_a_group_is_told_once_by_the_commit(backend, app, ship, connection):
    ship.using(group="g").enqueue(1)
    app.group("g").stop()
    before = app.group("g").status().version
    for number in range(3):
        ship.using(tx=connection, group="g").enqueue(number)
    assert app.group("g").status().version == before
    connection.commit()
    status = app.group("g").status()
    assert (status.live, status.state) == (3, "active")
    assert status.version > before
    assert app.__internals__.store.misplaced() == []


def test_a_savepoint_takes_its_job_with_it(backend, app, ship, connection):
    connection.execute("insert into orders values ('x')")
    for number, end in enumerate(("rollback to s", "release s", "rollback to s")):
        connection.execute("savepoint s")
        for name in "ab":
            ship.using(tx=connection, group=name).enqueue(number)
        connection.execute(end)
        ship.using(tx=connection, group="a").enqueue(10)
    connection.commit()
    assert [app.group(name).status().live for name in "ab"] == [4, 1]
    assert app.__internals__.store.misplaced() == []


# -- wake-ups --------------------------------------------------------------------------------------------------------
def test_a_worker_is_woken_by_the_commit(app, backend, connection):
    @app.task
    async def quick() -> float:
        return time.time()

    async def run() -> float:
        waits = []
        async with app.worker(poll=30.0):
            await until(lambda: len(app.__internals__.store.list_workers()) == 1)
            for _ in range(3):
                job = quick.using(tx=connection).enqueue()
                committed = time.time()
                connection.commit()
                waits.append(await job.aresult(timeout=60) - committed)
        return min(waits)

    assert asyncio.run(run()) < 15.0, "with a poll of 30 s only a wake-up can be that quick"


# -- lent transactions -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fails", [False, True])
def test_a_plain_handler_enqueues_in_what_it_is_lent(app, backend, ship, fails):
    made = []

    def write(tx: Any) -> None:
        made.append(ship.using(tx=tx, group="g").enqueue(1))
        if fails:
            raise ValueError("undone")

    @app.task(retry=Retry(max_attempts=1))
    def by_step(ctx: SyncContext) -> None:
        ctx.step("write", write, tx=True)

    @app.task(retry=Retry(max_attempts=1))
    def by_completion(ctx: SyncContext) -> None:
        with ctx.complete(None) as tx:
            write(tx)

    by_step.enqueue()
    by_completion.using(group="g").enqueue()
    burst(app)
    assert len(made) == 2
    rows = backend.query("select task, state from leasehold.job_row order by seq")
    states = [state for kind, state in rows if kind == ship.name]
    assert states == ([] if fails else ["succeeded", "succeeded"])
    assert app.__internals__.store.misplaced() == []


@pytest.mark.parametrize("fails", [False, True])
def test_an_async_handler_enqueues_in_what_it_is_lent(app, backend, ship, fails):
    @app.task(retry=Retry(max_attempts=1))
    async def parent(ctx: Context) -> None:
        async with ctx.complete(None) as tx:
            with pytest.raises(InvalidInput, match="aenqueue"):
                ship.using(tx=tx).enqueue(1)
            await ship.using(tx=tx).aenqueue(1)
            if fails:
                raise ValueError("undone")

    job = parent.enqueue()
    burst(app)
    assert job.refresh().state == ("failed" if fails else "succeeded"), job.error
    assert jobs_in(backend) == (1 if fails else 2)


@pytest.fixture
def postgres(_postgres_backend: Backend) -> Backend:
    _postgres_backend.empty()
    return _postgres_backend


# -- a transaction that stays open -----------------------------------------------------------------------------------
@pytest.mark.slow(5)
def test_an_open_transaction_stops_no_group_and_costs_no_lease(postgres):
    """On PostgreSQL. On SQLite there is one writer, whoever it is: docs/concepts/transactions.md says so."""
    backend = postgres
    release, lease = threading.Event(), 2.0
    with (
        Leasehold(backend.url, schema=backend.schema) as app,
        closing(plain_connection(backend)) as connection,
    ):

        @app.task(lease=lease, lane="{lane}")
        def work(lane: str) -> str:
            assert release.wait(60) if lane == "long" else True
            return lane

        long = work.using(group="g").enqueue("long")
        ended = work.using(group="g", unique="old", delay=3600).enqueue("replaced")

        async def run() -> None:
            async with app.worker(concurrency=4, poll=0.1):
                await until(lambda: long.refresh().state == "running")
                joined = work.using(tx=connection, group="g", unique="new")
                joined.enqueue("other")
                work.using(tx=connection, group="g", unique="old", on_duplicate="replace").enqueue("replaced")
                opened = time.monotonic()
                while time.monotonic() - opened < 2 * lease:
                    short = await work.using(group="g").aenqueue("short")
                    assert await short.aresult(timeout=30) == "short"
                release.set()
                await long.aresult(timeout=30)
                assert long.refresh().attempt == 1
                connection.commit()
                await until(lambda: app.group("g").status().live == 0)

        asyncio.run(run())
        assert ended.refresh().state == "cancelled"
        assert app.__internals__.store.misplaced() == []
        assert backend.query("select count(*) from leasehold.group_change") == [(0,)]


def test_two_transactions_with_the_same_groups_do_not_wait_in_a_circle(postgres):
    backend = postgres
    with (
        Leasehold(backend.url, schema=backend.schema) as app,
        closing(plain_connection(backend)) as one,
        closing(plain_connection(backend)) as other,
    ):

        @app.task
        def work() -> None: ...

        for connection, groups in ((one, "ab"), (other, "ba")):
            for group in groups:
                work.using(tx=connection, group=group).enqueue()
        commits = [threading.Thread(target=connection.commit) for connection in (one, other)]
        for commit in commits:
            commit.start()
        for commit in commits:
            commit.join(20)
        assert [app.group(name).status().live for name in "ab"] == [2, 2]


def test_a_hold_that_comes_before_the_commit_fails_it(postgres):
    import psycopg

    backend = postgres
    with (
        Leasehold(backend.url, schema=backend.schema) as app,
        closing(plain_connection(backend)) as connection,
    ):

        @app.task
        def work() -> None: ...

        work.using(tx=connection, group="g").enqueue()
        app.group("g").stop(hold=True)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="on hold"):
            connection.commit()
    assert jobs_in(backend) == 0


def test_a_serialization_failure_goes_through_to_the_user(postgres):
    import psycopg

    backend = postgres
    with (
        Leasehold(backend.url, schema=backend.schema) as app,
        closing(plain_connection(backend)) as connection,
    ):

        @app.task(unique="k")
        def work() -> None: ...

        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select 1 from orders")
        work.enqueue()
        with pytest.raises(psycopg.errors.SerializationFailure):
            work.using(tx=connection).enqueue()
    assert jobs_in(backend) == 1


def test_a_caller_who_is_cancelled_leaves_nothing_behind(postgres):
    """It waits for the key of another's transaction; once it is let go, nothing more may reach the connection."""
    backend = postgres
    with Leasehold(backend.url, schema=backend.schema) as app, closing(plain_connection(backend)) as holder:

        @app.task(unique="k")
        def work() -> None: ...

        work.using(tx=holder).enqueue()

        async def use() -> None:
            async with connect("asyncpg", backend) as user:
                await user.begin()
                waiting = asyncio.ensure_future(user.enqueue(work))
                blocked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
                await until(lambda: backend.query(blocked) == [(1,)])
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await user.rollback()
                holder.rollback()
                assert await user.tx.fetchval("select 1") == 1

        asyncio.run(use())
    assert jobs_in(backend) == 0
