"""A PostgreSQL server that restarts, only reads, is set up otherwise, or does not let us."""

from __future__ import annotations

import asyncio
import itertools
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from leasehold import Leasehold
from leasehold.errors import (
    DatabaseDamaged,
    DatabaseUnfit,
    DatabaseUnreachable,
    PermissionMissing,
    SchemaIncomplete,
)
from leasehold.stores.database.wakeups import ANYTHING, Hint
from leasehold.stores.open import open_store
from leasehold.stores.postgres.connections import QuickConnection
from leasehold.stores.postgres.database import PostgresDatabase, PostgresWakeups
from leasehold.stores.store import JobStore
from leasehold.surfaces.cli.main import run
from leasehold.tasks.blueprint import Batch, new_ids
from tests.backends import new_job, put
from tests.faults.proxy import Proxy
from tests.servers import PostgresServer
from tests.workers import burst

_numbers = itertools.count(1)


@pytest.fixture
def scratch(postgres_server: PostgresServer) -> Iterator[tuple[str, str]]:
    """The name and the URL of a database for one test."""
    name = f"trouble_{next(_numbers)}"
    url = postgres_server.create_database(name)
    with closing(open_store(url)) as store:
        store.upgrade()
    yield name, url
    notify(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


def notify(server: PostgresServer, statement: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(statement.encode())


def warm_up(store: JobStore) -> None:
    """Several connections are open, and idle."""
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: store.count(), range(40)))


@pytest.mark.timeout(90)
def test_the_first_calls_after_a_restart_succeed(start_postgres: Callable[..., PostgresServer]) -> None:
    server = start_postgres(fsync=False)
    with closing(open_store(server.create_database("jobs"))) as store:
        store.upgrade()
        warm_up(store)
        server.stop("fast")
        with pytest.raises(DatabaseUnreachable, match=r"refused|No such file|closed the connection"):
            store.enqueue([new_job()])
        server.start()
        began = time.monotonic()
        assert store.enqueue([new_job()])[0].created
        assert len(store.claim("worker", ["default"], 1)) == 1
        assert put(store).state == "queued"
        assert time.monotonic() - began < 20


def test_sessions_that_were_ended_while_idle_are_not_noticed(
    scratch: tuple[str, str], postgres_server: PostgresServer
) -> None:
    name, url = scratch
    with closing(open_store(url)) as store:
        warm_up(store)
        postgres_server.terminate_backends(name)
        assert [store.enqueue([new_job()])[0].created for _ in range(5)] == [True] * 5


