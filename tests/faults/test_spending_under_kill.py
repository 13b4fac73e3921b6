"""Workers are killed while their jobs spend and ask: the ledger is exact to the unit, and an answer finds its job."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from leasehold import State
from leasehold.errors import InvalidState
from leasehold.operations import budgets
from tests.faults import spending_tasks
from tests.faults.harness import Fleet, Place, wait_for
from tests.faults.spending_tasks import HELD_AT, LIMIT, STEPS

MODULE = "tests.faults.spending_main"


def total(place: Place, unit: str) -> int:
    rows = place.query("SELECT coalesce(sum(amount), 0) FROM leasehold.spending WHERE unit = ?", unit)
    return int(rows[0][0])


def notes(place: Place) -> list[str]:
    path = Path(place.folder / "notes")
    return [line.rpartition(" ")[0] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow(8)
@pytest.mark.parametrize("lease", [3.0])
@pytest.mark.timeout(180)
def test_a_budget_breached_topped_up_and_resumed_through_crashes_leaves_an_exact_ledger(place, fleet, lease):
    tasks = spending_tasks.register(place.app, place.folder, lease)
    app = place.app
    app.__internals__.operations.call(budgets.set_group_budget, "g", {"tokens": 10**9})
    job = tasks.spender.using(group="g").enqueue()

    def kill_when_it_has_spent(worker, pages: int) -> None:
        """It waits there until the next one may go on."""
        wait_for(lambda: total(place, "pages") == pages, f"{pages} steps to be stored")
        worker.kill()
        place.open_gate(f"call-{pages}")

    # Killed in the middle of its spending, the job goes on elsewhere, and is breached there.
    kill_when_it_has_spent(fleet.start(module=MODULE), HELD_AT[0])
    second = fleet.start(module=MODULE)
    row = place.wait_for_state(job.id, "paused")
    assert row.attempt >= 2
    assert "over budget" in (row.error or "")
    assert total(place, "tokens") == LIMIT + 31
    assert total(place, "pages") == 30
    with pytest.raises(InvalidState, match="top_up"):
        job.resume()

    # Topped up and resumed on another one, killed again, and finished by a fourth.
    second.kill()
    more = sum(range(1, STEPS + 1)) - LIMIT
    job.top_up(tokens=more, actor="ann")
    job.resume()
    kill_when_it_has_spent(fleet.start(module=MODULE), HELD_AT[1])
    fleet.start(module=MODULE)
    assert job.result(timeout=60) == LIMIT + more

    ledger = job.spending()
    tokens = {row.key: row.amount for row in ledger if row.unit == "tokens"}
    assert tokens == {f"call-{n}": n + 1 for n in range(STEPS)}
    assert [row.amount for row in ledger if row.unit == "pages"] == [1] * STEPS
    lines = {(line.scope, line.unit): (line.limit, line.spent) for line in job.budget()}
    assert lines == {
        ("job", "tokens"): (LIMIT + more, LIMIT + more),
        ("job", "pages"): (None, STEPS),
        ("group", "tokens"): (10**9, LIMIT + more),
        ("group", "pages"): (None, STEPS),
    }
    assert len({row.token for row in ledger}) >= 4, "four leases have spent"
    assert job.refresh().__row__.crashes == 1, "since the resume"
    assert fleet.unexpected() == []


@pytest.mark.parametrize("lease", [3.0])
@pytest.mark.timeout(120)
def test_an_answered_job_goes_on_with_another_worker_and_repeats_no_finished_step(place, fleet, lease):
    tasks = spending_tasks.register(place.app, place.folder, lease)
    job = tasks.asker.enqueue()
    first = fleet.start(module=MODULE)
    place.wait_for_state(job.id, "waiting")
    first.kill()
    assert job.refresh().__row__.worker is None
    assert [q.job_id for q in place.app.questions.list()] == [job.id]
    job.answer("go", True)
    second = fleet.start(module=MODULE)
    assert job.result(timeout=30) == ["done", True, second.pid]
    assert notes(place) == ["first"]
    row = job.refresh().__row__
    assert (row.attempt, row.crashes, row.failures) == (2, 0, 0)
    assert fleet.unexpected() == []


@pytest.mark.parametrize("lease", [3.0])
@pytest.mark.timeout(120)
def test_a_worker_killed_just_before_it_asks_leaves_the_question_to_another(
    place: Place, fleet: Fleet, lease
):
    tasks = spending_tasks.register(place.app, place.folder, lease)
    job = tasks.asker_in_thread.enqueue()
    first = fleet.start(module=MODULE)
    wait_for(lambda: "before the question" in notes(place), "the first run to come to its question")
    first.kill()
    assert job.questions() == []
    place.open_gate("ask")
    second = fleet.start(module=MODULE)
    place.wait_for_state(job.id, "waiting")
    job.answer("go", False)
    assert job.result(timeout=30) == ["done", False, second.pid]
    assert Counter(notes(place)) == {"first": 1, "before the question": 1}
    assert (job.refresh().__row__.attempt, job.__row__.crashes, job.state) == (3, 1, State.SUCCEEDED)
    assert fleet.unexpected() == []
