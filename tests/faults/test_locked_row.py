"""Somebody's open transaction holds one job's rows for longer than its lease: the others must not suffer for it."""

from __future__ import annotations

import psycopg
import pytest

from tests.faults.harness import Fleet, Place, check, wait_for

LEASE = 2.0


@pytest.mark.timeout(90)
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_row_locked_for_two_leases_costs_no_other_job_of_its_worker_its_run(
    place: Place, fleet: Fleet
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
