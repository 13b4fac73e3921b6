"""A search, the failures and a flow read what they are about, or so many rows and no more, among 50,000 other jobs."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from leasehold.domain.outcome import Failure
from leasehold.domain.policy import Policy
from leasehold.domain.records import Filter
from leasehold.domain.search import Search
from leasehold.domain.states import State
from leasehold.operations.operations import Operations
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.stores.verbs.inspect import ROUND_WINDOW, WINDOW
from tests.backends import new_id, new_job
from tests.plans.postgres import MODES
from tests.plans.postgres import Scene as PostgresScene
from tests.plans.sqlite import Scene as SqliteScene
from tests.plans.traced import Call, Traced

OTHERS = 50_000
FAILED = 600
TIED = 8000
"""Jobs that are tied to others."""
HUB = 6000
"""Of them those that wait for one."""
MOST_TIES = 10 * 100
ROWS = ROUND_WINDOW + 1
STEPS = 3_500_000
"""SQLite looks into the texts of 2,000 jobs, and at the places of those that it shows."""
FEW_STEPS = 100_000
"""Of what looks at no more than it tells."""

INDEXES = {
    "find_number_at": {"job_pkey"},
    "search_text, jobs": {"job_pkey", "outcome_pkey"},
    "search_text, failed": {"job_pkey", "outcome_notable"},
    "search_text, ids": {"job_id"},
    "read_texts": {"job_pkey"},
    "list_jobs": {"job_pkey"},
    "list_jobs, jobs": {"job_pkey"},
    "list_jobs, ids": {"job_id"},
    "list_failures, failed, timed_out": {"job_pkey", "outcome_notable"},
    "list_ties": {"dependency_pkey", "dependency_parent", "follow_up_pkey", "follow_up_child", "job_id"},
}
BROAD = {
    "search_text, jobs",
    "list_jobs, jobs",
    "walk.window, jobs",
    "search_text, failed",
    "walk.window, failed",
    "list_jobs, ids",
    "walk.size, id_range",
    "list_failures, failed, timed_out",
}
"""What looks into many jobs, or at many rows, by its nature."""


def calls(store: JobStore, jobs: list[str]) -> list[Call]:
    operations = Operations(lambda: store)
    now = operations.now()
    hour = timedelta(hours=1)
    with Traced(store) as calls:
        for search in (
            Search(text="nowhere"),
            Search(text="needle"),
            Search(text="broken"),
            Search(Filter((State.FAILED,)), text="broken"),
            Search(Filter((State.FAILED,), task="none"), text="broken 17"),
            Search(Filter(queue="nowhere"), text="x"),
            Search(text="needle", id_prefix=jobs[0][:18]),
            Search(id_prefix=jobs[0][:18]),
            Search(id_prefix=jobs[0][:6], since=now - hour),
            Search(until=now - hour),
            Search(since=now - hour, until=now, text="needle"),
            Search(Filter(task="none"), since=now - hour),
        ):
            operations.search_jobs(search)
        operations.list_failures()
        operations.list_failures(filter=Filter(task="none"))
        operations.read_flow(jobs[0])
        operations.read_flow(jobs[-1])
    return calls


def fill(scene: PostgresScene | SqliteScene) -> list[str]:
    scene.load("finished", OTHERS)
    store = scene.store
    failed = [grant for _ in range(FAILED // 100) for grant in _claimed(store, 100)]
    for start in range(0, FAILED, 100):
        some = failed[start : start + 100]
        store.settle([Ending(one.id, one.token, Failure(f"broken {one.seq}", final=True)) for one in some])
    ids = [new_id() for _ in range(TIED)]
    args = json.dumps({"target": "needle"})
    secret = Policy(sensitive=("target",))
    jobs = [new_job(id=ids[0])]
    jobs += [new_job(id=ids[n], after=(ids[0 if n < HUB else n - 1],)) for n in range(1, TIED)]
    store.enqueue(jobs)
    parents = [ids[-1]] * HUB + ids[HUB:]
    children = [new_job(follow_up_of=one, args=args, policy=secret) for one in parents]
    store.enqueue(children)
    assert store.misplaced() == []
    return ids


def _claimed(store: JobStore, number: int) -> list:
    store.enqueue([new_job(queue="fails") for _ in range(number)])
    return store.claim("worker-1", ["fails"], number)


def test_on_postgres(postgres_url: str, postgres_schema: str, subtests: pytest.Subtests) -> None:
    scene = PostgresScene(postgres_url, postgres_schema)
    ids = fill(scene)
    for analysed in (False, True):
        if analysed:
            scene.analyse()
        plans = [scene.explain(call, mode) for call in calls(scene.store, ids) for mode in MODES]
        with subtests.test("every statement was looked at"):
            assert {plan.statement for plan in plans} >= set(INDEXES)
        with subtests.test("what looks into many jobs ends in time"):
            assert [wrong for plan in plans for wrong in plan.too_many_rows(max(ROWS, WINDOW + 1))] == []
        with subtests.test("the others read what they tell"):
            few = [plan for plan in plans if plan.statement not in BROAD]
            most = HUB + MOST_TIES  # of a job with very many ties the index may be read
            assert [wrong for plan in few for wrong in plan.too_many_rows(most)] == []
        with subtests.test("by the indexes that they were meant for"):
            used: dict[str, set[str | None]] = {}
            for plan in plans:
                used.setdefault(plan.statement, set()).update(node.index for node in plan.nodes)
            assert {name: meant - used[name] for name, meant in INDEXES.items() if meant - used[name]} == {}
        with subtests.test("and no table that is not small is read whole"):
            assert [wrong for plan in plans for wrong in plan.whole_tables()] == []
    scene.close()


def test_on_sqlite(tmp_path: Path) -> None:
    scene = SqliteScene(tmp_path / "search.db")
    ids = fill(scene)
    for analysed in (False, True):
        if analysed:
            scene.analyse()
        plans = [scene.explain(call) for call in calls(scene.store, ids)]
        assert {plan.statement for plan in plans} >= set(INDEXES)
        assert {plan.statement: plan.steps for plan in plans if plan.steps > STEPS} == {}
        few = [plan for plan in plans if plan.statement not in BROAD]
        assert {plan.statement: plan.steps for plan in few if plan.steps > FEW_STEPS} == {}
    scene.close()
