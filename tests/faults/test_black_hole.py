"""A network that swallows everything: connections stay open and are dead for ever, and new ones work again later."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from leasehold import Leasehold
from leasehold.errors import DatabaseUnreachable
from leasehold.stores.database.read_timeout import reads_within
from leasehold.stores.database.wakeups import Hint
from leasehold.stores.postgres import connections, database
from leasehold.stores.postgres import pool as pools
from leasehold.stores.postgres.connections import BoundedConnection
from leasehold.stores.postgres.database import PostgresDatabase, PostgresSession
from leasehold.stores.postgres.store import PostgresStore
from leasehold.tasks.blueprint import Batch, new_ids
from leasehold.worker import health, worker
from tests.backends import Backend, new_job
from tests.faults.proxy import Proxy
from tests.servers import PostgresServer
from tests.workers import until

pytestmark = pytest.mark.parametrize("backend", ["postgres"], indirect=True)

ANSWER_WITHIN = 1.0


@pytest.fixture
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every limit is a second or so."""
    monkeypatch.setattr(BoundedConnection, "answer_within", ANSWER_WITHIN)
    monkeypatch.setattr(database, "PROBE_SECONDS", 0.5)
    monkeypatch.setattr(database, "PROBE_ANSWER_SECONDS", ANSWER_WITHIN)
    monkeypatch.setattr(database, "ANSWER_MARGIN", 0.5)
    monkeypatch.setitem(connections._NETWORK, "connect_timeout", 2)  # the driver takes no less


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
def url(proxy: Proxy, backend: Backend) -> str:
    return f"postgresql://postgres@127.0.0.1:{proxy.port}/leasehold_tests?sslmode=disable"


@pytest.fixture
def store(url: str, backend: Backend, haste: None) -> Iterator[PostgresStore]:
    """Over connections that are idle and dead: only new ones work."""
    with closing(PostgresStore(url, backend.schema)) as store:
        yield store


def let_connections_die(store: PostgresStore, proxy: Proxy) -> None:
    """Several are open, and idle."""
    pool = store._postgres.connections.pool
    with pool.connection(), pool.connection(), pool.connection():
        pass
    proxy.swallow()
    proxy.pass_on()


def count_within(store: PostgresStore) -> int:
    with reads_within(0.5):
        return store.count()["queued"]


REPEATABLE: dict[str, Callable[[PostgresStore], Any]] = {
    "enqueue one": lambda store: store.enqueue([new_job()])[0].created,
    "enqueue many": lambda store: len(
        store.enqueue(Batch({"task": "work"}, new_ids(60), [{}] * 60, lambda _: "{}"))
    ),
    "read": lambda store: store.count()["queued"] == 0,
    "read in time": lambda store: count_within(store) == 0,
    "notify": lambda store: store._postgres.notify(Hint.WORK) or True,
}


@pytest.mark.parametrize("call", REPEATABLE)
def test_a_call_that_may_be_repeated_is_repeated_over_a_new_connection(
    call: str, store: PostgresStore, proxy: Proxy
) -> None:
    let_connections_die(store, proxy)
    assert REPEATABLE[call](store)


def test_a_call_that_may_not_be_repeated_ends_with_an_error_that_says_why_and_the_next_one_works(
    store: PostgresStore, proxy: Proxy
) -> None:
    let_connections_die(store, proxy)
    with pytest.raises(DatabaseUnreachable, match="has not answered for 1 s"):
        store._postgres.single(lambda session: session.run("insert_worker_name", worker="me"))
    store._postgres.single(lambda session: session.run("insert_worker_name", worker="me"))


