"""A worker that stood still past its lease comes back to a world that went on without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.harness import Fleet, Place, check, wait_for


@pytest.mark.timeout(90)
@pytest.mark.parametrize("lease", [4.0])
def test_a_frozen_workers_late_result_is_refused_and_it_says_so(
    place: Place, fleet: Fleet, lease: float
) -> None:
    job = place.tasks.ignore_the_stop.enqueue("late")
    frozen = fleet.start()
    place.wait_for_start(job.id, attempt=1)
    frozen.freeze()
    successor = fleet.start()
    place.wait_for_start(job.id, attempt=2)
    granted = place.row(job.id)

    place.open_gate("late-1")
    frozen.thaw()
    frozen.wait_until_it_says(f"job {job.id} (ignore_the_stop): result of attempt 1 refused")
    now = place.row(job.id)
    assert now == replace(granted, lease_expires_at=now.lease_expires_at), "renewed, and no more"
    assert frozen.alive, "a worker that was refused goes on"

    place.open_gate("late-2")
    done = place.wait_for_state(job.id, "succeeded")
    assert done.settled_by == granted.worker
    assert f":{successor.pid}:" in done.settled_by
    assert (done.attempt, done.failures, done.crashes) == (2, 0, 1)
    figures = check(place, [job.id], fleet)
    assert (figures.lost, figures.overlaps) == (1, 1)
    assert not successor.said("refused, lease")


@pytest.mark.timeout(90)
@pytest.mark.parametrize("lease", [4.0])
def test_a_frozen_worker_stops_its_handlers_when_it_learns_that_their_leases_are_lost(
    place: Place, fleet: Fleet, lease: float
) -> None:
    jobs = [
        place.tasks.wait_on_loop.enqueue("never"),
        place.tasks.wait_in_thread.enqueue("never"),
    ]
    frozen = fleet.start()
    for job in jobs:
        place.wait_for_start(job.id, attempt=1)
    frozen.freeze()
    fleet.start()
    for job in jobs:
        place.wait_for_start(job.id, attempt=2)
    frozen.thaw()
    for job in jobs:
        stopped = wait_for(
            lambda job=job: next((r for r in place.log.of(job.id) if r.attempt == 1 and r.how), None),
            "the first run to be stopped",
        )
        assert stopped.how in ("CancelledError", "StopRequested")
    place.open_gate("never-2")
    for job in jobs:
        assert place.wait_for_state(job.id, "succeeded").attempt == 2
    check(place, [job.id for job in jobs], fleet)
    assert fleet.unexpected() == []
