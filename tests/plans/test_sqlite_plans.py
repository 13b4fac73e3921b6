"""Hot statements on SQLite keep to their indexes, whatever else the tables hold.

Nobody has to run ANALYZE on SQLite, and somebody may: the plans are the same without statistics and with fresh ones.
Loading is what takes the time, so each background is one test with a subtest per promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.backgrounds import ALL, NAMES
from tests.plans.hot import KNOWN, SQLITE_INDEXES, find_work, sqlite_calls
from tests.plans.sqlite import Plan, Scene

FEW, MANY = 1_000, 100_000
OF_EACH = 25_000
"""Of all backgrounds together: a quarter of a million rows, loaded in seconds."""
LOOK_STEPS = 1_000


@dataclass(frozen=True)
class Told:
    plans: list[Plan]
    idle_few: int
    idle_many: int


@pytest.mark.parametrize("background", NAMES)
def test_no_background_leads_a_hot_statement_astray(
    background: str, tmp_path: Path, subtests: pytest.Subtests
):
    told = _tell(tmp_path, background)

    with subtests.test("every hot statement was looked at"):
        assert {plan.statement for plan in told.plans} == set(SQLITE_INDEXES)

    with subtests.test("no statement scans the jobs or the tickets"):
        assert [wrong for plan in told.plans for wrong in plan.whole_tables()] == []

    with subtests.test("every statement uses the indexes it was written for"):
        assert [wrong for plan in told.plans for wrong in plan.other_indexes()] == []

    with subtests.test("a batch takes a bounded number of steps"):
        plans = [plan for plan in told.plans if plan.statement not in KNOWN]
        assert [wrong for plan in plans for wrong in plan.too_many_steps()] == []

    if background == "finished":
        with subtests.test("what is known to take too many steps still does, or KNOWN is out of date"):
            assert {plan.statement for plan in told.plans if plan.too_many_steps()} == set(KNOWN)

    with subtests.test("a look takes no more steps when the rows that are not due grow a hundredfold"):
        assert told.idle_many <= told.idle_few + 20
        assert told.idle_many < LOOK_STEPS


def _tell(folder: Path, background: str) -> Told:
    few = _scene(folder / "few.db", background, FEW)
    idle_few = few.idle_steps()
    few.close()
    scene = _scene(folder / "many.db", background, OF_EACH if background == ALL else MANY)
    idle_many = scene.idle_steps()
    scene.load_work()
    calls = sqlite_calls(find_work(scene.database, scene.query))
    plans = [scene.explain(call) for call in calls]
    scene.connection.execute("ANALYZE")
    plans += [scene.explain(call) for call in calls]
    scene.close()
    return Told(plans, idle_few, idle_many)


def _scene(path: Path, background: str, rows: int) -> Scene:
    scene = Scene(path)
    scene.load(background, rows)
    return scene
