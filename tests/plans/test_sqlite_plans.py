"""Hot statements on SQLite keep to their indexes, whatever else the tables hold.

Nobody has to run ANALYZE on SQLite, and somebody may: the plans are good without statistics and with fresh ones.
Loading is what takes the time, so each background is one test with a subtest per promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.backgrounds import ALL
from tests.plans.crowds import BACKGROUNDS
from tests.plans.hot import find_work, hot_calls
from tests.plans.indexes import SQLITE_INDEXES
from tests.plans.sqlite import Plan, Scene

FEW, MANY = 1_000, 100_000
OF_EACH = 25_000
"""Of all backgrounds together: a third of a million rows, loaded in seconds."""
LOOK_STEPS = 1_000
WITH_FEW_ROWS = {
    "find_dependents",
    "prune_dependencies",
    "prune_groups",
    "prune_lease_slots",
    "prune_failure_states",
}
"""SQLite knows of so few rows there that it reads them all, by right."""


@dataclass(frozen=True)
class Record:
    plain: list[Plan]
    analysed: list[Plan]
    idle_few: int
    idle_many: int

    @property
    def plans(self) -> list[Plan]:
        return self.plain + self.analysed


@pytest.mark.parametrize("background", BACKGROUNDS)
def test_no_background_leads_a_hot_statement_astray(
    background: str, tmp_path: Path, subtests: pytest.Subtests
):
    reported = _notify(tmp_path, background)

    with subtests.test("every hot statement was looked at"):
        assert set(SQLITE_INDEXES) - {plan.statement for plan in reported.plans} == set()

    with subtests.test("no statement scans a table"):
        known = [plan for plan in reported.analysed if plan.statement not in WITH_FEW_ROWS]
        assert [wrong for plan in reported.plain + known for wrong in plan.whole_tables()] == []

    with subtests.test("every statement uses the indexes it was written for"):
        assert [wrong for plan in reported.plans for wrong in plan.other_indexes()] == []

    with subtests.test("a batch takes a bounded number of steps"):
        assert [wrong for plan in reported.plans for wrong in plan.too_many_steps()] == []

    with subtests.test("a look takes no more steps when the rows that are not due grow a hundredfold"):
        assert reported.idle_many <= reported.idle_few + 20
        assert reported.idle_many < LOOK_STEPS


def _notify(folder: Path, background: str) -> Record:
    few = _scene(folder / "few.db", background, FEW)
    idle_few = few.idle_steps()
    few.close()
    scene = _scene(folder / "many.db", background, OF_EACH if background == ALL else MANY)
    idle_many = scene.idle_steps()
    scene.load_work()
    assert scene.store.misplaced() == []
    calls = hot_calls(scene.store, find_work(scene.query))
    plain = [scene.explain(call) for call in calls]
    scene.analyse()
    analysed = [scene.explain(call) for call in calls]
    scene.close()
    return Record(plain, analysed, idle_few, idle_many)


def _scene(path: Path, background: str, rows: int) -> Scene:
    scene = Scene(path)
    scene.load(background, rows)
    return scene
