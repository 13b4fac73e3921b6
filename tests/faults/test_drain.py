"""A worker that is told to end: what runs may finish, what cannot is given back unharmed, nothing new is begun."""

from __future__ import annotations

import random
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from leasehold.domain.job import Job
from tests.faults.harness import LOOK_EVERY, Fleet, Place, check, wait_for

BOTH = ("wait_on_loop", "wait_in_thread")
HASTE = 15.0
"""Seconds in which a worker that need not wait for anything ends, on a machine that is busy."""
NO_LOSS = 20.0
"""A lease that no worker loses only because its machine is busy."""


def assert_unharmed(row: Job, before: Job, state: str = "queued") -> None:
    """The run is counted, and it is held against the job in no way."""
    assert row.state == state
    assert (row.attempt, row.failures, row.crashes) == (before.attempt + 1, before.failures, before.crashes)
    assert row.available_at == before.available_at, "it has lost its place"
    assert (row.worker, row.lease_expires_at, row.stop_requested) == (None, None, None)
    assert row.error is None


@pytest.mark.slow(5)
@pytest.mark.timeout(90)
@pytest.mark.parametrize("lease", [2.0])
def test_running_jobs_finish_within_the_grace_and_jobs_enqueued_meanwhile_stay_queued(
    place: Place, fleet: Fleet, lease: float
) -> None:
    running = [getattr(place.tasks, task).enqueue("go") for task in BOTH]
    worker = fleet.start(shutdown_grace=60.0)
    for job in running:
        place.wait_for_start(job.id)
    worker.terminate()
    worker.wait_until_it_says("claiming has stopped")
    meanwhile = [place.tasks.brief.enqueue(0), place.tasks.brief_in_thread.enqueue(0)]
    # Longer than a lease: a worker that drains still holds what it runs.
    asked_at = time.monotonic()
    wait_for(lambda: time.monotonic() > asked_at + 1.5 * place.lease, "one and a half leases to pass")
    assert worker.alive
    place.open_gate("go-1")
    assert worker.wait(HASTE) == 0
    for job in running:
        row = place.row(job.id)
        assert (row.state, row.attempt, row.crashes) == ("succeeded", 1, 0)
    for job in meanwhile:
        row = place.row(job.id)
        assert (row.state, row.attempt) == ("queued", 0)
    assert fleet.unexpected() == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("lease", [NO_LOSS])
def test_past_the_grace_jobs_are_handed_back_at_no_cost_or_paused(
    place: Place, fleet: Fleet, lease: float
) -> None:
    handed_back = [getattr(place.tasks, task).enqueue("never") for task in BOTH]
    paused = place.tasks.wait_or_pause.enqueue("never")
    before = {job.id: place.row(job.id) for job in (*handed_back, paused)}
    worker = fleet.start(shutdown_grace=0.3)
    for job in before:
        place.wait_for_start(job)
    worker.terminate()
    assert worker.wait(HASTE) == 0
    for job in handed_back:
        assert_unharmed(place.row(job.id), before[job.id])
    row = place.row(paused.id)
    assert_unharmed(row, before[paused.id], "paused")
    assert row.reason == "Job was interrupted by user"
    # And they are picked up where they stand.
    place.app.get(paused.id).resume()
    for name in ("never-2", "never-3"):
        place.open_gate(name)
    fleet.start()
    for job in before:
        place.wait_for_state(job, "succeeded")
    figures = check(place, before, fleet)
    assert (figures.grants, figures.lost) == (6, 0)


@pytest.mark.timeout(60)
def test_a_second_signal_ends_the_worker_at_once(place: Place, fleet: Fleet) -> None:
    jobs = [getattr(place.tasks, task).enqueue("never") for task in BOTH]
    before = {job.id: place.row(job.id) for job in jobs}
    worker = fleet.start(shutdown_grace=300.0)
    for job in jobs:
        place.wait_for_start(job.id)
    worker.terminate()
    worker.wait_until_it_says("draining")
    worker.terminate()
    assert worker.wait(HASTE) == 0
    for job in jobs:
        assert_unharmed(place.row(job.id), before[job.id])


@pytest.mark.timeout(60)
def test_a_hanging_thread_does_not_keep_the_process_from_ending(place: Place, fleet: Fleet) -> None:
    job = place.tasks.ignore_the_stop.enqueue("never")
    before = place.row(job.id)
    worker = fleet.start(shutdown_grace=0.2, stop_grace=0.2)
    place.wait_for_start(job.id)
    worker.terminate()
    assert worker.wait(HASTE) == 0
    assert worker.said("is left behind")
    assert_unharmed(place.row(job.id), before)


