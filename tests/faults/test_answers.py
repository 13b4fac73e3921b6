"""An answer from another process: the job goes on at once, and not only when its worker looks by itself."""

from __future__ import annotations

import time

import pytest

from tests.faults.harness import Fleet, Place

SOON = 15.0
"""Seconds, on a machine with much else to do."""
POLL = 60.0


@pytest.mark.timeout(90)
def test_a_job_goes_on_long_before_its_worker_would_look(place: Place, fleet: Fleet) -> None:
    jobs = [place.tasks.ask.enqueue() for _ in range(5)]
    fleet.start(poll=POLL)
    for number, job in enumerate(jobs):
        place.wait_for_state(job.id, "waiting")
        answered_at = time.monotonic()
        job.answer("go", number)
        again = place.wait_for_start(job.id, attempt=2)
        assert again.started - answered_at < SOON
        place.wait_for_state(job.id, "succeeded")
    assert fleet.unexpected() == []


@pytest.mark.timeout(90)
def test_without_wakeups_it_goes_on_when_its_worker_looks(place: Place, fleet: Fleet) -> None:
    job = place.tasks.ask.enqueue()
    fleet.start(deaf=True, poll=0.5)
    place.wait_for_state(job.id, "waiting")
    answered_at = time.monotonic()
    job.answer("go", True)
    again = place.wait_for_start(job.id, attempt=2)
    assert again.started - answered_at < 0.5 + SOON
    place.wait_for_state(job.id, "succeeded")
