"""A scrape and a beat read what they are about, however many jobs wait and have ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leasehold.domain.metrics import BOUNDS, Histogram, Rollup
from leasehold.domain.outcome import Success
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from tests.backends import new_job
from tests.plans.postgres import MODES
from tests.plans.postgres import Scene as PostgresScene
from tests.plans.sqlite import Scene as SqliteScene
from tests.plans.traced import Call, Traced

ENDED, QUEUED, RUNNING = 4000, 4000, 20
MINUTES = 3000
"""Of rollups, beside the totals."""
ROWS = 200
STEPS = 20_000
NEVER = {"outcome", "attempt"}
"""Tables that neither may touch."""


def one(task: str) -> Rollup:
    times = Histogram((1, *[0] * len(BOUNDS)), 0.1)
    return Rollup("default", task, "succeeded", 1, times, times)


def fill(scene: Any) -> None:
    store: JobStore = scene.store
    store.enqueue([new_job() for _ in range(ENDED)])
    while grants := store.claim("w", ["default"], 1000):
        store.settle([Ending(grant.id, grant.token, Success(), grant.seq) for grant in grants])
    store.enqueue([new_job(priority=n % 3) for n in range(QUEUED)])
    store.claim("w", ["default"], RUNNING)
    store.add_rollups([one("work")])
    zero = "to_timestamp(0)" if isinstance(scene, PostgresScene) else "0"
    numbers = (
        f"SELECT to_timestamp(60 * n) AS minute FROM generate_series(1, {MINUTES}) AS n"
        if isinstance(scene, PostgresScene)
        else f"WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {MINUTES})"
        " SELECT 60000000 * n AS minute FROM s"
    )
    scene.query(
        "INSERT INTO leasehold.rollup SELECT m.minute, r.queue, r.task, r.outcome, r.runs, r.wait_seconds,"
        " r.run_seconds, r.wait_buckets, r.run_buckets"
        f" FROM leasehold.rollup AS r, ({numbers}) AS m WHERE r.minute = {zero}"
    )


def calls_of(store: JobStore) -> list[Call]:
    with Traced(store, undone=True) as calls:
        store.totals()
        store.gauges()
        store.list_rollups(3600.0)
        store.add_rollups([one("work"), one("mail")])
        store.add_rollups([one("work")])
    return [call for call in calls if call.statement not in ("lock_rollups", "read_slots")]


def test_on_postgres(postgres_url: str, postgres_schema: str) -> None:
    scene = PostgresScene(postgres_url, postgres_schema)
    fill(scene)
    for analysed in (False, True):
        if analysed:
            scene.analyse()
        plans = [scene.explain(call, mode) for call in calls_of(scene.store) for mode in MODES]
        assert len(plans) >= 7 * len(MODES)
        touched = [f"{plan}: {node}" for plan in plans for node in plan.nodes if node.table in NEVER]
        assert touched == []
        assert [f"{plan}: {node}" for plan in plans for node in plan.nodes if node.rows > ROWS] == []
    scene.close()


def test_on_sqlite(tmp_path: Path) -> None:
    scene = SqliteScene(tmp_path / "metrics.db")
    fill(scene)
    for analysed in (False, True):
        if analysed:
            scene.analyse()
        plans = [scene.explain(call) for call in calls_of(scene.store)]
        assert len(plans) >= 7
        touched = [
            f"{plan.statement}: {line}"
            for plan in plans
            for line in plan.lines
            if "leasehold_outcome" in line
        ]
        assert touched == []
        assert {plan.statement: plan.steps for plan in plans if plan.steps > STEPS} == {}
    scene.close()
