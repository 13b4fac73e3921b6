"""A page of groups, of budgets or of leases reads what it shows, among many jobs that have ended and groups that are
not asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.domain.groups import GROUP_TOTAL_CAP
from leasehold.stores.database.database import Records
from leasehold.stores.store import JobStore
from tests.backends import new_id, new_job
from tests.plans.postgres import MODES
from tests.plans.postgres import Scene as PostgresScene
from tests.plans.sqlite import Scene as SqliteScene
from tests.plans.traced import Call, Traced

ENDED = 30_000
GROUPS = 8000
LARGE = 3 * GROUP_TOTAL_CAP
"""Jobs of one group: more than are counted."""
LEASES = 50
PAGE = 50
ROWS = GROUP_TOTAL_CAP + 40 * PAGE
"""No step of a plan may meet more: the groups that have ended have 30 jobs each."""
STEPS = 60_000

INDEXES = {
    "list_groups": {"job_group_pkey", "member_pkey"},
    "list_groups_in": {"job_group_state", "member_pkey"},
    "list_budgets": {"budget_pkey"},
    "list_leases": {"job_pkey"},
}


def calls(store: JobStore) -> list[Call]:
    with Traced(store) as calls:
        for look in (store.list_groups, store.list_budgets, store.list_leases):
            page = look(limit=PAGE)
            look(limit=PAGE, cursor=page.next)
        assert len(store.list_groups("held", PAGE).groups) == 1
        assert len(store.list_groups("active", PAGE).groups) == PAGE
        assert len(store.list_budgets("job", PAGE).budgets) == PAGE
        assert len(store.list_leases("worker-1", PAGE).leases) == LEASES
        assert store.list_leases("nobody", PAGE).leases == []
    return calls


def fill(scene: PostgresScene | SqliteScene) -> None:
    scene.load("finished", ENDED)
    store = scene.store
    store.enqueue([new_job(group=f"other-{n:05}") for n in range(GROUPS)])
    store.enqueue([new_job(group="a large one") for _ in range(LARGE)])
    store.stop_group(f"other-{GROUPS - 1:05}", True)
    assert len(store.claim("worker-1", ["default"], LEASES)) == LEASES
    totals = [{"scope": "job", "name": new_id(), "unit": "tokens", "spent": 1} for _ in range(GROUPS)]
    totals += [
        {"scope": "group", "name": f"other-{n:05}", "unit": "tokens", "spent": 1} for n in range(GROUPS)
    ]
    scene.database.transact(lambda session: session.run("add_spent", totals=Records(totals)))


def test_on_postgres(postgres_url: str, postgres_schema: str, subtests: pytest.Subtests) -> None:
    scene = PostgresScene(postgres_url, postgres_schema)
    fill(scene)
    for analysed in (False, True):
        if analysed:
            scene.vacuum()
        # Where no vacuum has been yet, a group that looks small is read whole before it is counted.
        most = ROWS if analysed else ROWS + LARGE
        plans = [scene.explain(call, mode) for call in calls(scene.store) for mode in MODES]
        with subtests.test("every list was looked at"):
            assert {plan.statement for plan in plans} == set(INDEXES)
        with subtests.test("a page reads what it shows"):
            assert [wrong for plan in plans for wrong in plan.too_many_rows(most)] == []
        with subtests.test("by the indexes that it was meant for"):
            missing = [
                f"{plan}: {name}"
                for plan in plans
                for name in INDEXES[plan.statement] - {node.index for node in plan.nodes}
                if plan.is_large(name)
            ]
            assert missing == []
    scene.close()


def test_on_sqlite(tmp_path: Path) -> None:
    scene = SqliteScene(tmp_path / "lists.db")
    fill(scene)
    for analysed in (False, True):
        if analysed:
            scene.analyse()
        plans = [scene.explain(call) for call in calls(scene.store)]
        assert {plan.statement for plan in plans} == set(INDEXES)
        assert {plan.statement: plan.steps for plan in plans if plan.steps > STEPS} == {}
    scene.close()
