"""Handlers that do not let go: of the event loop, or of their work when they are told to stop."""

from __future__ import annotations

import time

import pytest

from tests.faults.harness import Fleet, Place, check, wait_for
from tests.faults.worker_main import REPLACE_ME


@pytest.mark.slow(7)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("lease", [2.0])
def test_a_handler_that_blocks_the_event_loop_for_three_lease_lengths_keeps_its_lease(
    place: Place, fleet: Fleet, lease: float
) -> None:
    fleet.start_many(2)  # the other one would take the job over
    job = place.tasks.block_the_loop.enqueue(3 * lease)
    done = place.wait_for_state(job.id, "succeeded")
    assert (done.attempt, done.failures, done.crashes) == (1, 0, 0)
    figures = check(place, [job.id], fleet)
    assert (figures.grants, figures.runs, figures.lost) == (1, 1, 0)


@pytest.mark.slow(5)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("lease", [30.0])
def test_a_call_with_a_shorter_lease_than_its_tasks_is_renewed_in_time(
    place: Place, fleet: Fleet, lease: float
) -> None:
    fleet.start_many(2)
    job = place.tasks.brief.using(lease=2.0).enqueue(4.0)
    done = place.wait_for_state(job.id, "succeeded")
    assert (done.attempt, done.failures, done.crashes) == (1, 0, 0)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("task", ["ignore_the_stop", "ignore_the_stop_on_loop"])
def test_a_handler_that_ignores_its_stop_is_abandoned_and_its_job_ends_as_asked(
    place: Place, fleet: Fleet, task: str
) -> None:
    worker = fleet.start(concurrency=4, threads=4, stop_grace=0.5)
    job = getattr(place.tasks, task).enqueue("never")
    place.wait_for_start(job.id)
    place.app.get(job.id).cancel(reason="no longer wanted")
    done = place.wait_for_state(job.id, "cancelled")
    assert (done.attempt, done.failures, done.crashes) == (1, 0, 0)
    assert done.reason == "no longer wanted"
    assert worker.said("is left behind")
    # It keeps one place of four; the others are still served.
    others = [
        *place.tasks.brief.enqueue_many([{"seconds": 0.01}] * 8),
        *place.tasks.brief_in_thread.enqueue_many([{"seconds": 0.01}] * 8),
    ]
    for other in others:
        place.wait_for_state(other.id, "succeeded")
    # What it returns after all counts for nothing.
    place.open_gate("never-1")
    worker.wait_until_it_says("the handler left behind has ended after all")
    assert place.row(job.id) == done
    assert worker.alive


@pytest.mark.timeout(60)
def test_a_worker_whose_places_are_half_taken_by_abandoned_handlers_asks_to_be_replaced(
    place: Place, fleet: Fleet
) -> None:
    worker = fleet.start(threads=4, stop_grace=0.3)
    first, second = (place.tasks.ignore_the_stop.enqueue(name) for name in ("never", "ever"))
    finishing = place.tasks.wait_on_loop.enqueue("finishing")
    for job in (first, second, finishing):
        place.wait_for_start(job.id)
    place.app.get(first.id).cancel()
    place.wait_for_state(first.id, "cancelled")
    assert worker.alive
    place.app.get(second.id).cancel()
    worker.wait_until_it_says("claiming has stopped")
    place.wait_for_state(second.id, "cancelled")
    after = place.tasks.brief.enqueue(0)
    # A drain like any other: what runs may end, nothing new is begun.
    place.open_gate("finishing-1")
    assert worker.wait(20) == REPLACE_ME
    assert place.row(finishing.id).state == "succeeded"
    assert (place.row(after.id).state, place.row(after.id).attempt) == ("queued", 0)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("task", ["wait_on_loop", "wait_in_thread"])
def test_a_cancel_reaches_a_running_job_with_the_next_heartbeat(
    place: Place, fleet: Fleet, task: str
) -> None:
    fleet.start(deaf=True)  # the heartbeat alone must bring it
    job = getattr(place.tasks, task).enqueue("never")
    place.wait_for_start(job.id)
    requested = place.app.get(job.id).cancel()
    assert requested.state == "running"
    done = place.wait_for_state(job.id, "cancelled")
    (run,) = place.log.of(job.id)
    assert run.how in ("CancelledError", "StopRequested")
    assert done.attempt == 1
    # Heartbeats are a third of the lease; what comes on top is the machine's.
    wait = (done.finished_at - _requested_at(place, job.id)).total_seconds()
    assert wait <= place.lease / 3 + 10.0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("lease", [180.0])
@pytest.mark.parametrize("verb", ["cancel", "pause"])
def test_a_stop_reaches_another_process_at_once(place: Place, fleet: Fleet, lease: float, verb: str) -> None:
    fleet.start()
    job = place.tasks.wait_on_loop.enqueue("never")
    place.wait_for_start(job.id)
    asked_at = time.monotonic()
    getattr(place.app.get(job.id), verb)()
    place.wait_for_state(job.id, "cancelled" if verb == "cancel" else "paused")
    assert time.monotonic() - asked_at < lease / 3 / 4, "the heartbeat is a third of the lease"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("lease", [180.0])
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_with_notify_cut_off_a_stop_is_looked_for(place: Place, fleet: Fleet, lease: float) -> None:
    worker = fleet.start(listen_url="postgresql://nobody@127.0.0.1:1/nowhere")
    worker.wait_until_it_says("polling instead")
    job = place.tasks.wait_on_loop.enqueue("never")
    place.wait_for_start(job.id)
    asked_at = time.monotonic()
    place.app.get(job.id).cancel()
    place.wait_for_state(job.id, "cancelled")
    assert time.monotonic() - asked_at < lease / 3 / 4


def _requested_at(place: Place, job: str):
    return next(entry.at for entry in place.app.get(job).history() if entry.event.startswith("cancel"))


@pytest.mark.timeout(60)
def test_a_pause_that_is_asked_of_a_running_job_pauses_it(place: Place, fleet: Fleet) -> None:
    fleet.start()
    job = place.tasks.wait_in_thread.enqueue("later")
    place.wait_for_start(job.id)
    place.app.get(job.id).pause()
    place.wait_for_state(job.id, "paused")
    place.app.get(job.id).resume()
    place.wait_for_start(job.id, attempt=2)
    place.open_gate("later-2")
    done = place.wait_for_state(job.id, "succeeded")
    assert (done.attempt, done.failures, done.crashes) == (2, 0, 0)
    wait_for(lambda: place.unfinished() == 0, "nothing to be left")