def test_a_call_is_repeated_over_a_new_session_and_not_over_another_that_is_ending(
    scratch: tuple[str, str], postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends all sessions is a moment ahead of the news: each looks alive until it is used."""
    name, url = scratch
    with closing(open_store(url)) as store:
        warm_up(store)
        postgres_server.terminate_backends(name)
        monkeypatch.setattr(QuickConnection, "is_quiet", lambda _: True)
        assert [store.enqueue([new_job()])[0].created for _ in range(5)] == [True] * 5


def test_a_session_that_is_lost_in_a_transaction_costs_one_repeat_and_no_error(
    scratch: tuple[str, str],
) -> None:
    database = PostgresDatabase(scratch[1])
    lost = []

    def work(session: Any) -> int:
        pid = session.connection.info.backend_pid
        if not lost:
            lost.append(pid)
            with psycopg.connect(scratch[1], autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        return int(session.tuples("schema_version")[0][0])

    assert database.transact(work) == 1
    database.close()


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres_server.port) as proxy:
        yield proxy


LOST = {
    "one": (b"INSERT INTO", [new_job()]),
    "one with a lane": (b"COMMIT", [new_job(lane="a")]),
    "one with a key": (b"COMMIT", [new_job(unique_key="k", on_duplicate="raise")]),
    "several": (b"COMMIT", [new_job() for _ in range(3)]),
    "several in a group": (b"COMMIT", [new_job(group="g") for _ in range(3)]),
    "many": (b"COMMIT", Batch({"task": "work"}, new_ids(60), [{}] * 60, lambda _: "{}")),
}


@pytest.mark.parametrize("case", LOST)
def test_an_enqueue_whose_answer_was_lost_is_repeated_and_stores_its_jobs_once(
    case: str, proxy: Proxy, scratch: tuple[str, str]
) -> None:
    """Ids are the client's own: whoever finds one at the second try has made it at the first."""
    marker, jobs = LOST[case]
    url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{scratch[0]}?sslmode=disable"
    # Nothing is prepared in pooler mode, so that the proxy sees every statement's text.
    with closing(open_store(url, pooler=True)) as store:
        first = put(store)
        proxy.drop_reply(marker)
        made = store.enqueue(jobs)
        assert proxy.dropped.is_set()
        assert [(one.id, one.created) for one in made] == [(job.id, True) for job in jobs]
        assert {job.id for job in store.list_jobs(limit=100).jobs} == {first.id, *(job.id for job in jobs)}
        assert not any(one.created for one in store.enqueue(jobs)), "a repeat of the caller is told as one"


def test_connections_that_may_only_read_are_replaced_as_soon_as_they_need_not_be(
    scratch: tuple[str, str], postgres_server: PostgresServer
) -> None:
    name, url = scratch
    notify(postgres_server, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with closing(open_store(url)) as store:
        warm_up(store)
        with pytest.raises(DatabaseUnreachable, match="read-only"):
            store.enqueue([new_job()])
        warm_up(store)
        notify(postgres_server, f"ALTER DATABASE {name} RESET default_transaction_read_only")
        assert store.enqueue([new_job()])[0].created
        assert store.claim("worker", ["default"], 1)
        with store._postgres.lend(5) as (session, _):  # type: ignore[attr-defined]
            session.run("insert_worker_name", worker="me")


SETTINGS = {
    "timezone": "Asia/Tokyo",
    "datestyle": "German",
    "client_encoding": "LATIN1",
    "array_nulls": "off",
    "default_transaction_isolation": "serializable",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_database_that_would_harm_are_overruled(
    name: str, scratch: tuple[str, str], postgres_server: PostgresServer
) -> None:
    notify(postgres_server, f"ALTER DATABASE {scratch[0]} SET {name} = '{SETTINGS[name]}'")
    with closing(open_store(scratch[1])) as store:
        job = put(store, args='{"text": "żółw"}', lane="a")
        assert job.created_at.utcoffset().total_seconds() == 0
        (grant,) = store.claim("worker", ["default"], 1)
        assert grant.id == job.id
        assert store._postgres.single(  # type: ignore[attr-defined]
            lambda session: session.connection.execute(f"SHOW {name}".encode()).fetchone()
        ) != (SETTINGS[name],)


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "client_encoding"])
def test_behind_a_pooler_such_a_setting_is_refused_by_name_with_the_remedy(
    name: str, scratch: tuple[str, str], postgres_server: PostgresServer
) -> None:
    """The pooler takes client_encoding along, and nothing else."""
    notify(postgres_server, f"ALTER DATABASE {scratch[0]} SET {name} = '{SETTINGS[name]}'")
    with pytest.raises(
        DatabaseUnfit, match=rf"{name} is '{SETTINGS[name]}.*ALTER ROLE postgres SET {name} ="
    ):
        open_store(scratch[1], pooler=True)
    notify(postgres_server, f"ALTER DATABASE {scratch[0]} RESET {name}")
    open_store(scratch[1], pooler=True).close()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_in_another_encoding_is_refused_by_name(
    encoding: str, postgres_server: PostgresServer
) -> None:
    name = f"in_{encoding.lower()}"
    notify(
        postgres_server,
        f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    )
    with pytest.raises(DatabaseUnfit, match=f"its encoding is {encoding}.*UTF8"):
        open_store(postgres_server.url(name))


def test_options_in_the_url_are_kept(scratch: tuple[str, str]) -> None:
    database = PostgresDatabase(f"{scratch[1]}{'&' if '?' in scratch[1] else '?'}options=-c%20work_mem%3D5MB")
    shown = database.single(
        lambda session: session.connection.execute(
            "SELECT current_setting('work_mem'), current_setting('jit')"
        ).fetchone()
    )
    assert shown == ("5MB", "off")
    database.close()


def test_a_url_with_several_hosts_serves_an_app_and_its_commands(
    scratch: tuple[str, str], postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form for a failover. Nothing listens on port 1."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    hosts = f"127.0.0.1:1,127.0.0.1:{postgres_server.port}"
    with Leasehold(f"postgresql://postgres@{hosts}/{scratch[0]}") as app:

        @app.command()
        def greet() -> list[str]:
            return ["echo", "hello"]

        job = greet.enqueue()
        burst(app)
        assert job.refresh().state == "succeeded"


# --- rights ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def reader(scratch: tuple[str, str], postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a role that may read and no more."""
    name, url = scratch
    role = f"reader_{name}"
    notify(postgres_server, f"CREATE ROLE {role} LOGIN")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"GRANT USAGE ON SCHEMA leasehold TO {role}".encode())
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA leasehold TO {role}".encode())
    yield url.replace("postgres@", f"{role}@")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {role}".encode())
    notify(postgres_server, f"DROP ROLE {role}")


def test_a_right_that_is_missing_is_told_with_the_role_and_the_object(reader: str) -> None:
    with closing(open_store(reader)) as store:
        assert store.count()["queued"] == 0
        with pytest.raises(PermissionMissing, match=r"role 'reader_.*permission denied for table.*GRANT"):
            store.enqueue([new_job()])
        with pytest.raises(PermissionMissing):
            store.upgrade()


def test_commands_without_rights_end_with_one_sentence_and_their_code(
    reader: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["db", "upgrade", "--url", reader]) == 6
    reported = capsys.readouterr().err.strip()
    assert reported.startswith("error: role 'reader_")
    assert "\n" not in reported
    assert run(["queues", "pause", "default", "--url", reader]) == 6
    assert run(["doctor", "--url", reader]) in (0, 1)


def test_a_worker_without_rights_says_so_once_and_is_not_well(
    reader: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Leasehold(reader)

    @app.task
    async def work() -> None: ...

    async def live() -> None:
        async with app.worker(poll=0.05) as worker:
            deadline = time.monotonic() + 30
            failures = 0
            seen = None
            while failures < 3:
                assert time.monotonic() < deadline
                if worker._claimer.trouble is not seen:
                    seen, failures = worker._claimer.trouble, failures + 1
                await asyncio.sleep(0.01)
            assert not worker.health().ok
            assert "permission denied" in worker.health().problems[0]

    asyncio.run(live())
    app.close()
    reported = [
        record.getMessage() for record in caplog.records if "no claims for now" in record.getMessage()
    ]
    assert len(reported) == 1
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    ("code", "kind"), [("XX001", DatabaseDamaged), ("XX002", DatabaseDamaged), ("XX000", DatabaseUnreachable)]
)
def test_damage_that_the_server_meets_is_an_error_of_the_store(scratch: tuple[str, str], code, kind) -> None:
    with closing(open_store(scratch[1])) as store:
        with psycopg.connect(scratch[1], autocommit=True) as connection:
            connection.execute(
                "CREATE FUNCTION leasehold.break() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                f" RAISE EXCEPTION 'invalid page in block 7' USING ERRCODE = '{code}'; END $$;"
                "CREATE TRIGGER break BEFORE INSERT ON leasehold.job EXECUTE FUNCTION leasehold.break()"
            )
        with pytest.raises(kind, match="invalid page in block 7"):
            store.enqueue([new_job()])


def test_a_table_that_is_gone_is_told_as_such(scratch: tuple[str, str]) -> None:
    with closing(open_store(scratch[1])) as store:
        with psycopg.connect(scratch[1], autocommit=True) as connection:
            connection.execute("DROP SCHEMA leasehold CASCADE")
        with pytest.raises(SchemaIncomplete, match="does not exist"):
            store.enqueue([new_job()])


def test_who_listens_goes_on_after_an_error_of_the_one_it_calls(scratch: tuple[str, str]) -> None:
    """Its thread would end without a word, and every wake-up would wait for the poll."""
    received: queue.Queue[Hint] = queue.Queue()
    fails = [True]

    def call(hint: Hint) -> None:
        if fails and hint != ANYTHING:
            fails.clear()
            raise RuntimeError("the loop is closed")
        received.put(hint)

    _, url = scratch
    wakeups = PostgresWakeups(url, {"trouble": "a store of this test"})
    with closing(wakeups), psycopg.connect(url, autocommit=True) as connection:
        wakeups.subscribe(call)
        assert received.get(timeout=20) == ANYTHING
        connection.execute("NOTIFY trouble")
        assert received.get(timeout=20) == ANYTHING, (
            "it listens again, and looks once for what it may have missed"
        )
        connection.execute("NOTIFY trouble")
        assert received.get(timeout=20) == Hint.WORK
        assert wakeups.listens
