"""Statements on budgets and questions read what they are about, however much others have asked and spent before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leasehold.stores.database.database import Records
from tests.backends import new_id, new_job
from tests.plans.postgres import MODES
from tests.plans.postgres import Scene as PostgresScene
from tests.plans.sqlite import Scene as SqliteScene
from tests.plans.traced import Call

JOBS, EACH = 2000, 10
"""Questions and ledger rows of each job; one question of the last 20 jobs is open."""
OPEN = 20
ROWS = 500
STEPS = 20_000
MOST = 1000
"""Rows of a table that is read whole by right."""
TABLES = ("question", "spending", "budget")


def calls(ids: list[str]) -> list[Call]:
    spends = [{"key": f"new-{n}", "unit": "tokens", "amount": n} for n in range(20)]
    totals = [{"scope": "job", "name": ids[5], "unit": f"unit-{n}", "spent": 1} for n in range(5)]
    return [
        Call("read_question", {"id": ids[5], "key": "key-3"}),
        Call("list_questions", {"id": ids[5]}),
        Call("find_passed_limits", {"limit": 500}),
        Call("close_expired_questions", {"ids": ids[-3:]}),
        Call("close_questions", {"ids": ids[:3]}),
        Call("find_spender", {"id": ids[5]}),
        Call("lock_spender", {"id": ids[5]}),
        Call("insert_spending", {"id": ids[5], "token": 1, "attempt": 1, "spends": Records(spends)}),
        Call("add_spent", {"totals": Records(totals)}),
        Call("read_budget", {"id": ids[5], "group": "g"}),
        Call("list_spending", {"id": ids[5]}),
        Call("prune_spending", {"ids": ids[:3]}),
        Call("prune_budgets", {"ids": ids[:3]}),
    ]


def fill(scene: Any, ids: list[str]) -> None:
    scene.store.enqueue([new_job(id=job_id) for job_id in ids])

    def work(session: Any) -> None:
        for job_id in ids:
            for n in range(EACH):
                session.run(
                    "open_question",
                    id=job_id,
                    key=f"key-{n}",
                    text="?",
                    schema=None,
                    secret=False,
                    seconds=1e6,
                )
            spends = [{"key": f"key-{n}", "unit": "tokens", "amount": 1} for n in range(EACH)]
            session.run("insert_spending", id=job_id, token=1, attempt=1, spends=Records(spends))
            totals = [{"scope": "job", "name": job_id, "unit": "tokens", "spent": EACH}]
            session.run("add_spent", totals=Records(totals))
        session.run("close_questions", ids=ids)
        for job_id in ids[-OPEN:]:
            session.run(
                "open_question", id=job_id, key="key-0", text="?", schema=None, secret=False, seconds=-1.0
            )

    scene.database.transact(work)


@pytest.fixture(scope="module")
def ids() -> list[str]:
    return [new_id() for _ in range(JOBS)]


def test_on_postgres(ids: list[str], postgres_url: str, postgres_schema: str) -> None:
    scene = PostgresScene(postgres_url, postgres_schema)
    fill(scene, ids)
    for analysed in (False, True):
        if analysed:
            for table in TABLES:
                scene.query(f"ANALYZE leasehold.{table}")
        plans = [scene.explain(call, mode) for call in calls(ids) for mode in MODES]
        whole = [
            f"{plan}: {node}"
            for plan in plans
            for node in plan.nodes
            if node.kind == "Seq Scan" and node.table in TABLES and plan.sizes[node.table] > MOST
        ]
        assert whole == []
        assert [f"{plan}: {node}" for plan in plans for node in plan.nodes if node.rows > ROWS] == []
    scene.close()


def test_on_sqlite(ids: list[str], tmp_path: Path) -> None:
    scene = SqliteScene(tmp_path / "control.db")
    fill(scene, ids)
    for analysed in (False, True):
        if analysed:
            scene.analyse()
        plans = [scene.explain(call) for call in calls(ids)]
        scans = [
            f"{plan.statement}: {line}"
            for plan in plans
            for line in plan.lines
            if line.startswith("SCAN") and line.split()[1].removeprefix("leasehold_") in TABLES
            if "question_expiry" not in line
        ]
        assert scans == []
        assert {plan.statement: plan.steps for plan in plans if plan.steps > STEPS} == {}
    scene.close()
