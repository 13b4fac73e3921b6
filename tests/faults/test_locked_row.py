"""Somebody's open transaction holds one job's rows for longer than its lease: the others must not suffer for it."""

from __future__ import annotations

import psycopg
import pytest

from tests.faults.harness import Fleet, Place, check, wait_for

LEASE = 4.0


@pytest.mark.slow(8)
@pytest.mark.timeout(90)
@pytest.mark.parametrize("lease", [LEASE])
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_row_locked_for_two_leases_costs_no_other_job_of_its_worker_its_run(
    place: Place, fleet: Fleet, lease: float
) -> None:
    jobs = [place.tasks.wait_on_loop.enqueue(f"job-{n}") for n in range(4)]
    locked, *others = jobs
    fleet.start()
    for job in jobs:
        place.wait_for_start(job.id)
    fleet.start()
    with psycopg.connect(place.url) as connection:
        schema = f'"{place.schema}"'
        (seq,) = connection.execute(
            f"SELECT seq FROM {schema}.job WHERE id = %s FOR UPDATE".encode(), [locked.id]
        ).fetchone()
        connection.execute(f"SELECT FROM {schema}.lease WHERE job = %s FOR UPDATE".encode(), [seq])
        (began,) = connection.execute("SELECT clock_timestamp()").fetchone()
        renewed = {job.id: place.row(job.id).lease_expires_at for job in others}

        def two_leases_have_passed() -> bool:
            (now,) = connection.execute("SELECT clock_timestamp()").fetchone()
            return (now - began).total_seconds() > 2 * LEASE

        wait_for(two_leases_have_passed, "two lease lengths")
        for job in others:
            row = place.row(job.id)
            assert (row.attempt, row.crashes) == (1, 0)
            assert row.lease_expires_at > renewed[job.id], "it was renewed all the while"
        for number in range(1, 4):
            place.open_gate(f"job-{number}-1")
        for job in others:
            place.wait_for_state(job.id, "succeeded")
    # Its own lease could not be renewed: it was stopped in time, and runs again.
    for attempt in (1, 2):
        place.open_gate(f"job-0-{attempt}")
    done = place.wait_for_state(locked.id, "succeeded")
    figures = check(place, [job.id for job in jobs], fleet)
    runs = {job.id: [run.attempt for run in place.log.of(job.id)] for job in jobs}
    assert [runs[job.id] for job in others] == [[1]] * 3
    print(f"the locked job: attempt {done.attempt}, crashes {done.crashes}, runs {runs[locked.id]}")
    assert figures.overlaps == 0
    assert fleet.unexpected() == []


@pytest.mark.timeout(90)
@pytest.mark.parametrize("lease", [60.0])
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_jobs_that_end_while_their_rows_are_locked_keep_no_other_ending_waiting(
    place: Place, fleet: Fleet, lease: float
) -> None:
    """More of them than there are batches under way at once, told of and not, and one after the other."""
    tasks = place.tasks
    locked = [tasks.wait_on_loop.enqueue(f"locked-{n}") for n in range(2)]
    locked += [tasks.tell_at_the_gate.enqueue(f"locked-{n}", 3) for n in range(2, 4)]
    others = [tasks.wait_in_thread.enqueue("other"), tasks.tell_at_the_gate.enqueue("other", 3)]
    halted = tasks.wait_or_pause.enqueue("other")
    worker = fleet.start(threads=4)
    for job in (*locked, *others, halted):
        place.wait_for_start(job.id)
    with psycopg.connect(place.url) as connection:
        schema = f'"{place.schema}"'
        for job in locked:
            (seq,) = connection.execute(
                f"SELECT seq FROM {schema}.job WHERE id = %s FOR UPDATE".encode(), [job.id]
            ).fetchone()
            connection.execute(f"SELECT FROM {schema}.lease WHERE job = %s FOR UPDATE".encode(), [seq])
        for number, job in enumerate(locked):
            place.open_gate(f"locked-{number}-1")
            # Its handler has ended, and its ending is on its way.
            wait_for(lambda job=job: place.log.of(job.id)[0].how, "its end")
        worker.wait_until_it_says("4 result(s) are kept: an open transaction has locked their rows")
        # A decided ending and plain ones, and what a run tells before it.
        halted.pause()
        place.wait_for_state(halted.id, "paused")
        place.open_gate("other-1")
        for job in others:
            place.wait_for_state(job.id, "succeeded")
        assert len([event for event in others[1].watch() if event.kind == "item"]) == 3
        after = tasks.brief.enqueue(0)
        place.wait_for_state(after.id, "succeeded")
        assert {place.row(job.id).state for job in locked} == {"running"}
    for job in locked:
        row = place.wait_for_state(job.id, "succeeded")
        assert (row.attempt, row.crashes) == (1, 0), "its result was kept, and taken when the lock was gone"
    halted.resume()
    place.open_gate("other-2")
    place.wait_for_state(halted.id, "succeeded")
    check(place, [job.id for job in (*locked, *others, halted, after)], fleet)
    assert fleet.unexpected() == []
