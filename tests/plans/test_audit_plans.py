"""A page of the audit is an indexed read, however much was done before, and however rarely by the one asked about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.plans.postgres import MODES
from tests.plans.postgres import Scene as PostgresScene
from tests.plans.sqlite import Scene as SqliteScene
from tests.plans.traced import Call

ENTRIES = 20_000
LIMIT = 51
RARE = 1000
"""One entry in so many is of the rare ones."""
ROWS = 200
"""Rows that one node of a plan may hand on: a page, and a batch of the pruner."""
STEPS = 20_000


def calls() -> list[Call]:
    requested = [
        {},
        {"actor": "often"},
        {"actor": "rare"},
        {"actor": "nobody"},
        {"verb": "job.cancel"},
        {"verb": "tenant.drop"},
        {"target": "often"},
        {"target": "rare"},
    ]
    lists = [
        Call(
            "list_audit",
            {"before": 2**63 - 1, "limit": LIMIT, **one},
            tuple(f"list_audit{part.format(*one or ['seq'])}" for part in ("", ".by_{}", ".page_by_{}")),
        )
        for one in requested
    ]
    return [
        *lists,
        Call("find_old_audit", {"age": 1e6, "limit": 100}),
        Call("prune_audit", {"seqs": list(range(1, 101))}),
    ]


def fill(scene: Any) -> None:
    def work(session: Any) -> None:
        for number in range(ENTRIES):
            rare = number % RARE == 0
            session.run(
                "insert_audit",
                actor="rare" if rare else "often",
                verb="tenant.drop" if rare else "job.cancel",
                target="rare" if rare else "often",
                detail="{}",
                outcome="done",
                error=None,
            )

    scene.database.transact(work)


def test_on_postgres(postgres_url: str, postgres_schema: str) -> None:
    scene = PostgresScene(postgres_url, postgres_schema)
    fill(scene)
    for analysed in (False, True):
        if analysed:
            scene.query("ANALYZE leasehold.audit")
        plans = [scene.explain(call, mode) for call in calls() for mode in MODES]
        whole = [f"{plan}: {node}" for plan in plans for node in plan.nodes if node.kind == "Seq Scan"]
        assert whole == []
        assert [f"{plan}: {node}" for plan in plans for node in plan.nodes if node.rows > ROWS] == []
    scene.close()


def test_on_sqlite(tmp_path: Path) -> None:
    scene = SqliteScene(tmp_path / "audit.db")
    fill(scene)
    for analysed in (False, True):
        if analysed:
            scene.analyse()
        plans = [scene.explain(call) for call in calls()]
        sorts = [
            f"{plan.statement}: {line}" for plan in plans for line in plan.lines if "TEMP B-TREE" in line
        ]
        assert sorts == []
        assert {plan.statement: plan.steps for plan in plans if plan.steps > STEPS} == {}
    scene.close()
