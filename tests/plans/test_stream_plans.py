"""Statements on the events of a few jobs read those, however many events others have left, and whoever has analysed."""

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

JOBS, EVENTS = 100, 1000
"""And as many events each. One in ten has a key, one is the progress."""
RUNNING = 20
PAGE = 500
ROWS = 2000
"""No step of a plan may meet more: a page of events, or the keys of a batch, and a little."""
STEPS = 60_000
MOST = 1000
"""Rows of a table that is read whole by right."""
TABLES = ("job_update", "stream", "log_tail")


def calls(ids: list[str]) -> list[Call]:
    keys = [{"job_id": job_id, "key": f"key-{n}"} for job_id in ids[:5] for n in range(0, EVENTS, 10)]
    new = [
        {"job_id": ids[0], "seq": EVENTS + n, "kind": "item", "data": "1", "key": f"new-{n}", "attempt": 1}
        for n in range(2, PAGE)
    ]
    return [
        Call("read_streams", {"ids": ids[:5]}),
        Call("find_keys", {"keys": Records(keys)}),
        Call("drop_progress", {"ids": ids[:5]}),
        Call("insert_updates", {"updates": Records(new)}),
        Call("read_stream", {"id": ids[3], "since": 0, "limit": PAGE}),
        Call("read_stream", {"id": ids[3], "since": EVENTS - 3, "limit": PAGE}),
        Call("read_progress", {"id": ids[3]}),
        Call("read_logs", {"id": ids[3]}),
        Call("list_emitted", {"ids": ids[:RUNNING], "limit": 5}),
        Call("list_group_running", {"name": "g", "tasks": None, "limit": 100}),
        Call("group_notes", {"names": ["g", "other"]}),
        Call("prune_updates", {"ids": ids[:1]}),
    ]


def fill(scene: Any, ids: list[str]) -> None:
    scene.store.enqueue([new_job(id=job_id, group="g") for job_id in ids])
    assert len(scene.store.claim("worker-1", ["default"], RUNNING)) == RUNNING

    def work(session: Any) -> None:
        for job_id in ids:
            events = [
                {
                    "job_id": job_id,
                    "seq": n + 1,
                    "kind": "progress" if n == EVENTS - 1 else "item",
                    "data": '{"n":1}',
                    "key": f"key-{n}" if n % 10 == 0 else None,
                    "attempt": 1,
                }
                for n in range(EVENTS)
            ]
            session.run("insert_updates", updates=Records(events))
            session.run(
                "append_logs", logs=Records([{"job_id": job_id, "attempt": 1, "text": "x", "cut": 0}]), cap=10
            )
            mark = {"job_id": job_id, "last_seq": EVENTS, "token": 1, "last_note": EVENTS}
            session.run("write_streams", streams=Records([mark]))

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
    scene = SqliteScene(tmp_path / "events.db")
    fill(scene, ids)
    for analysed in (False, True):
        if analysed:
            scene.analyse()
        plans = [scene.explain(call) for call in calls(ids)]
        scans = [
            f"{plan.statement}: {line}"
            for plan in plans
            for line in plan.lines
            if line.startswith("SCAN") and line.split()[1].removeprefix("leasehold_") in (*TABLES, "e")
        ]
        assert scans == []
        assert {plan.statement: plan.steps for plan in plans if plan.steps > STEPS} == {}
    scene.close()
