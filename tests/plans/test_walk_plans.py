"""What a list, a count, a group's status and a stop read is what they are about, among 50,000 jobs that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.domain.records import Filter
from leasehold.domain.states import State
from leasehold.domain.stop import StopScope
from leasehold.stores.store import JobStore
from leasehold.stores.verbs.inspect import WINDOW
from tests.backends import new_job
from tests.plans.postgres import MODES
from tests.plans.postgres import Scene as PostgresScene
from tests.plans.sqlite import Scene as SqliteScene
from tests.plans.traced import Call, Traced

OTHERS = 50_000
OWN = 300
"""Jobs of the group, and as many with the tag and in the lane."""
ROWS = 5 * OWN
"""No step of a plan may meet more."""
IN_LANES = 4 * OWN + 3000
"""What is queued in lanes has no order of its own: a list of queued jobs reads and sorts all of it."""
STEPS = 150_000
STEPS_A_ROW = 60

INDEXES = {
    "list_jobs, jobs": "job_pkey",
    "list_jobs, members": "member_pkey",
    "list_jobs, tagged": "tag_pkey",
    "list_jobs, in_lane": "lane_place_pkey",
    "list_jobs, failed": "outcome_notable",
    "list_jobs, cancelled": "outcome_notable",
    "list_jobs, timed_out": "outcome_notable",
    "list_jobs, ended": "outcome_pkey",
    "list_jobs, waiting": "parked_state",
    "list_jobs, paused": "parked_state",
    "list_jobs, pending": "parked_state",
    "find_stoppable, members": "member_pkey",
    "find_stoppable, tagged": "tag_pkey",
    "find_stoppable, in_lane, lane_holders, pending": "lane_place_pkey",
    "read_group_counts": "member_pkey",
    "list_group_results": "member_pkey",
    "find_neighbours": "job_id",
    "find_ids_between": "job_id",
}
"""The index that the way begins with, if its table is not small."""


def walk(store: JobStore) -> list[Call]:
    """Pages that an index serves."""
    with Traced(store) as calls:
        for state in State:
            store.list_jobs(Filter(states=(state,)))
        for filter in (
            Filter(),
            Filter(group="g"),
            Filter(tag="x"),
            Filter(lane="l", states=(State.QUEUED,)),
        ):
            store.list_jobs(filter)
        store.list_jobs(Filter(group="g", states=(State.QUEUED,)))
        store.list_jobs(Filter(group="group-10"))
        for scope in (StopScope(group="g", tasks=("work",)), StopScope(lane="l"), StopScope(tags=("x",))):
            store.find_stoppable(scope)
            store.find_stoppable(scope, running=True)
        store.group_status("g")
        store.group_status("group-10")
        store.group_versions(["g", "other"])
        listed = [job.id for job in store.list_jobs(Filter()).jobs]
        store.short_ids(listed)
        store.find_ids(listed[0][:23])
    return calls


def search(store: JobStore) -> list[Call]:
    """Pages that no index serves: they end after so many rows, and say where to go on."""
    with Traced(store) as calls:
        for filter in (Filter(queue="nowhere"), Filter(task="none"), Filter(lane="l")):
            page = store.list_jobs(filter)
            assert page.next is not None
            store.list_jobs(filter, cursor=page.next)
        store.list_jobs(Filter(queue="nowhere", states=(State.QUEUED, State.SUCCEEDED)))
        store.find_stoppable(StopScope(queue="nowhere"))
        store.count()
        store.count_by_queue()
    return calls


def fill(scene: PostgresScene | SqliteScene) -> None:
    scene.load("finished", OTHERS)
    store = scene.store
    for scope in ({"group": "g"}, {"tags": ("x",)}, {"lane": "l"}):
        store.enqueue([new_job(**scope) for _ in range(OWN)])
    store.enqueue([new_job(group=f"other-{n}", tags=(f"other-{n}",), lane=f"other-{n}") for n in range(3000)])
    assert len(store.claim("worker-1", ["default"], 50)) == 50
    assert store.misplaced() == []


def _bound(statement: str) -> int:
    return IN_LANES if ", lanes" in statement else ROWS


def test_on_postgres(postgres_url: str, postgres_schema: str, subtests: pytest.Subtests) -> None:
    scene = PostgresScene(postgres_url, postgres_schema)
    fill(scene)
    for analysed in (False, True):
        if analysed:
            scene.analyse()
        served = [scene.explain(call, mode) for call in walk(scene.store) for mode in MODES]
        searched = [scene.explain(call, mode) for call in search(scene.store) for mode in MODES]
        with subtests.test("what an index serves reads a page, or what is queued in lanes"):
            assert [wrong for plan in served for wrong in plan.too_many_rows(_bound(plan.statement))] == []
        with subtests.test("by the index that it was meant for"):
            assert {plan.statement for plan in served} >= set(INDEXES)
            wrong = [
                f"{plan}: {INDEXES[plan.statement]}"
                for plan in served
                if plan.statement in INDEXES
                and INDEXES[plan.statement] not in {node.index for node in plan.nodes}
                and plan.is_large(INDEXES[plan.statement])
            ]
            assert wrong == []
        with subtests.test("what none serves ends in time"):
            assert [wrong for plan in searched for wrong in plan.too_many_rows(WINDOW + 1)] == []
    scene.close()


def test_on_sqlite(tmp_path: Path) -> None:
    scene = SqliteScene(tmp_path / "walks.db")
    fill(scene)
    for analysed in (False, True):
        if analysed:
            scene.analyse()
        served = [scene.explain(call) for call in walk(scene.store)]
        searched = [scene.explain(call) for call in search(scene.store)]
        assert {plan.statement: plan.steps for plan in served if plan.steps > STEPS} == {}
        assert {p.statement: p.steps for p in searched if p.steps > STEPS_A_ROW * WINDOW} == {}
    scene.close()
