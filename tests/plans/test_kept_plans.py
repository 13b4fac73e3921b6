"""PostgreSQL keeps the plans of prepared statements: those of hot ones it should keep, and none for too long."""

from __future__ import annotations

import pytest

from bench.backgrounds import BATCH, KIND, NOTHING, OWNER, QUEUE
from leasehold.domain.outcome import Success
from leasehold.stores.postgres import connections
from leasehold.stores.postgres.database import PostgresSession
from leasehold.stores.results import Ending
from tests.backends import new_job
from tests.plans.hot import find_work, postgres_calls
from tests.plans.postgres import Scene

OFTEN = 20
"""The driver prepares a statement at its sixth run, and the server considers a plan for all values five runs later."""
ROUNDS = 60
MANY = 20_000


@pytest.mark.parametrize(
    "statement",
    [
        "find_due_groups",
        "find_limited_groups",
        "claim_idle",
        "claim_plain",
        "claim_lanes",
        "settle_plain",
        "settle_succeeded",
    ],
)
def test_a_hot_statement_is_not_planned_for_every_batch(
    statement: str, postgres_url: str, postgres_schema: str
):
    scene = Scene(postgres_url, postgres_schema)
    scene.load(NOTHING, 0)
    scene.load_work()
    scene.analyse()
    calls = postgres_calls(scene.store, find_work(scene.query))
    (call,) = [c for c in calls if c.statement == statement]

    def count_plans(session: PostgresSession) -> list[tuple[int, int]]:
        for _ in range(OFTEN):
            session.tuples(call.statement, **call.parameters)
        return session.connection.execute(
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE generic_plans + custom_plans > 5"
        ).fetchall()

    reported = scene.database.single(count_plans)
    scene.close()
    assert reported == [(OFTEN - 5 - 5, 5)]


def test_a_plan_made_for_a_small_table_is_not_kept_for_a_large_one(
    postgres_url: str, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "PLANS_LAST", 0.0)
    scene = Scene(postgres_url, postgres_schema)
    store = scene.store.another()  # one connection: what it reads is counted in one place

    def settle_some() -> int:
        grants = store.claim(OWNER, [QUEUE], BATCH, [KIND])
        store.settle([Ending(grant.id, grant.token, Success("null"), grant.seq) for grant in grants])
        return len(grants)

    def rows_read_without_index() -> int:
        store._postgres.single(lambda session: session.run_text("SELECT pg_stat_force_next_flush()"))
        reported = scene.query(
            "SELECT sum(seq_tup_read) FROM pg_stat_user_tables"
            f" WHERE schemaname = '{scene.database.schema}' AND relname IN ('job', 'ready', 'lease', 'outcome')"
        )
        return int(reported[0][0])

    for n in range(ROUNDS):
        store.enqueue([new_job(task=KIND, queue=QUEUE)])
        assert settle_some() == 1
        if n == 3:
            scene.analyse()
    store.enqueue([new_job(task=KIND, queue=QUEUE) for _ in range(MANY)])
    before = rows_read_without_index()
    for _ in range(4):
        assert settle_some() == BATCH
    read = rows_read_without_index() - before
    store.close()
    scene.close()
    assert read < MANY
