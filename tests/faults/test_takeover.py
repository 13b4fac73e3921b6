"""How soon the work of a worker that was killed is taken over, by the database's own times."""

from __future__ import annotations

import pytest

from tests.faults.harness import Fleet, Place, wait_for

pytestmark = pytest.mark.timeout(120)


def wait_for_renewal(place: Place, job: str):
    before = place.row(job).lease_expires_at
    return wait_for(lambda: (after := place.row(job)).lease_expires_at != before and after, "a renewal")


def seconds_until(place: Place, instant) -> float:
    return (instant - place.app.__internals__.store.now()).total_seconds()


@pytest.mark.slow(7)
@pytest.mark.parametrize("lease", [4.5])
def test_a_worker_that_is_killed_right_after_a_renewal_is_replaced_within_lease_and_sweep(
    place: Place, fleet: Fleet, lease: float
) -> None:
    sweep = 1.5
    job = place.tasks.wait_on_loop.enqueue("take")
    doomed = fleet.start(sweep=sweep)
    place.wait_for_start(job.id, attempt=1)
    fleet.start(sweep=sweep)
    wait_for_renewal(place, job.id)
    doomed.kill()
    left = place.row(job.id)
    place.wait_for_start(job.id, attempt=2)
    (lost,) = [entry for entry in place.app.__internals__.store.history(job.id) if entry.event == "lost"]
    late = (lost.at - left.lease_expires_at).total_seconds()
    assert (lost.token, lost.actor) == (left.lease_token, left.worker)
    assert 0 <= late <= sweep, f"{lease + late:.2f} s after its last renewal"
    place.open_gate("take-2")
    place.wait_for_state(job.id, "succeeded")


@pytest.mark.slow(17)
@pytest.mark.parametrize("lease", [12.0])
def test_a_worker_that_renews_late_keeps_its_job_though_others_have_looked_at_it(
    place: Place, fleet: Fleet, lease: float
) -> None:
    sweep = 1.0
    job = place.tasks.wait_on_loop.enqueue("late")
    slow = fleet.start(sweep=60.0)
    place.wait_for_start(job.id, attempt=1)
    fleet.start(sweep=sweep)
    wait_for_renewal(place, job.id)
    slow.freeze()
    end = place.row(job.id).lease_expires_at
    # The other one looks at it first when it has 5 seconds left, and at the latest a sweep later.
    wait_for(lambda: seconds_until(place, end) < 3.8, "the renewal to be overdue")
    slow.thaw()
    wait_for(lambda: place.row(job.id).lease_expires_at > end, "the late renewal")
    wait_for(lambda: seconds_until(place, end) < -sweep, "the end that was seen to pass")
    row = place.row(job.id)
    assert (row.attempt, row.crashes) == (1, 0)
    place.open_gate("late-1")
    place.wait_for_state(job.id, "succeeded")
    assert place.app.__internals__.store.history(job.id) == []