@pytest.mark.slow(9)
@pytest.mark.timeout(120)
@pytest.mark.parametrize("lease", [NO_LOSS])
def test_a_rolling_restart_under_load_costs_no_job_anything(place: Place, fleet: Fleet, lease: float) -> None:
    """Signals fall anywhere: before a claim, in it, between it and the start, in a settle."""
    rng = random.Random(3)
    made: list[str] = []

    def enqueue_more() -> None:
        lengths = [{"seconds": rng.uniform(0.0, 0.1)} for _ in range(600)]
        for task, some in ((place.tasks.brief, lengths[::2]), (place.tasks.brief_in_thread, lengths[1::2])):
            made.extend(job.id for job in task.enqueue_many(some))

    settings = {"concurrency": 4, "threads": 2, "shutdown_grace": 0.0}
    fleet.start_many(2, **settings)
    enqueue_more()
    restarts = 0
    while (left := place.unfinished()) or restarts < 3:
        if restarts < 3 and left < 300:  # on a slow machine one worker is done before another has started
            enqueue_more()
        worker = rng.choice(fleet.alive)
        for _ in range(rng.randrange(10)):
            time.sleep(LOOK_EVERY)
        worker.terminate()
        replacement = fleet.start(wait=False, **settings)
        assert worker.wait() == 0
        replacement.wait_until_it_says("ready")
        restarts += 1
        assert restarts < 60
    figures = check(place, made, fleet)
    assert (figures.lost, figures.overlaps) == (0, 0)
    costs = place.query("SELECT count(*) FROM leasehold.job_row WHERE failures > 0 OR crashes > 0")
    assert costs == [(0,)]
    assert fleet.unexpected() == []
    print(f"\n{place.store}: {restarts} restarts, {figures}")


@pytest.mark.timeout(60)
def test_a_program_that_is_a_worker_drains_at_sigterm(place: Place, fleet: Fleet) -> None:
    """And goes on behind `asyncio.run` then, as it does when its work is done."""
    job = place.tasks.wait_on_loop.enqueue("go")
    program = fleet.start(module="tests.faults.program_main", wait=False)
    place.wait_for_start(job.id)
    program.terminate()
    program.wait_until_it_says("claiming has stopped")
    after = place.tasks.brief.enqueue(0)
    assert program.alive
    place.open_gate("go-1")
    assert program.wait(HASTE) == 0
    assert program.said("bye")
    assert (place.row(job.id).state, place.row(job.id).attempt) == ("succeeded", 1)
    assert (place.row(after.id).state, place.row(after.id).attempt) == ("queued", 0)
    assert fleet.unexpected() == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("lease", [NO_LOSS])
def test_a_second_sigterm_stops_what_such_a_program_runs(place: Place, fleet: Fleet, lease: float) -> None:
    job = place.tasks.wait_on_loop.enqueue("never")
    before = place.row(job.id)
    program = fleet.start(module="tests.faults.program_main", wait=False)
    place.wait_for_start(job.id)
    program.terminate()
    program.wait_until_it_says("draining: no new jobs; 1 running")
    program.terminate()
    assert program.wait(HASTE) == 0
    assert_unharmed(place.row(job.id), before)


@pytest.mark.timeout(60)
def test_a_worker_inside_a_web_server_drains_with_it(place: Place, fleet: Fleet) -> None:
    job = place.tasks.wait_on_loop.enqueue("go")
    server = fleet.start(module="tests.faults.web_main")
    place.wait_for_start(job.id)
    port = (place.folder / "port").read_text()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
        assert answer.read() == b"1:1", "the server answers while its worker works"
    server.terminate()
    server.wait_until_it_says("shutting down")
    after = place.tasks.brief.enqueue(0)
    assert server.alive
    place.open_gate("go-1")
    assert server.wait(HASTE) == 0
    assert (place.row(job.id).state, place.row(job.id).attempt) == ("succeeded", 1)
    assert place.row(after.id).state == "queued"
    assert fleet.unexpected() == []


@pytest.mark.timeout(60)
def test_a_worker_inside_a_web_server_claims_nothing_from_the_first_sigterm_on(
    place: Place, fleet: Fleet
) -> None:
    """The server waits for its open requests first; its own handler of the signal is called as well."""
    job = place.tasks.wait_on_loop.enqueue("go")
    server = fleet.start(module="tests.faults.web_main")
    place.wait_for_start(job.id)
    port = (place.folder / "port").read_text()
    with ThreadPoolExecutor(1) as client:
        slow = client.submit(urllib.request.urlopen, f"http://127.0.0.1:{port}/slow", timeout=30)
        server.wait_until_it_says("a slow request")
        server.terminate()
        server.wait_until_it_says("told to end: 1 open request(s)")
        server.wait_until_it_says("SIGTERM: no new jobs; 1 running", HASTE)
        wait_for(
            lambda: all(card.draining for card in place.app.__internals__.store.list_workers()), "a card"
        )
        after = place.tasks.brief.enqueue(0)
        server.terminate()  # once more: those that run still have their grace
        place.open_gate("slow")
        assert slow.result().read() == b"slow"
        server.wait_until_it_says("shutting down")
        place.open_gate("go-1")
        assert server.wait(HASTE) == 0
    assert (place.row(job.id).state, place.row(job.id).attempt) == ("succeeded", 1)
    assert (place.row(after.id).state, place.row(after.id).attempt) == ("queued", 0)
    assert fleet.unexpected() == []


@pytest.mark.timeout(60)
def test_a_web_server_that_ends_before_its_job_hands_the_job_back(place: Place, fleet: Fleet) -> None:
    job = place.tasks.wait_in_thread.enqueue("never")
    before = place.row(job.id)
    server = fleet.start(module="tests.faults.web_main", shutdown_grace=0.2)
    place.wait_for_start(job.id)
    server.terminate()
    assert server.wait(HASTE) == 0
    assert_unharmed(place.row(job.id), before)
