"""`leasehold db insert TASK`: what it prints makes a job that a worker runs, with a bare driver and nothing of ours."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time

import pytest

from leasehold import Leasehold, Retry
from tests.backends import new_id
from tests.workers import burst, until

TASKS = """
import os
from leasehold import Leasehold, Retry
app = Leasehold(schema=os.environ["LEASEHOLD_SCHEMA"])

@app.task(name="it:id-leasehold.x", queue="from-sql", priority=7, lease=12, retry=Retry(max_attempts=5, backoff=0.5))
def greet(name: str) -> str:
    return f"hello {name}"

for _name, _settings in {
    "lane": {"lane": "{name}"}, "unique": {"unique": "x"}, "tags": {"tags": ("x",)}, "slots": {"slots": {"s": 1}},
    "rate": {"rate": "r"}, "deadline": {"deadline": "1h"}, "start_by": {"start_by": "1h"},
    "queueing": {"queueing": False},
}.items():
    @app.task(name=f"with_{_name}", **_settings)
    def _special(name: str) -> None: ...
"""


@pytest.fixture
def module(cli):
    (cli.folder / "inserts.py").write_text(TASKS)
    return "inserts:app"


def run_sql(backend, text: str, job_id: str, args: object) -> None:
    """As another language would."""
    given = json.dumps(args)
    if backend.name == "postgres":
        import psycopg

        with psycopg.connect(backend.url) as connection:
            psycopg.RawCursor(connection).execute(text, [job_id, given])
        return
    connection = sqlite3.connect(backend.url.removeprefix("sqlite:///"))
    with connection:
        for statement in text.split(";")[:-1]:
            connection.execute(statement, {"id": job_id, "args": given})
    connection.close()


def test_what_it_prints_makes_a_job_that_a_worker_runs(cli, backend, module):
    printed = cli("db", "insert", module, "it:id-leasehold.x")
    assert printed.code == 0, printed.err
    assert len(backend.query("delete from leasehold.gate where queue = 'from-sql' returning task")) == 1
    job_id = new_id()
    for _ in range(2):
        run_sql(backend, printed.out.strip(), job_id.upper(), {"name": "O'Hara"})

    with Leasehold(backend.url, schema=backend.schema) as app:

        @app.task(
            name="it:id-leasehold.x",
            queue="from-sql",
            priority=7,
            lease=12,
            retry=Retry(max_attempts=5, backoff=0.5),
        )
        def greet(name: str) -> str:
            return f"hello {name}"

        job, like = app.get(job_id), greet.enqueue("B")
        row, twin = job.__row__, like.refresh().__row__
        for name in ("queue", "priority", "policy", "gate", "special", "lane", "state"):
            assert getattr(row, name) == getattr(twin, name)
        assert backend.query(
            "select count(*), min(lease_seconds), max(lease_seconds) from leasehold.ready"
        ) == [(2, 12, 12)]
        assert abs((row.created_at - twin.created_at).total_seconds()) < 20
        assert app.__internals__.store.misplaced() == []
        burst(app, queues=["from-sql"])
        assert job.result(timeout=0) == "hello O'Hara"


def test_an_idle_worker_is_woken_by_it(cli, backend, module):
    text = cli("db", "insert", "it:id-leasehold.x", LEASEHOLD_APP=module).out.strip()
    with Leasehold(backend.url, schema=backend.schema) as app:

        @app.task(name="it:id-leasehold.x", queue="from-sql")
        def greet(name: str) -> float:
            return time.time()

        async def run() -> float:
            async with app.worker(queues=["from-sql"], poll=30.0):
                await until(lambda: len(app.__internals__.store.list_workers()) == 1)
                waits = []
                for _ in range(3):
                    job_id, requested = new_id(), time.time()
                    await asyncio.to_thread(run_sql, backend, text, job_id, {"name": "x"})
                    waits.append(await app.get(job_id).aresult(timeout=60) - requested)
                return min(waits)

        assert asyncio.run(run()) < 15.0, "with a poll of 30 s only a wake-up can be that quick"


def test_what_plain_sql_cannot_keep_is_refused_by_name(cli, module):
    for name in ("lane", "unique", "tags", "slots", "rate", "deadline", "start_by", "queueing"):
        answer = cli("db", "insert", module, f"with_{name}")
        assert (answer.code, answer.out) == (2, ""), name
        assert answer.err.startswith(f"{name}: ") or f" {name}: " in answer.err, answer.err
    assert "no task" in cli("db", "insert", module, "nobody").err
    assert cli("db", "insert", module).code == 2


def test_its_role_needs_no_more_than_the_page_says(cli, module, postgres_url, postgres_schema):
    """docs/concepts/transactions.md: INSERT on gate, job and ready, SELECT on job."""
    import psycopg

    place = {"LEASEHOLD_URL": postgres_url, "LEASEHOLD_SCHEMA": postgres_schema}
    assert cli("db", "upgrade", **place).code == 0
    text = cli("db", "insert", module, "it:id-leasehold.x", **place).out.strip()
    role = f"teller_{time.time_ns()}"
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"create role {role}")
        connection.execute(f"grant usage on schema {postgres_schema} to {role}")
        for table in ("gate", "job", "ready"):
            connection.execute(f"grant insert on {postgres_schema}.{table} to {role}")
        connection.execute(f"grant select on {postgres_schema}.job to {role}")
        connection.execute(f"set role {role}")
        psycopg.RawCursor(connection).execute(text, [new_id(), '{"name": "x"}'])
        connection.execute("reset role")
        assert connection.execute(f"select count(*) from {postgres_schema}.ready").fetchall() == [(1,)]
        connection.rollback()
