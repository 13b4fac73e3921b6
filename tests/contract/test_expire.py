"""Expire: a job that does not run and whose time is over ends, and its lane goes on or halts as for any other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leasehold.domain.job import Enqueued
from leasehold.domain.outcome import Failure, Snoozed, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import State
from tests.backends import new_job, put
from tests.contract.lives import claim_one, claim_until_found, end, in_state, is_fenced, run


@pytest.mark.parametrize("state", [State.PENDING, State.QUEUED, State.WAITING])
def test_a_job_that_does_not_run_times_out_at_its_deadline_and_not_a_moment_before(store, clock, state):
    job = in_state(store, clock, state, deadline=60.0)
    clock.advance(59.999)
    assert store.expire() == []
    clock.advance(0.001)
    (expired,) = store.expire()
    assert expired == store.get(job.id)
    assert (expired.state, expired.finished_at, expired.held) == (State.TIMED_OUT, clock.now(), False)
    assert "deadline" in expired.reason
    assert store.history(job.id)[-1].event == "expired"
    assert store.expire() == []


@pytest.mark.parametrize("hold", [False, True])
def test_a_job_that_was_not_started_in_time_is_cancelled(store, clock, hold):
    job = put(store, start_by=60.0, hold=hold)
    clock.advance(59.999)
    assert store.expire() == []
    clock.advance(0.001)
    (expired,) = store.expire()
    assert (expired.id, expired.state) == (job.id, State.CANCELLED)
    assert "not started in time" in expired.reason
    assert claim_until_found(store) == []


def test_a_job_that_was_started_in_time_may_be_started_again_later(store, clock):
    grant = run(store, start_by=60.0)
    end(store, grant, Snoozed(120.0))
    clock.advance(121)
    assert store.expire() == []
    assert claim_until_found(store) == [grant.id]


@pytest.mark.parametrize("state", [State.RUNNING, State.PAUSED, State.FAILED, State.SUCCEEDED])
def test_what_runs_or_rests_does_not_expire(store, clock, state):
    job = in_state(store, clock, state, deadline=60.0, start_by=30.0)
    clock.advance(1000)
    assert store.expire() == []
    assert store.get(job.id) == job


def test_a_retry_past_the_deadline_is_not_started(store, clock):
    grant = run(store, deadline=60.0, policy=Policy(backoff=100.0))
    end(store, grant, Failure("boom"))
    clock.advance(60)
    (expired,) = store.expire()
    assert (expired.state, expired.error) == (State.TIMED_OUT, "boom")
    assert is_fenced(store, grant, Success())


def test_no_more_expire_than_asked_for(store, clock):
    for _ in range(5):
        put(store, deadline=10.0)
    clock.advance(10)
    assert [len(store.expire(limit=3)), len(store.expire(limit=3))] == [3, 2]


def test_an_expired_head_that_never_started_lets_its_lane_go_on(store, clock):
    put(store, lane="l", deadline=10.0)
    put(store, lane="l", start_by=10.0)
    last = put(store, lane="l")
    store.pause_scope("queue", "default")
    claim_until_found(store)
    clock.advance(10)
    assert len(store.expire()) == 2
    store.resume_scope("queue", "default")
    assert claim_until_found(store) == [last.id]


@pytest.mark.parametrize(("on_failure", "goes_on"), [("halt", False), ("skip", True)])
def test_an_expired_job_that_had_started_halts_its_lane_as_its_task_says(store, clock, on_failure, goes_on):
    put(store, lane="l", deadline=10.0, policy=Policy(on_failure=on_failure))
    follower = put(store, lane="l")
    end(store, claim_one(store), QuestionAsked("q", "May I?"))
    claim_until_found(store)
    clock.advance(10)
    (expired,) = store.expire()
    assert (expired.state, expired.halts_lane) == (State.TIMED_OUT, not goes_on)
    assert claim_until_found(store) == ([follower.id] if goes_on else [])


@pytest.mark.parametrize("ended", [False, True])
def test_a_job_that_its_lane_has_passed_expires_without_halting_it(store, clock, ended):
    """It was resolved, so that another could run; resumed, it waits behind that one until its time is over."""
    grant = run(store, lane="l", deadline=10.0, policy=Policy(max_attempts=1))
    end(store, grant, Failure("boom"))
    store.skip(grant.id)
    other, last = put(store, lane="l"), put(store, lane="l")
    holder = claim_one(store)
    assert holder.id == other.id
    store.resume(grant.id)
    if ended:
        end(store, holder, Success())
    clock.advance(10)
    (expired,) = store.expire()
    assert (expired.id, expired.state, expired.halts_lane) == (grant.id, State.TIMED_OUT, False)
    if not ended:
        end(store, holder, Success())
    assert claim_until_found(store) == [last.id]


def test_an_expired_job_gives_its_unique_key_back(store, clock):
    put(store, unique_key="k", deadline=10.0)
    clock.advance(10)
    store.expire()
    job = new_job(unique_key="k")
    assert store.enqueue([job]) == [Enqueued(job.id, True)]


def test_an_expired_job_can_be_resumed_by_hand(store, clock):
    job = put(store, deadline=10.0)
    clock.advance(10)
    (expired,) = store.expire()
    resumed = store.resume(job.id)
    assert resumed == replace(expired, state=State.QUEUED, finished_at=None, reason=None)
