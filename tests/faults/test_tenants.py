"""A worker of tenants is killed: what it held is taken over, in the tenant it belongs to."""

from __future__ import annotations

from leasehold.types import State
from tests.faults.harness import Fleet, Place, wait_for


def test_a_killed_workers_jobs_of_tenants_are_recovered(place: Place, fleet: Fleet):
    app = place.app
    names = ["acme", "beta"]
    for name in names:
        app.tenants.create(name)
    try:
        jobs = {name: app.enqueue("wait_on_loop", {"name": name}, tenant=name) for name in names}
        first = fleet.start(tenants="all", sweep=0.5)
        wait_for(lambda: all(job.refresh().state is State.RUNNING for job in jobs.values()), "both to run")
        first.kill()
        fleet.start(tenants="all", sweep=0.5)
        wait_for(lambda: all(len(job.attempts()) == 2 for job in jobs.values()), "a second run")
        for name, job in jobs.items():
            assert [one.id for one in app.tenant(name).jobs().jobs] == [job.id]
    finally:
        for name in names:
            app.tenants.drop(name)
