"""Wake-ups only shorten a wait: with all of them cut off everything happens within the poll."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.faults.harness import Fleet, Place, check_lane, wait_for

POLL = 1.0
SLACK = 10.0
"""What a busy machine may add."""
NOWHERE = "postgresql://nobody@127.0.0.1:1/nowhere"


def start_within_the_poll(place: Place, times: int) -> None:
    for _ in range(times):
        asked_at = time.monotonic()
        job = place.tasks.brief.enqueue(0)
        place.wait_for_state(job.id, "succeeded")
        (run,) = place.log.of(job.id)
        assert run.started - asked_at <= POLL + SLACK


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_with_notify_cut_off_jobs_start_within_the_poll(place: Place, fleet: Fleet) -> None:
    worker = fleet.start(listen_url=NOWHERE, poll=POLL)
    worker.wait_until_it_says("polling instead")
    start_within_the_poll(place, 4)


@pytest.mark.timeout(60)
def test_without_any_wakeups_jobs_start_within_the_poll(place: Place, fleet: Fleet) -> None:
    fleet.start(deaf=True, poll=POLL)
    start_within_the_poll(place, 4)


@pytest.mark.timeout(60)
def test_without_any_wakeups_lanes_retries_and_hand_backs_go_on_within_the_poll(
    place: Place, fleet: Fleet
) -> None:
    first = fleet.start(deaf=True, poll=POLL, shutdown_grace=0.0)
    handed_back = place.tasks.wait_on_loop.enqueue("go")
    place.wait_for_start(handed_back.id)
    second = fleet.start(deaf=True, poll=POLL)
    first.terminate()
    place.open_gate("go-2")
    assert first.wait() == 0
    ended_at = time.monotonic()
    place.wait_for_state(handed_back.id, "succeeded")
    assert place.wait_for_start(handed_back.id, attempt=2).started - ended_at <= POLL + SLACK

    place.open_gate("fail-1")
    lane = place.tasks.in_lane.enqueue_many({"lane": "one", "n": n, "seconds": 0} for n in range(4))
    place.wait_for_state(lane[1].id, "failed")
    place.close_gate("fail-1")
    resumed_at = time.monotonic()
    place.app.lanes.resume("one")
    wait_for(lambda: place.row(lane[-1].id).state == "succeeded", "the lane to go on")
    runs = [run for run in place.log.runs() if run.note is not None]
    check_lane(runs, fleet.deaths())
    again = next(run for run in runs if run.note == 1 and run.attempt == 2)
    assert again.started - resumed_at <= POLL + SLACK
    # Each next job of a lane needs one look at most.
    for one, next_one in itertools.pairwise(runs[2:]):
        assert next_one.started - one.started <= POLL + SLACK
    assert second.alive
