"""Hot statements on PostgreSQL keep to their indexes, whatever else the tables hold.

For each background of 100,000 rows, and for all of them together at a quarter of that, every statement is planned and
run: with the values at hand and generically, with statistics that have never seen a running job and with fresh ones.
Loading is what takes the time, so each background is one test with a subtest per promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pytest

from bench.backgrounds import ALL, BATCH, GATE, KIND, NAMES, NOTHING, OWNER, QUEUE, load_many_gates
from leasehold.domain.outcome import Success
from leasehold.stores.answers import Ending
from tests.backends import new_job
from tests.plans.hot import (
    KNOWN,
    LONG_AGO,
    POSTGRES_INDEXES,
    Call,
    claim_idle,
    find_work,
    look,
    postgres_calls,
    settle,
)
from tests.plans.postgres import LOCK_BY_ID, MODES, Mode, Plan, Scene

FEW, MANY = 1_000, 100_000
OF_EACH = 25_000
"""Of all backgrounds together: a quarter of a million rows, loaded in seconds."""
LOOK_PAGES = 60
BATCH_PAGES = 20_000
"""40 a row."""
DEEPER = 16
"""Pages: a hundred times the rows make an index a level deeper, and a look probes it several times."""


@dataclass(frozen=True)
class Told:
    plans: list[Plan]
    """With stale statistics, then with fresh ones."""
    idle_few: list[Plan]
    idle_many: list[Plan]
    settled: list[str]


@pytest.mark.parametrize("background", NAMES)
def test_no_background_leads_a_hot_statement_astray(
    background: str, postgres_url: str, postgres_schema: str, subtests: pytest.Subtests
):
    told = _tell(postgres_url, postgres_schema, background)
    plans = [plan for plan in told.plans if plan.statement not in KNOWN]

    with subtests.test("every hot statement was looked at"):
        assert {plan.statement for plan in told.plans} == set(POSTGRES_INDEXES)

    if background != NOTHING:  # a small table is read whole by right
        with subtests.test("no statement reads a whole table"):
            assert [wrong for plan in plans for wrong in plan.whole_tables()] == []

        with subtests.test("every statement uses the indexes it was written for"):
            assert [wrong for plan in plans for wrong in plan.other_indexes()] == []

    if background == "finished":
        with subtests.test("what is known to read too much still does, or KNOWN is out of date"):
            bad = {plan.statement for plan in told.plans if plan.whole_tables() or plan.too_many_rows()}
            assert bad == set(KNOWN)

    with subtests.test("no step of a plan meets more rows than the batch explains"):
        assert [wrong for plan in plans for wrong in plan.too_many_rows()] == []

    with subtests.test("a batch costs a bounded number of pages, and a look a few"):
        bounds = {"look": LOOK_PAGES, "claim_idle": LOOK_PAGES}
        dear = [plan for plan in plans if plan.pages > bounds.get(plan.statement, BATCH_PAGES)]
        assert {str(plan): plan.pages for plan in dear} == {}

    with subtests.test("a look reads no more when the rows that are not due grow a hundredfold"):
        for few, many in zip(told.idle_few, told.idle_many, strict=True):
            assert many.pages <= few.pages + DEEPER
            assert many.pages < LOOK_PAGES

    with subtests.test("a settle locks jobs by id, whatever order they are given"):
        assert len(told.settled) == BATCH
        assert told.settled == sorted(told.settled)

    with subtests.test("plans that update jobs are led by ids in order"):
        leading = [plan for plan in told.plans if plan.statement in LOCK_BY_ID]
        assert {plan.statement for plan in leading} == set(LOCK_BY_ID)
        assert [wrong for plan in leading for wrong in plan.unordered_locks()] == []


@pytest.mark.parametrize("mode", MODES)
def test_a_claim_from_many_kinds_locks_at_most_twice_what_it_takes(
    mode: Mode, postgres_url: str, postgres_schema: str
):
    scene = Scene(postgres_url, postgres_schema)
    gates = load_many_gates(scene.run, scene.dialect, 20)
    scene.analyse()
    groups = {
        "owner": OWNER,
        "gates": gates,
        "priorities": [0] * len(gates),
        "limit": BATCH,
    }
    plain = scene.explain(Call("claim_plain", {**groups, "dues": [LONG_AGO] * len(gates)}), mode)
    lanes = scene.explain(Call("claim_lanes", {**groups, "open": gates}), mode)
    scene.close()
    for plan, table in ((plain, "job"), (lanes, "ticket")):
        assert plan.root.rows == BATCH
        assert plan.locked(table) <= 2 * BATCH


def _tell(url: str, schema: str, background: str) -> Told:
    """Everything at once: statistics are stale only until they are fresh."""
    few = _scene(url, f"{schema}_few", background, FEW)
    idle_few = [few.explain(call, mode) for call in (look(), claim_idle()) for mode in MODES]
    few.close()
    scene = _scene(url, schema, background, OF_EACH if background == ALL else MANY)
    idle_many = [scene.explain(call, mode) for call in (look(), claim_idle()) for mode in MODES]
    scene.load_work()
    work = find_work(scene.database, scene.query)
    calls = [(call, mode) for call in postgres_calls(work) for mode in MODES]
    plans = [scene.explain(call, mode) for call, mode in calls]
    scene.analyse()
    plans += [scene.explain(call, mode) for call, mode in calls]
    settled = scene.first_column(settle(work.running[::-1]))
    scene.close()
    return Told(plans, idle_few, idle_many, settled)


def _scene(url: str, schema: str, background: str, rows: int) -> Scene:
    scene = Scene(url, schema)
    scene.load(background, rows)
    return scene


@pytest.mark.parametrize("mode", MODES)
def test_an_idle_claim_that_takes_a_batch_keeps_to_its_indexes(
    mode: Mode, postgres_url: str, postgres_schema: str
):
    """Beside lanes it takes nothing, and the backgrounds have lanes."""
    scene = Scene(postgres_url, postgres_schema)
    scene.load("finished", FEW)
    scene.store.enqueue([new_job(kind=KIND, queue=QUEUE) for _ in range(2 * BATCH)])
    scene.run("DELETE FROM leasehold.ticket")
    plan = scene.explain(claim_idle(), mode)
    scene.close()
    assert plan.root.rows == BATCH
    assert plan.pages < BATCH_PAGES
    assert plan.locked("job") <= 2 * BATCH
    assert plan.other_indexes() == []


def test_a_claim_does_not_walk_past_what_was_claimed_since_the_last_vacuum(
    postgres_url: str, postgres_schema: str
):
    """Their index entries are dead but still there. Claims begin where the look has found the first that is not."""
    scene = Scene(postgres_url, postgres_schema)
    scene.run("ALTER TABLE leasehold.job SET (autovacuum_enabled = false)")

    def pages(due: datetime) -> int:
        groups = {"gates": [GATE], "priorities": [0], "dues": [due]}
        return scene.explain(Call("claim_plain", {"owner": OWNER, "limit": 10, **groups}), MODES[0]).pages

    def head() -> datetime:
        rows = scene.query(
            "SELECT available_at FROM leasehold.job WHERE state = 'queued' ORDER BY seq LIMIT 1"
        )
        return rows[0][0]

    for _ in range(10):
        scene.store.enqueue([new_job(kind=KIND, queue=QUEUE) for _ in range(500)])
    fresh = pages(head())
    for _ in range(9):
        grants = scene.store.claim(OWNER, [QUEUE], 500)
        scene.store.settle([Ending(grant.id, grant.token, Success()) for grant in grants])
    from_the_start, from_the_head = pages(LONG_AGO), pages(head())
    scene.close()
    assert from_the_head <= fresh + 10
    assert from_the_start > from_the_head + 10, "or this test shows nothing"
