"""The support that users get for their own tests."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import threading

import psycopg
import pytest

from leasehold import Context, Job, Leasehold, Retry, State, SyncContext
from leasehold.errors import QuestionExpired
from leasehold.testing import sandbox

app = Leasehold("sqlite:///this-file-must-not-appear.db")


@app.task
async def ship(order_id: int) -> str:
    return f"shipped {order_id}"


@app.task(queue="mail", retry=Retry(max_attempts=2, backoff=10))
def notify(order_id: int) -> None:
    raise ConnectionError("no mail today")


def test_a_drain_runs_what_is_due_and_the_clock_brings_the_rest(tmp_path):
    with sandbox(app, tmp_path) as box:
        job = ship.enqueue(1)
        later = ship.using(delay="10m").enqueue(2)
        box.assert_enqueued("ship", order_id=1)
        assert box.drain() == 1
        assert job.result(timeout=0) == "shipped 1"
        assert later.refresh().state is State.QUEUED
        box.clock.advance(600)
        assert box.drain() == 1
        assert later.result(timeout=0) == "shipped 2"


def test_a_retry_waits_for_its_backoff_on_the_tests_clock(tmp_path):
    with sandbox(app, tmp_path) as box:
        job = notify.enqueue(1)
        assert box.drain() == 1
        assert (job.refresh().state, job.attempt) == (State.QUEUED, 1)
        box.clock.advance(10)
        assert box.drain() == 1
        assert (job.refresh().state, job.attempt) == (State.FAILED, 2)
        assert job.error.startswith("ConnectionError: no mail today")


@app.task
async def rated(ctx: Context) -> int:
    for _ in range(3):
        await ctx.acquire("llm", rate="1/h")
    return 3


@app.task
def rated_in_thread(ctx: SyncContext) -> None:
    for _ in range(3):
        ctx.acquire("api", rate="1/h")
    ctx.wait(7200)


@pytest.mark.timeout(30)
def test_a_wait_for_a_rate_moves_the_clock_on(tmp_path):
    with sandbox(app, tmp_path) as box:
        jobs: list[Job] = [rated.enqueue(), rated_in_thread.enqueue()]
        later = ship.using(delay="1d").enqueue(1)
        began = box.clock.now()
        assert box.drain() == 2
        assert {job.refresh().state for job in jobs} == {State.SUCCEEDED}
        assert (box.clock.now() - began).total_seconds() == pytest.approx(4 * 3600, abs=1)
        assert later.refresh().state is State.QUEUED


@app.task
async def stubborn(ctx: Context) -> int:
    tries = []

    async def fails_twice() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError
        return len(tries)

    return await ctx.step("call", fails_twice, retry=Retry(max_attempts=3, backoff=3600, max_delay=86_400))


@pytest.mark.timeout(30)
def test_the_next_try_of_a_step_comes_on_the_tests_clock(tmp_path):
    with sandbox(app, tmp_path) as box:
        job, began = stubborn.enqueue(), box.clock.now()
        box.drain()
        assert job.result(timeout=0) == 3
        assert 5400 <= (box.clock.now() - began).total_seconds() <= 10_800


@app.task(retry=Retry(max_attempts=1))
async def asks(ctx: Context) -> str:
    try:
        return await ctx.ask("ok", "May I?", timeout="1h")
    except QuestionExpired:
        return "nobody answered"


def test_what_is_too_late_on_the_tests_clock_is_ended_by_a_drain(tmp_path):
    with sandbox(app, tmp_path) as box:
        questions_box = asks.enqueue()
        box.drain()
        held = ship.using(hold=True, deadline="1h").enqueue(1)
        delayed = ship.using(delay="2h", start_by="1h").enqueue(2)
        assert questions_box.refresh().state is State.WAITING
        box.clock.advance(7200)
        box.drain()
        assert questions_box.result(timeout=0) == "nobody answered"
        assert held.refresh().state is State.TIMED_OUT
        assert delayed.refresh().state is State.CANCELLED


@app.task
async def waits_for_a_slot(ctx: Context) -> None:
    await ctx.acquire("browser")


@app.task
def waits_in_a_thread(ctx: SyncContext) -> None:
    threading.Event().wait(6)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_drain_that_cannot_end_says_who_waits_for_what_and_where(tmp_path):
    with sandbox(app, tmp_path) as box:
        app.slots.set("browser", 0)
        job, other = waits_for_a_slot.enqueue(), waits_in_a_thread.enqueue()
        with pytest.raises(AssertionError, match=r"has not ended within 4 s") as stuck:
            box.drain(timeout=4)
        reported = str(stuck.value)
        assert f"job {job.id} (waits_for_a_slot, attempt 1) waits for slot 'browser'" in reported
        assert 'await ctx.acquire("browser")' in reported
        assert f"job {other.id} (waits_in_a_thread, attempt 1) runs" in reported
        assert "threading.Event().wait(6)" in reported
        assert job.refresh().state is State.QUEUED, "it was handed back"


@pytest.mark.timeout(30)
def test_a_wait_with_a_timeout_ends_on_the_tests_clock(tmp_path):
    @app.task(name="impatient", retry=Retry(max_attempts=1))
    async def impatient(ctx: Context) -> None:
        await ctx.acquire("cpu", timeout="10m")

    with sandbox(app, tmp_path) as box:
        app.slots.set("cpu", 0)
        job = impatient.enqueue()
        box.drain()
        assert "did not become free within 600 s" in job.refresh().error


def test_what_was_not_enqueued_is_told_with_what_was(tmp_path):
    with sandbox(app, tmp_path) as box:
        ship.enqueue(1)
        with pytest.raises(AssertionError, match=r'ship \{"order_id": 1\} \(queued\)'):
            box.assert_enqueued("ship", order_id=2)
        with pytest.raises(AssertionError, match="expected 2 'ship'"):
            box.assert_enqueued(ship, count=2)
        assert box.assert_enqueued(ship) == box.assert_enqueued("ship") == box.enqueued(ship)


def connect(url: str):
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"))
    return psycopg.connect(url)


def test_a_sandbox_in_the_tests_own_database_joins_its_transactions(backend, tmp_path):
    """On an empty file too, where our tables cannot be made while the test's transaction is open."""
    url = f"sqlite:///{tmp_path}/shop.db" if backend.name == "sqlite" else backend.url
    with sandbox(app, tmp_path, url=url) as box, contextlib.closing(connect(url)) as connection:
        connection.execute("create table shop_order (id integer)")
        connection.commit()
        for order in (1, 2):
            connection.execute(f"insert into shop_order values ({order})")
            ship.using(tx=connection, delay="10m").enqueue(order)
            connection.commit() if order == 1 else connection.rollback()
        box.clock.advance(600)
        box.drain()
        (job,) = box.assert_enqueued("ship", count=1)
        assert job.result(timeout=0) == "shipped 1"
        connection.execute("drop table shop_order")
        connection.commit()
    assert app.url.endswith("this-file-must-not-appear.db")


