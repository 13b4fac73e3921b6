"""What a store asks of its connections, and what becomes of them."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from leasehold.domain.errors import DatabaseUnreachable, JobNotFound, PoolExhausted
from leasehold.stores.postgres import pool as pools
from leasehold.stores.postgres.connections import MOST_PREPARED
from leasehold.stores.postgres.database import PostgresDatabase, PostgresSession
from leasehold.stores.postgres.store import PostgresStore
from tests.backends import Backend, new_id, new_job
from tests.servers import PostgresServer
from tests.workers import wait_for

pytestmark = pytest.mark.parametrize("backend", ["postgres"], indirect=True)


def caller(session: PostgresSession) -> int:
    return session.connection.info.backend_pid


def test_statements_are_not_compiled(backend: Backend) -> None:
    """The server decides that by an estimate: with many rows waiting, every claim was compiled."""
    database = PostgresDatabase(backend.url, backend.schema)
    assert database.single(lambda session: session.connection.execute("SHOW jit").fetchone()) == ("off",)
    database.close()


def test_those_who_wait_for_the_pool_get_what_is_given_back(backend: Backend) -> None:
    """With a single connection, and more callers than it can serve at once."""
    database = PostgresDatabase(backend.url, backend.schema, pool_size=1)
    served: list[int] = []

    def call() -> None:
        for _ in range(20):
            served.append(database.single(caller))
            time.sleep(0)

    threads = [threading.Thread(target=call) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(served) == 100
    assert len(set(served)) == 1
    database.close()


def test_a_thread_that_calls_in_a_loop_lets_those_who_wait_have_their_turn(backend: Backend) -> None:
    database = PostgresDatabase(backend.url, backend.schema, pool_size=1)
    pool = database.connections.pool
    served: list[str] = []

    def call(name: str) -> None:
        with pool.connection():
            served.append(name)

    waiting = [threading.Thread(target=call, args=[name]) for name in ("first", "second")]
    with pool.connection():
        for number, thread in enumerate(waiting, 1):
            thread.start()
            wait_for(lambda number=number: len(pool._queue) == number)
    call("who called before")
    for thread in waiting:
        thread.join(timeout=60)
    assert served == ["first", "second", "who called before"]
    database.close()


def test_who_gets_no_connection_in_time_learns_that_they_are_in_use_and_what_helps(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "WAIT_SECONDS", 0.1)
    database = PostgresDatabase(backend.url, backend.schema, pool_size=1)
    with database.connections.pool.connection():
        with pytest.raises(
            PoolExhausted, match=r"all 1 connections .* in use for 0\.1 s; call from fewer"
        ) as error:
            database.single(caller)
        assert not isinstance(error.value, DatabaseUnreachable)
    assert database.single(caller), "who gave up has left the queue"
    database.close()


def test_a_store_that_is_closed_refuses_those_who_wait_for_a_connection(backend: Backend) -> None:
    database = PostgresDatabase(backend.url, backend.schema, pool_size=1)
    refused: list[Exception] = []

    def call() -> None:
        try:
            database.single(caller)
        except DatabaseUnreachable as error:
            refused.append(error)

    thread = threading.Thread(target=call)
    with database.connections.pool.connection():
        thread.start()
        wait_for(lambda: database.connections.pool._queue)
        database.close()
        thread.join(timeout=60)
    assert len(refused) == 1


def test_a_call_that_waits_for_a_lock_does_not_take_the_connections_of_others(backend: Backend) -> None:
    """As many as the pool has places for, and then some more, up to a limit."""
    database = PostgresDatabase(backend.url, backend.schema, pool_size=2)
    locked = [threading.Event() for _ in range(3)]
    lock = f'LOCK TABLE "{backend.schema}".ready'

    def wait_for_it(started: threading.Event) -> None:
        def work(session: PostgresSession) -> None:
            started.set()
            session.connection.execute(lock.encode())

        database.transact(work)

    with psycopg.connect(backend.url) as holder:
        holder.execute(lock.encode())
        waiting = [threading.Thread(target=wait_for_it, args=[started]) for started in locked]
        for thread, started in zip(waiting, locked, strict=True):
            thread.start()
            assert started.wait(30)
        assert database.single(caller)
    for thread in waiting:
        thread.join()
    assert len(database.connections.pool._idle) <= 2, "the ones above its size are closed"
    database.close()


def test_a_closed_database_serves_nobody_and_leaves_no_connection(backend: Backend) -> None:
    database = PostgresDatabase(backend.url, backend.schema)
    pid = database.single(caller)
    database.close()
    with pytest.raises(DatabaseUnreachable):
        database.single(caller)
    left = "SELECT count(*) FROM pg_stat_activity WHERE pid = ?"
    deadline = time.monotonic() + 60
    while backend.query(left, pid) != [(0,)]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_was_prepared_and_forgotten_here_is_used_there(backend: Backend) -> None:
    """As when the driver was kept from throwing it away, after we had heard that it would."""
    store = backend.open()
    store.enqueue([new_job()])
    store._postgres.single(lambda session: session.connection._quick.clear())  # type: ignore[attr-defined]
    (made,) = store.enqueue([new_job()])
    assert made.created


def test_a_refused_call_leaves_no_error_in_the_log_of_the_server(
    backend: Backend, postgres_server: PostgresServer
) -> None:
    """The driver throws away what is prepared after a rollback; the next single job must know."""
    store = backend.open()
    store.enqueue([new_job()])
    before = postgres_server.log.stat().st_size
    for _ in range(30):  # the driver prepares after five runs, and has then something to throw away
        store.claim("w", ["default"], 1)
    with pytest.raises(JobNotFound):
        store.cancel(new_id())
    store.enqueue([new_job()])
    with postgres_server.log.open(encoding="utf-8") as log:
        log.seek(before)
        assert "prepared statement" not in log.read()


def test_two_schemas_over_the_same_connections_keep_their_jobs_apart(backend: Backend) -> None:
    """What is prepared on a connection for one schema must not be run for the other."""
    one, other = backend.open(), None
    try:
        beside = PostgresDatabase(backend.url, f"{backend.schema}_b", beside=vars(one)["_postgres"])
        other = PostgresStore(backend.url, database=beside)
        other.upgrade()
        jobs = {store: [new_job().id for _ in range(8)] for store in (one, other)}
        for mine, its in zip(jobs[one], jobs[other], strict=True):
            one.enqueue([new_job(id=mine)])
            other.enqueue([new_job(id=its)])
        for store, ids in jobs.items():
            assert {job.id for job in store.list_jobs(limit=100).jobs} == set(ids)
    finally:
        if other is not None:
            other.drop()


def test_a_connection_keeps_a_bounded_number_of_statements_prepared(backend: Backend) -> None:
    database = PostgresDatabase(backend.url, backend.schema, pool_size=1)
    count = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'leasehold%%'"

    def requested(session: PostgresSession) -> int:
        for number in range(3 * MOST_PREPARED):
            session.connection.run_quickly(f"SELECT {number}", {})
        return int(session.connection.execute(count).fetchone()[0])

    assert database.single(requested) == MOST_PREPARED
    database.close()