@pytest.mark.timeout(30)
def test_a_connection_that_was_idle_is_given_up_soon_where_the_call_may_be_repeated(
    store: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal must not wait for so long that its leases end meanwhile."""
    monkeypatch.setattr(BoundedConnection, "answer_within", 1000.0)
    monkeypatch.setattr(pools, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(connections, "FIRST_ANSWER_SECONDS", 0.5)
    let_connections_die(store, proxy)
    assert store.renew({new_job().id: 1}) == []
    let_connections_die(store, proxy)
    store._postgres.transact(lambda session: session.run("insert_worker_name", worker="me"))


def test_a_server_that_is_only_slow_gets_the_usual_time(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedConnection, "answer_within", 1000.0)
    monkeypatch.setattr(pools, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(connections, "FIRST_ANSWER_SECONDS", 0.3)

    def answer_late(session: PostgresSession) -> int:
        return session.connection.execute("SELECT 1 FROM pg_sleep(0.8)").rowcount

    assert store._postgres.read(answer_late) == 1
    assert store._postgres.single(answer_late) == 1
    assert store._postgres.transact(answer_late) == 1


def test_a_commit_that_is_not_answered_ends_with_an_error(store: PostgresStore, proxy: Proxy) -> None:
    def work(session: PostgresSession) -> None:
        session.run("insert_worker_name", worker="me")
        proxy.swallow()

    with pytest.raises(DatabaseUnreachable, match="has not answered"):
        store._postgres.transact(work)
    proxy.pass_on()
    store._postgres.transact(lambda session: session.run("insert_worker_name", worker="you"))


def test_a_copy_that_is_not_answered_ends_with_an_error(store: PostgresStore, proxy: Proxy) -> None:
    """More than any buffer on the way can hold."""

    def rows() -> Iterator[str]:
        yield "x\n"
        proxy.swallow()
        for _ in range(1000):
            yield "x" * 100_000 + "\n"

    def work(session: PostgresSession) -> None:
        session.run_text("CREATE TEMPORARY TABLE much (line text) ON COMMIT DROP")
        with session.connection.cursor() as cursor, cursor.copy("COPY much FROM STDIN") as copy:
            for row in rows():
                copy.write(row)

    with pytest.raises(DatabaseUnreachable):
        store._postgres.transact(work)


def test_a_transaction_of_a_handler_has_its_own_limit_and_is_not_called_too_long(
    store: PostgresStore, proxy: Proxy
) -> None:
    """That it took too long would be the handler's fault, and no reason to try again."""

    def write() -> None:
        with store._postgres.lend(0.2) as (session, _):
            proxy.swallow()
            session.run("insert_worker_name", worker="me")

    with pytest.raises(DatabaseUnreachable, match=r"has not answered for 0\.7 s"):
        write()
    proxy.pass_on()
    with store._postgres.lend(5) as (session, _):
        session.run("insert_worker_name", worker="me")


def test_the_server_ends_a_transaction_whose_client_is_gone_and_frees_its_locks(
    url: str, backend: Backend, haste: None, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STATEMENT_SECONDS", 1)
    insert = f'INSERT INTO "{backend.schema}".worker_name (name) VALUES (%s)'
    gone = PostgresDatabase(url, backend.schema)

    def work(session: PostgresSession) -> None:
        session.connection.execute(insert.encode(), ["the same"])
        proxy.swallow()
        with psycopg.connect(backend.url, autocommit=True) as other:
            other.execute("SET statement_timeout = '30s'")
            other.execute(insert.encode(), ["the same"])  # waits for the fate of the first

    with closing(gone), pytest.raises(DatabaseUnreachable):
        gone.transact(work)


def test_a_migration_may_wait_for_longer_than_a_statement(
    backend: Backend, postgres_schema: str, haste: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STATEMENT_SECONDS", 1)
    monkeypatch.setattr(BoundedConnection, "answer_within", 1.2)
    lock = "SELECT pg_advisory_xact_lock(hashtext('leasehold migrations'), hashtext(%s))"
    with closing(PostgresStore(backend.url, postgres_schema)) as store:
        with psycopg.connect(backend.url) as other:
            other.execute(lock, [postgres_schema])
            upgrade = threading.Thread(target=store.upgrade)
            upgrade.start()
            upgrade.join(2.0)
            assert upgrade.is_alive()
        upgrade.join(30)
        store.check_schema()


def test_the_url_may_set_the_limits_of_the_network_itself(url: str, backend: Backend) -> None:
    own = {"keepalives_idle": "77", "tcp_user_timeout": "88000"}
    given = "&".join(f"{name}={value}" for name, value in own.items())
    with closing(PostgresDatabase(f"{url}&{given}", backend.schema)) as database:
        used = database.single(lambda session: session.connection.info.get_parameters())
    assert {name: used[name] for name in own} == own
    assert (used["keepalives_interval"], used["keepalives_count"]) == ("5", "3")


@pytest.mark.slow(12)
@pytest.mark.timeout(120)
def test_every_role_of_a_worker_is_back_soon_after_the_network_and_the_worker_says_so_meanwhile(
    url: str,
    backend: Backend,
    haste: None,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "leasehold")
    monkeypatch.setattr(health, "STUCK_AFTER", 0.4)
    monkeypatch.setattr(health, "JUDGE_EVERY", 0.1)
    monkeypatch.setattr(worker, "PRESENCE_EVERY", 0.2)
    file = tmp_path / "healthy"
    direct = Leasehold(backend.url, schema=backend.schema)
    heard: list[str] = []
    ticks: list[int] = []

    def declare(app: Leasehold) -> Any:
        @app.task(name="brief", lease="6s")
        async def brief(seconds: float = 0.0) -> int:
            await asyncio.sleep(seconds)
            return 1

        @app.task(name="tick")
        async def tick() -> None:
            ticks.append(1)

        return brief, tick

    brief, _ = declare(direct)
    through = Leasehold(url, schema=backend.schema)
    _, tick = declare(through)
    through.schedule(every="1s")(tick)

    @through.on("succeeded", tasks=["brief"])
    def hear(event: Any) -> None:
        heard.append(event.job_id)

    def said(text: str) -> Callable[[], bool]:
        return lambda: any(text in record.getMessage() for record in caplog.records)

    def seen_at() -> Any:
        (row,) = direct.workers()
        return row.seen_at

    def call() -> None:
        """A client of the same process, whose call hangs too."""
        with contextlib.suppress(DatabaseUnreachable):
            through.count()

    async def live() -> None:
        async with through.worker(health_file=str(file), poll=0.2, sweep=0.5) as running:
            first = await brief.aenqueue()
            await until(lambda: first.id in heard and running._wakeups.listens and file.exists())
            proxy.swallow()
            client = threading.Thread(target=call)
            client.start()
            await until(said("no answer from the database for"))
            await until(said("the database has not answered it"))
            await until(lambda: not file.exists())
            await until(lambda: not running._wakeups.listens)
            proxy.pass_on()
            began, renewed, reported, ticked = time.monotonic(), running.keeper.beats, seen_at(), len(ticks)
            long = await brief.aenqueue(3.0)
            await until(lambda: seen_at() > reported)
            await until(lambda: len(ticks) > ticked + 1)
            await until(lambda: running.keeper.beats > renewed)
            await until(lambda: running._wakeups.listens)
            await until(lambda: long.id in heard)
            await until(lambda: running.health().ok and file.exists())
            await until(said("healthy again"))
            assert time.monotonic() - began < 20
            await asyncio.to_thread(client.join, 20)
            assert not client.is_alive()
            assert through.count()["running"] == 0
            assert long.result(timeout=5) == 1

    asyncio.run(live())
    through.close()
    direct.close()
