"""A lane keeps its order whoever dies, and stands still behind a failure until somebody decides."""

from __future__ import annotations

import time

import pytest

from tests.faults.harness import Fleet, Place, check_lane, wait_for

KILLED_EVERY = 0.7
SETTINGS = {"concurrency": 4}


MORE = [60, pytest.param(500, marks=pytest.mark.soak)]


def drain_lane_under_kills(
    place: Place, fleet: Fleet, jobs: int, workers: int, length: float, seconds: float
) -> None:
    started = time.monotonic()
    resumed, resolved, last = jobs // 3, 2 * jobs // 3, jobs - 1
    for n in (resumed, resolved):
        place.open_gate(f"fail-{n}")
    for n in (resumed, resolved, last):
        place.open_gate(f"hold-{n}")
    made = place.tasks.in_lane.enqueue_many({"lane": "one", "n": n, "seconds": length} for n in range(jobs))
    fleet.start_many(workers, **SETTINGS)

    def kill_until_rest(n: int, *states: str) -> None:
        """Job `n` stays at work until the lane has been struck twice more, however quick the jobs before it were."""
        enough = fleet.kills + 2

        def at_rest() -> bool:
            if fleet.kills >= enough:
                place.close_gate(f"hold-{n}")
            return place.row(made[n].id).state.value in states

        fleet.kill_until(
            at_rest,
            f"job {n} of the lane to be {states}",
            every=KILLED_EVERY,
            seconds=seconds,
            busiest=True,
            **SETTINGS,
        )

    kill_until_rest(resumed, "failed")
    assert_halted(place, made[resumed].id, resumed, jobs)
    place.close_gate(f"fail-{resumed}")
    assert place.app.lanes.resume("one").id == made[resumed].id

    kill_until_rest(resolved, "failed")
    assert_halted(place, made[resolved].id, resolved, jobs)
    place.app.get(made[resolved].id).skip(reason="let it go")

    kill_until_rest(last, "succeeded", "failed")
    states = dict(place.query("SELECT state, count(*) FROM leasehold.job_row GROUP BY state"))
    assert states == {"succeeded": jobs - 1, "failed": 1}
    assert place.row(made[resolved].id).state == "failed"
    assert place.row(made[resumed].id).state == "succeeded"
    runs = [run for run in place.log.runs() if run.note is not None]
    check_lane(runs, fleet.deaths())
    assert {run.note for run in runs} == set(range(jobs))
    twice = place.query(
        "SELECT job FROM leasehold.grant_log WHERE what = 'success' GROUP BY job HAVING count(*) > 1"
    )
    assert twice == []
    assert fleet.unexpected() == []
    lost = place.query("SELECT count(*) FROM leasehold.history WHERE event = 'lost'")[0][0]
    assert lost > 0, "no kill hit the lane's running job"
    spent = time.monotonic() - started
    print(f"\n{place.store}: lane of {jobs}, {fleet.kills} kills, {lost} leases lost, {spent:.1f} s")


def assert_halted(place: Place, job: str, n: int, jobs: int) -> None:
    """Workers that look for work find none behind the failure."""
    assert place.row(job).halts_lane
    workers = {worker.name for worker in place.app.__internals__.store.list_workers()}
    assert workers
    probe = place.tasks.brief.enqueue(0)
    place.wait_for_state(probe.id, "succeeded")  # they are alive and looking
    seq = place.row(probe.id).seq
    place.query("DELETE FROM leasehold.outcome WHERE job = ?", seq)
    place.query("DELETE FROM leasehold.job WHERE seq = ?", seq)
    behind = place.query(
        "SELECT count(*) FROM leasehold.job_row WHERE lane = 'one' AND state = 'queued' AND attempt = 0"
    )
    assert behind == [(jobs - n - 1,)]


@pytest.mark.slow(20)
@pytest.mark.timeout(400)
@pytest.mark.parametrize("lease", [1.5])
@pytest.mark.parametrize("jobs", MORE)
def test_a_lane_under_kills_runs_in_order_halts_and_goes_on(
    place: Place, fleet: Fleet, lease: float, jobs: int
) -> None:
    workers, length = (4, 0.012) if place.store == "postgres" else (2, 0.04)
    drain_lane_under_kills(place, fleet, jobs, workers, length, seconds=120)


@pytest.mark.timeout(60)
def test_a_lane_does_not_wait_for_a_poll_between_two_jobs_of_different_workers(
    place: Place, fleet: Fleet
) -> None:
    """The end of one is the hint for the next, in whichever process it runs."""
    fleet.start_many(2, concurrency=1, poll=30.0)
    jobs = place.tasks.in_lane.enqueue_many({"lane": "one", "n": n, "seconds": 0.0} for n in range(20))
    wait_for(lambda: place.row(jobs[-1].id).state == "succeeded", "the lane to be drained", 25)
    check_lane(place.log.runs(), fleet.deaths())
