"""Schedules: a tick is dealt with once, whoever looks; its jobs are made with it or not at all."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from leasehold.domain.errors import InvalidInput, JobNotFound, ScheduleNotFound
from leasehold.domain.outcome import Success
from leasehold.domain.records import WorkerCard
from leasehold.domain.schedules import Schedule
from leasehold.domain.states import State
from leasehold.stores.verbs.workers import SILENT_AFTER
from tests.backends import new_job, put
from tests.contract.lives import claim_one, end

MINUTE = timedelta(minutes=1)


def hourly(**changes: object) -> Schedule:
    return Schedule(**{"name": "hourly", "task": "work", "every": 3600.0, **changes})


def beat(store, worker: str, draining: bool = False) -> None:
    store.report_worker(
        WorkerCard(
            name=worker,
            queues=("default",),
            tasks=("work",),
            concurrency=1,
            running=0,
            version="1",
            draining=draining,
        )
    )


def declare(store, worker: str = "w", **changes: object):
    (found,) = store.register_schedules(worker, [hourly(**changes)])
    return found


def row(store, name: str = "hourly"):
    (found,) = [one for one in store.list_schedules() if one.name == name]
    return found


def fire(store, *jobs, passed: int = 0):
    seen = row(store)
    return store.fire("hourly", seen.next_at, jobs, seen.next_at + 60 * MINUTE, passed)


def tick(store, clock):
    """The job of the next tick, whose time has come."""
    seen = row(store)
    clock.advance((seen.next_at - clock.now()).total_seconds())
    return new_job(at=seen.next_at)


# -- declared in code ------------------------------------------------------------------------------------------------


def test_a_declared_schedule_is_due_an_interval_from_now(store, clock):
    found = declare(store)
    assert (found.change, found.starts) == ("new", False)
    made = row(store)
    assert (made.task, made.every, made.source, made.hosts) == ("work", 3600.0, "code", 1)
    assert made.next_at == clock.now() + 60 * MINUTE
    assert (made.last_at, made.last_job, made.passed, made.orphaned) == (None, None, 0, False)


def test_declared_again_it_keeps_its_next_tick(store, clock):
    declare(store)
    before = row(store).next_at
    clock.advance(600)
    assert declare(store, "x").change == "same"
    assert row(store).next_at == before


def test_a_changed_interval_counts_from_now_and_says_what_it_was(store, clock):
    declare(store)
    clock.advance(600)
    found = declare(store, every=900.0)
    assert (found.change, found.before) == ("changed", "every 1h")
    assert row(store).next_at == clock.now() + 15 * MINUTE


@pytest.mark.parametrize("changes", [{"args": '{"n":1}'}, {"overlap": "allow"}, {"missed": "all"}])
def test_what_is_not_about_its_times_is_changed_without_moving_its_next_tick(store, clock, changes):
    declare(store)
    before = row(store).next_at
    clock.advance(600)
    assert declare(store, **changes).change == "changed"
    assert row(store).next_at == before
    clock.advance(7200)
    declare(store)
    assert row(store).next_at == before, "a tick that is due is not dropped by a deploy"
    store.leave_schedules("w")
    assert store.set_schedule(hourly(**changes)).next_at == before


def test_ticks_that_were_missed_are_not_dropped_for_the_one_of_the_start(store, clock):
    declare(store, "a", at_start=True, missed="all")
    fire(store, new_job(at=clock.now()))
    store.leave_schedules("a")
    missed = row(store).next_at
    clock.advance(3 * 3600)
    assert declare(store, "b", at_start=True, missed="all").starts is True
    assert row(store).next_at == missed
    store.leave_schedules("b")
    declare(store, "c", at_start=True, missed="one")
    assert row(store).next_at == clock.now()


def test_at_start_is_a_tick_now_once_for_a_fleet(store, clock):
    assert declare(store, "a", at_start=True).starts is True
    assert row(store).next_at == clock.now()
    fire(store, new_job(at=clock.now()))
    clock.advance(10)
    assert declare(store, "b", at_start=True).starts is False, (
        "a is there, though it has not told of itself yet"
    )
    beat(store, "a")
    clock.advance(SILENT_AFTER + 1)
    beat(store, "a")
    assert declare(store, "c", at_start=True).starts is False


def test_a_fleet_that_has_gone_starts_anew(store, clock):
    declare(store, "a", at_start=True)
    store.leave_schedules("a")
    assert declare(store, "b", at_start=True).starts is True, "a has signed off"
    beat(store, "b")
    clock.advance(SILENT_AFTER + 1)
    assert declare(store, "c", at_start=True).starts is True, "b was not heard of for long"


def test_a_worker_that_drains_is_no_longer_of_the_fleet(store):
    declare(store, "a", at_start=True)
    beat(store, "a", draining=True)
    assert declare(store, "b", at_start=True).starts is True


def test_a_burst_is_not_the_start_of_a_fleet(store, clock):
    (found,) = store.register_schedules("a", [hourly(at_start=True)], starting=False)
    assert found.starts is False
    assert row(store).next_at == clock.now() + 60 * MINUTE


def test_a_schedule_that_no_live_worker_declares_is_orphaned(store, clock):
    declare(store, "a")
    beat(store, "a")
    assert row(store).orphaned is False
    clock.advance(SILENT_AFTER + 1)
    assert row(store).orphaned is True


# -- ticks -----------------------------------------------------------------------------------------------------------


def test_a_tick_makes_its_job_and_moves_on(store, clock):
    declare(store)
    job = tick(store, clock)
    due = row(store).next_at
    assert fire(store, job).jobs == [job.id]
    after = row(store)
    assert (after.last_at, after.last_job, after.next_at) == (due, job.id, due + 60 * MINUTE)
    assert store.get(job.id).available_at == due


def test_a_tick_that_somebody_has_dealt_with_makes_nothing(store, clock):
    declare(store)
    job, late = tick(store, clock), new_job()
    seen = row(store).next_at
    assert fire(store, job) is not None
    assert store.fire("hourly", seen, [late], seen + 120 * MINUTE, 0) is None
    assert row(store).next_at == seen + 60 * MINUTE
    assert [one.id for one in store.list_jobs().jobs] == [job.id]


def test_a_paused_changed_or_deleted_schedule_makes_nothing(store, clock):
    declare(store)
    tick(store, clock)
    store.pause_schedule("hourly")
    assert fire(store, new_job()) is None
    assert store.fire("gone", clock.now(), [new_job()], clock.now() + MINUTE, 0) is None
    assert store.list_jobs().jobs == []


def test_ticks_that_were_passed_over_are_counted(store, clock):
    declare(store)
    tick(store, clock)
    assert fire(store, passed=3).jobs == []
    assert (row(store).passed, row(store).last_at) == (3, None)


def test_skip_makes_no_job_while_the_last_one_lives(store, clock):
    declare(store, overlap="skip")
    first = tick(store, clock)
    fire(store, first)
    second = tick(store, clock)
    found = fire(store, second)
    assert (found.jobs, found.overlapped) == ([], True)
    assert (row(store).last_job, row(store).passed) == (first.id, 1)
    end(store, claim_one(store), Success())
    third = tick(store, clock)
    assert fire(store, third).jobs == [third.id]


def test_allow_makes_a_job_beside_the_last_one(store, clock):
    declare(store, overlap="allow")
    first = tick(store, clock)
    fire(store, first)
    second = tick(store, clock)
    assert fire(store, second).jobs == [second.id]
    assert {store.get(job.id).state for job in (first, second)} == {State.QUEUED}


def test_replace_cancels_one_that_has_not_started(store, clock):
    declare(store, overlap="replace")
    first = tick(store, clock)
    fire(store, first)
    second = tick(store, clock)
    found = fire(store, second)
    assert (found.jobs, found.replaced) == ([second.id], first.id)
    old = store.get(first.id)
    assert old.state is State.CANCELLED
    assert "hourly" in old.reason
    assert claim_one(store).id == second.id


def test_a_group_counts_a_replaced_tick_no_longer(store, clock):
    declare(store, overlap="replace")
    for _ in range(2):
        fire(store, replace(tick(store, clock), group="ticks"))
    assert store.misplaced() == []
    end(store, claim_one(store), Success())
    assert store.misplaced() == []


def test_replace_waits_for_one_that_runs(store, clock):
    declare(store, overlap="replace")
    first = tick(store, clock)
    fire(store, first)
    running = claim_one(store)
    second = tick(store, clock)
    assert fire(store, second).replaced == first.id
    assert store.get(first.id).stop_requested == "cancel"
    assert store.claim("w", ["default"], 1) == [], "two of them never run at once"
    end(store, running, Success())
    assert claim_one(store).id == second.id


# -- at run time -----------------------------------------------------------------------------------------------------


def test_one_made_at_run_time_is_changed_and_deleted_at_run_time(store, clock):
    made = store.set_schedule(hourly())
    assert (made.source, made.next_at, made.orphaned) == ("set", clock.now() + 60 * MINUTE, False)
    changed = store.set_schedule(hourly(every=60.0))
    assert (changed.every, changed.next_at) == (60.0, clock.now() + MINUTE)
    store.delete_schedule("hourly")
    assert store.list_schedules() == []
    with pytest.raises(ScheduleNotFound):
        store.delete_schedule("hourly")


def test_one_in_the_code_of_a_live_worker_is_not_changed_behind_its_back(store, clock):
    declare(store, "a")
    for verb in (lambda: store.set_schedule(hourly(every=60.0)), lambda: store.delete_schedule("hourly")):
        with pytest.raises(InvalidInput, match="code of a live worker"):
            verb()
    store.leave_schedules("a")
    store.delete_schedule("hourly")
    assert store.list_schedules() == []


def test_a_pause_tells_who_and_why_and_its_ticks_are_not_made_up_for(store, clock):
    declare(store)
    store.pause_schedule("hourly", "anna", "the source is down")
    paused = row(store)
    assert (paused.paused, paused.paused_by, paused.reason) == (True, "anna", "the source is down")
    clock.advance(10_000)
    assert store.resume_schedule("hourly") is True
    assert row(store).next_at == clock.now() + 60 * MINUTE
    assert store.resume_schedule("hourly") is False
    with pytest.raises(ScheduleNotFound):
        store.pause_schedule("nope")


def test_a_pause_without_a_tick_does_not_put_off_the_next(store, clock):
    declare(store)
    before = row(store).next_at
    store.pause_schedule("hourly")
    clock.advance(600)
    store.resume_schedule("hourly")
    assert row(store).next_at == before


def test_jobs_of_ticks_are_pruned_like_others_and_the_next_tick_does_not_miss_them(store, clock):
    declare(store, overlap="skip")
    job = tick(store, clock)
    fire(store, job)
    end(store, claim_one(store), Success())
    put(store, task="other", hold=True)  # on SQLite the newest job of all is never pruned
    clock.advance(1800)
    assert store.prune(60.0).deleted == 1
    with pytest.raises(JobNotFound):
        store.get(job.id)
    assert row(store).last_job == job.id
    second = tick(store, clock)
    assert fire(store, second).jobs == [second.id]


def test_a_job_made_by_hand_counts_as_the_last_one(store, clock):
    declare(store, overlap="skip")
    job = put(store)
    store.record_manual_job("hourly", job.id)
    before = row(store).next_at
    assert row(store).last_job == job.id
    assert fire(store, tick(store, clock)).overlapped is True
    assert before < row(store).next_at