def test_a_sandbox_in_postgres_has_a_schema_of_its_own_and_removes_it(postgres_url, tmp_path):
    with contextlib.closing(connect(postgres_url)) as connection:
        connection.autocommit = True
        with sandbox(app, tmp_path, url=postgres_url) as box:
            schema = app.__internals__.location.schema
            ship.enqueue(1)
            with sandbox(app, tmp_path, url=postgres_url) as inner:
                assert app.__internals__.location.schema != schema
                assert inner.enqueued() == []
            box.assert_enqueued("ship", count=1)
        left = connection.execute("select count(*) from pg_namespace where nspname = %s", [schema]).fetchone()
        assert left == (0,)


def test_the_sandbox_leaves_the_apps_own_store_alone(tmp_path):
    with sandbox(app, tmp_path):
        ship.enqueue(1)
    assert app.url.endswith("this-file-must-not-appear.db")


USERS_TEST = """
from leasehold import Leasehold
app = Leasehold("sqlite:///never.db")

@app.task
def add(a: int, b: int) -> int:
    return a + b

def test_add(leasehold_sandbox):
    box = leasehold_sandbox(app)
    job = add.enqueue(2, 3)
    box.drain()
    assert job.result(timeout=0) == 5

def test_in_a_file_of_its_own(leasehold_sandbox, tmp_path):
    box = leasehold_sandbox(app, url=f"sqlite:///{tmp_path}/own.db")
    assert (tmp_path / "own.db").exists(), "with our tables, before the first transaction"
"""


@pytest.mark.slow
def test_the_pytest_plugin_works_in_a_users_project(tmp_path):
    (tmp_path / "test_users.py").write_text(USERS_TEST)
    reported = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in reported.stdout, reported.stdout + reported.stderr
    assert not (tmp_path / "never.db").exists()
