"""Hot statements on PostgreSQL keep to their indexes, whatever else the tables hold and whatever the planner believes.

For each background of 100,000 rows, and for all of them together at a quarter of that, every statement is planned and
run: with the values at hand and generically; with statistics that have never seen the work, with fresh ones, and with
false ones, according to which the places are nearly empty. Loading is what takes the time, so each background is one
test with a subtest per promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from bench.backgrounds import ALL, BATCH, GATE, KIND, NOTHING, OWNER, QUEUE, load_many_gates
from leasehold.domain.outcome import Success
from leasehold.stores.results import Ending
from tests.backends import new_job
from tests.plans.crowds import BACKGROUNDS, IN_LANES
from tests.plans.hot import claim_idle, find_work, look, postgres_calls
from tests.plans.indexes import POSTGRES_INDEXES
from tests.plans.postgres import LOCK_BY_SEQ, MODES, WAIT_FOR_NOBODY, Mode, Plan, Scene
from tests.plans.traced import Call

FEW, MANY = 1_000, 100_000
OF_EACH = 25_000
"""Of all backgrounds together: a third of a million rows, loaded in seconds."""
BELIEFS = (0, 1, 1_000)
"""How many rows the planner takes each place to have."""
LOOK_PAGES = 60
BATCH_PAGES = 20_000
"""40 a row."""
DEEPER = 16
"""Pages: a hundred times the rows make an index a level deeper, and a look probes it several times."""
LONG_AGO = "2000-01-01T00:00:00+00:00"

MISLED = {
    "find_due_groups": (
        ALL,
        "believing that a gate has a row or none, the planner sorts all that a bitmap finds",
    ),
    "find_limited_groups": (ALL, "as find_due_groups"),
    "claim_idle": (ALL, "as find_due_groups"),
    "claim_lanes": (
        ALL,
        "as look, along a lane",
    ),
    "probe_ready": (
        ALL,
        "believing in no rows, the planner takes the index of claims for the key: one pass over it",
    ),
    "await_ready": (ALL, "as probe_ready"),
    "delete_ready": (ALL, "as probe_ready"),
    "get_job": (ALL, "as probe_ready"),
    "hold_for_parents": (ALL, "as probe_ready, of what is parked"),
    "probe_lane_places": (
        IN_LANES,
        "believing that half of all places are asked for, the planner reads all of them",
    ),
    "await_lane_places": (IN_LANES, "as probe_lane_places"),
}
"""What does not keep to its indexes under false statistics, a background that shows it, and why. An entry that is not
needed fails a test. What they read is bounded by the table, and read once."""


@dataclass(frozen=True)
class Record:
    plans: list[Plan]
    """With stale statistics, then with fresh ones."""
    misled: list[Plan]
    looks: list[Plan]
    idle_few: list[Plan]
    idle_many: list[Plan]


@pytest.mark.slow(8)
@pytest.mark.parametrize("background", BACKGROUNDS)
def test_no_background_leads_a_hot_statement_astray(
    background: str, postgres_url: str, postgres_schema: str, subtests: pytest.Subtests
):
    reported = _notify(postgres_url, postgres_schema, background)
    plans = list(reported.plans)
    plans += [plan for plan in reported.misled if plan.statement not in MISLED]

    with subtests.test("every hot statement was looked at"):
        assert set(POSTGRES_INDEXES) - {plan.statement for plan in reported.plans} == set()

    if background != NOTHING:  # a small table is read whole by right
        with subtests.test("no statement reads a whole table"):
            assert [wrong for plan in plans for wrong in plan.whole_tables()] == []

        with subtests.test("every statement uses the indexes it was written for"):
            assert [wrong for plan in plans for wrong in plan.other_indexes()] == []

    with subtests.test("no step of a plan meets more rows than the batch explains"):
        assert [wrong for plan in plans for wrong in plan.too_many_rows()] == []

    with subtests.test("what is known to go wrong still does, or the list above is out of date"):
        shown_here = {statement for statement, (shown_by, _) in MISLED.items() if shown_by == background}
        assert shown_here <= {plan.statement for plan in reported.misled if _wrong(plan)}

    with subtests.test("a batch costs a bounded number of pages, and a look a few"):
        dear = [plan for plan in reported.plans + reported.misled if plan.pages > BATCH_PAGES]
        assert {str(p): p.pages for p in dear if p.statement not in MISLED} == {}
        # What was explained since, and undone, lies in the way of later looks.
        assert {str(plan): plan.pages for plan in reported.looks if plan.pages > LOOK_PAGES} == {}

    with subtests.test("a look reads no more when the rows that are not due grow a hundredfold"):
        for few, many in zip(reported.idle_few, reported.idle_many, strict=True):
            assert many.pages <= few.pages + DEEPER
            assert many.pages < LOOK_PAGES

    with subtests.test("whoever waits for locks comes to them by seq"):
        waiting = [plan for plan in reported.plans + reported.misled if plan.statement in LOCK_BY_SEQ]
        assert {plan.statement for plan in waiting} == set(LOCK_BY_SEQ)
        assert [wrong for plan in waiting for wrong in plan.unordered_locks()] == []

    with subtests.test("whoever waits for nobody writes what it has locked, and nothing else"):
        hot = [plan for plan in reported.plans + reported.misled if plan.statement in WAIT_FOR_NOBODY]
        assert {plan.statement for plan in hot} == set(WAIT_FOR_NOBODY)
        assert [wrong for plan in hot for wrong in plan.unlocked_writes()] == []


def _wrong(plan: Plan) -> list[str]:
    return plan.whole_tables() + plan.other_indexes() + plan.too_many_rows()


def _notify(url: str, schema: str, background: str) -> Record:
    """Everything at once: statistics are stale only until they are fresh."""
    few = _scene(url, f"{schema}_few", background, FEW)
    idle_few = [few.explain(call, mode) for call in (look(), claim_idle()) for mode in MODES]
    few.close()
    scene = _scene(url, schema, background, OF_EACH if background == ALL else MANY)
    idle_many = [scene.explain(call, mode) for call in (look(), claim_idle()) for mode in MODES]
    scene.load_work()
    assert scene.store.misplaced() == []
    calls = [(call, mode) for call in postgres_calls(scene.store, find_work(scene.query)) for mode in MODES]
    looks = [scene.explain(call, mode) for call in (look(), claim_idle()) for mode in MODES]
    plans = [scene.explain(call, mode) for call, mode in calls]
    scene.analyse()
    plans += [scene.explain(call, mode) for call, mode in calls]
    misled: list[Plan] = []
    for rows in BELIEFS:
        scene.mislead(rows)
        misled += [scene.explain(call, mode) for call, mode in calls]
    scene.close()
    return Record(plans, misled, looks, idle_few, idle_many)


def _scene(url: str, schema: str, background: str, rows: int) -> Scene:
    scene = Scene(url, schema)
    scene.load(background, rows)
    return scene


@pytest.mark.parametrize("mode", MODES)
def test_a_claim_from_many_kinds_locks_at_most_twice_what_it_takes(
    mode: Mode, postgres_url: str, postgres_schema: str
):
    scene = Scene(postgres_url, postgres_schema)
    gates = load_many_gates(scene.run, scene.dialect, 20)
    scene.analyse()
    plain = scene.explain(claim_plain(gates, LONG_AGO, BATCH), mode)
    lanes = scene.explain(Call("claim_lanes", {**groups(gates, BATCH), "open": gates}), mode)
    scene.close()
    for plan, table in ((plain, "ready"), (lanes, "ticket")):
        assert plan.root.rows == BATCH
        assert plan.locked(table) <= 2 * BATCH


def groups(gates: list[int], limit: int) -> dict[str, Any]:
    return {
        "worker": OWNER,
        "gates": gates,
        "priorities": [0] * len(gates),
        "limit": limit,
        "limited": False,
    }


def claim_plain(gates: list[int], due: Any, limit: int, first: int = 0) -> Call:
    begins = {"dues": [due] * len(gates), "firsts": [first] * len(gates)}
    return Call("claim_plain", groups(gates, limit) | begins)


@pytest.mark.parametrize("mode", MODES)
def test_an_idle_claim_that_takes_a_batch_keeps_to_its_indexes(
    mode: Mode, postgres_url: str, postgres_schema: str
):
    """Beside lanes it takes nothing, and the backgrounds have lanes."""
    scene = Scene(postgres_url, postgres_schema)
    scene.load("finished", FEW)
    scene.store.enqueue([new_job(task=KIND, queue=QUEUE) for _ in range(2 * BATCH)])
    scene.run("DELETE FROM leasehold.ticket")
    plan = scene.explain(claim_idle(), mode)
    scene.close()
    assert plan.root.rows == BATCH
    assert plan.pages < BATCH_PAGES
    assert plan.locked("ready") <= 2 * BATCH
    assert plan.other_indexes() == []


def test_a_claim_does_not_walk_past_what_was_claimed_since_the_last_vacuum(
    postgres_url: str, postgres_schema: str
):
    """Their index entries are dead but still there. Claims begin where the look has found the first that is not."""
    scene = Scene(postgres_url, postgres_schema)
    scene.load(NOTHING, 0)

    def pages(due: Any, first: int) -> int:
        return scene.explain(claim_plain([GATE], due, 10, first), MODES[0]).pages

    def head() -> tuple[Any, int]:
        return scene.query("SELECT available_at, seq FROM leasehold.ready ORDER BY seq LIMIT 1")[0]

    for _ in range(10):
        scene.store.enqueue([new_job(task=KIND, queue=QUEUE) for _ in range(500)])
    fresh = pages(*head())
    for _ in range(9):
        grants = scene.store.claim(OWNER, [QUEUE], 500)
        scene.store.settle([Ending(grant.id, grant.token, Success(), grant.seq) for grant in grants])
    from_the_start, from_the_head = pages(LONG_AGO, 0), pages(*head())
    scene.close()
    assert from_the_head <= fresh + 10
    assert from_the_start > from_the_head + 10, "or this test shows nothing"
