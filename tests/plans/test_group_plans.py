"""What a group's status and a stop read is their own scope, among 50,000 jobs that are none of their business."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.backends import new_job
from tests.plans import sqlite as sqlite_plans
from tests.plans.hot import Call
from tests.plans.postgres import MODES
from tests.plans.postgres import Scene as PostgresScene
from tests.plans.sqlite import Scene as SqliteScene

OTHERS = 50_000
OWN = 300
"""Jobs of the group, and as many with the tag and in the lane."""
ROWS = 5 * OWN
"""No step of a plan may meet more."""
STEPS = 100_000
LAST = "ffffffff-ffff-ffff-ffff-ffffffffffff"
SCOPE: dict[str, Any] = {"before": LAST, "limit": 10_000, "group": "g", "lane": "l", "tag": "x"}
SCOPE |= {"kinds": ["work"], "tags": ["x"], "tag_count": 1}
STOPS = {
    "stop_in_group": ("find_stoppable.in_group", "find_stoppable.where_kinds"),
    "stop_in_lane": ("find_stoppable.in_lane",),
    "stop_with_tag": ("find_stoppable.with_tag", "find_stoppable.where_tags"),
    "stop_running": ("find_stoppable.running", "find_stoppable.where_group"),
}


def compose(statements: dict[str, str]) -> dict[str, str]:
    """The parts put together as the store does it."""
    page = statements["find_stoppable.page"]
    return {name: " ".join([*(statements[part] for part in parts), page]) for name, parts in STOPS.items()}


def calls(statements: dict[str, str]) -> list[Call]:
    which = {"name": "g", "kinds": None}
    return [
        Call("get_group", {"name": "g"}),
        Call("group_versions", {"names": ["g", "other"]}),
        Call("count_group", which),
        Call("list_group_results", which | {"limit": 100}),
        Call("list_group_errors", which | {"limit": 100, "length": 2000}),
        Call("count_group_questions", which),
        *(Call(name, _used(statements[name])) for name in STOPS),
    ]


def _used(text: str) -> dict[str, Any]:
    return {name: value for name, value in SCOPE.items() if f":{name}" in text or f"%({name})s" in text}


def fill(scene: Any) -> None:
    scene.load("finished", OTHERS)
    store = scene.store
    for scope in ({"group": "g"}, {"tags": ("x",)}, {"lane": "l"}):
        store.enqueue([new_job(**scope) for _ in range(OWN)])
    store.enqueue([new_job(group=f"other-{n}", tags=(f"other-{n}",), lane=f"other-{n}") for n in range(3000)])
    assert len(store.claim("worker-1", ["default"], 50)) == 50


@pytest.mark.parametrize("analysed", [False, True])
def test_on_postgres(analysed: bool, postgres_url: str, postgres_schema: str) -> None:
    scene = PostgresScene(postgres_url, postgres_schema)
    fill(scene)
    if analysed:
        scene.query("ANALYZE")
    composed = compose(scene.database._statements)
    scene.database._statements |= composed
    plans = [scene.explain(call, mode) for call in calls(composed) for mode in MODES]
    scene.close()
    assert [f"{plan}: {node}" for plan in plans for node in plan.nodes if node.rows > ROWS] == []
    whole = [
        f"{plan}: {node}"
        for plan in plans
        for node in plan.nodes
        if node.kind == "Seq Scan" and node.table == "job"
    ]
    assert whole == []


@pytest.mark.parametrize("analysed", [False, True])
def test_on_sqlite(analysed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = SqliteScene(tmp_path / "groups.db")
    fill(scene)
    if analysed:
        scene.analyse()
    composed = compose(sqlite_plans._STATEMENTS)
    for name, text in composed.items():
        monkeypatch.setitem(sqlite_plans._STATEMENTS, name, text)
    plans = [scene.explain(call) for call in calls(composed)]
    scene.close()
    scans = [
        f"{p.statement}: {line}"
        for p in plans
        for line in p.lines
        if line.startswith(("SCAN job", "SCAN j "))
    ]
    # What was counted or found by an index is then looked at as a list of its own, called j.
    assert [scan for scan in scans if "USING INDEX" not in scan and not scan.endswith("SCAN j")] == []
    assert {plan.statement: plan.steps for plan in plans if plan.steps > STEPS} == {}
