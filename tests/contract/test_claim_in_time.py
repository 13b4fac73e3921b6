"""A job whose time is over is not run: whoever claims it meets that first, by the database's clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leasehold.domain.errors import InvalidState
from leasehold.domain.outcome import Expired, Failure, Snoozed, Success
from leasehold.domain.policy import Policy
from leasehold.domain.states import State
from leasehold.stores.results import Ending
from tests.backends import new_job, put
from tests.contract.lives import (
    OWNER,
    SITE,
    claim_ids,
    claim_one,
    denied,
    end,
    granted,
    is_fenced,
    lose,
    orphan,
    run,
)

LIMITS = [("deadline", State.TIMED_OUT, "deadline"), ("start_by", State.CANCELLED, "not started in time")]
WAYS = {
    "plain": {},
    "lane": {"lane": "l"},
    "limited": {"slots": (("browser", 1),)},
    "limited lane": {"lane": "l", "slots": (("browser", 1),)},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("idle", [False, True], ids=["busy", "idle"])
@pytest.mark.parametrize(("limit", "state", "reason"), LIMITS)
def test_a_claim_ends_what_has_no_time_left_and_hands_out_the_rest(
    store, clock, way, idle, limit, state, reason
):
    store.set_slot("browser", 1)
    queue = f"{way} {limit} {idle}"
    late = put(store, queue=queue, **{limit: 60.0}, **WAYS[way])
    clock.advance(59.999)
    in_time = put(store, queue=queue, **{limit: 60.0}, **WAYS[way])
    clock.advance(0.001)
    assert claim_ids(store, queue=queue, idle=idle) == [in_time.id]
    ended = store.get(late.id)
    assert (ended.state, ended.finished_at) == (state, clock.now())
    assert reason in ended.reason
    assert (ended.attempt, ended.started_at, ended.first_started_at) == (0, None, None), "nobody has run it"
    assert (ended.worker, ended.settled_by, ended.halts_lane) == (None, None, False)
    assert [entry.event for entry in store.history(late.id)] == ["expired"]
    assert store.expire() == []


@pytest.mark.parametrize("way", WAYS)
def test_a_claim_goes_on_when_all_it_took_had_no_time_left(store, clock, way):
    """An empty answer sends a worker to sleep."""
    store.set_slot("browser", 1)
    for _ in range(5):
        put(store, priority=1, start_by=10.0, **WAYS[way])
    clock.advance(10)
    job = put(store, **WAYS[way])
    assert claim_ids(store, limit=2) == [job.id]
    assert store.count()[State.CANCELLED] == 5
    assert claim_ids(store) == []


@pytest.mark.parametrize(("limit", "state", "reason"), LIMITS)
def test_a_claim_ends_a_job_as_a_sweep_would(store, clock, backend, limit, state, reason):
    fields = {"lane": "l", "group": "g", "unique_key": "k", "policy": Policy(max_attempts=2), limit: 10.0}
    swept = put(store, **fields)
    clock.advance(10)
    store.expire()
    met = put(store, **fields)
    clock.advance(10)
    assert claim_ids(store) == []
    a, b = store.get(swept.id), store.get(met.id)
    same = {name: getattr(a, name) for name in ("id", "seq", "created_at", "available_at", "finished_at")}
    assert replace(b, lease_token=0, deadline_at=a.deadline_at, start_by=a.start_by, **same) == a
    assert backend.query("SELECT live FROM leasehold.job_group") == [(0,)]
    put(store, unique_key="k")


def test_time_left_crosses_as_seconds_and_without_a_deadline_not_at_all(store, clock):
    put(store, deadline=60.0)
    put(store, start_by=60.0)
    clock.advance(20)
    first, second = store.claim(OWNER, ["default"], 2)
    assert (first.seconds_left, second.seconds_left) == (40.0, None)
    clock.advance(15)
    assert [grant.seconds_left for grant in store.find_leases_of(OWNER)] == [25.0, None]


def test_a_retry_past_the_deadline_is_not_run_and_keeps_what_its_runs_have_told(store, clock):
    job = put(store, deadline=60.0, lane="l", policy=Policy(backoff=0.0))
    follower = put(store, lane="l")
    clock.advance(1)
    first = claim_one(store)
    end(store, first, Failure("boom"))
    before = store.get(job.id)
    clock.advance(60)
    assert claim_ids(store) == []
    after = store.get(job.id)
    assert (after.state, after.error, after.attempt, after.failures) == (State.TIMED_OUT, "boom", 1, 1)
    assert (after.started_at, after.first_started_at) == (before.started_at, before.first_started_at)
    assert after.halts_lane, "it had started"
    assert is_fenced(store, first, Success())
    store.cancel(job.id)
    assert claim_ids(store) == [follower.id]


def test_a_job_that_was_started_in_time_starts_again_later(store, clock):
    put(store, start_by=60.0)
    grant = claim_one(store)
    end(store, grant, Snoozed(100.0))
    clock.advance(100)
    assert claim_ids(store) == [grant.id]


def test_an_expired_parent_is_judged_for_those_who_wait_for_it(store, clock):
    parent = put(store, start_by=10.0)
    child = put(store, after=(parent.id,))
    clock.advance(10)
    assert claim_ids(store) == []
    assert store.get(child.id).state is State.CANCELLED


@pytest.mark.parametrize(("limit", "state", "reason"), LIMITS)
def test_a_claim_by_id_ends_what_has_no_time_left_and_says_why(store, clock, limit, state, reason):
    job = put(store, **{limit: 10.0})
    clock.advance(10)
    answer = denied(store.claim_by_id(job.id, OWNER))
    assert (answer.state, reason in answer.why) == (state, True)
    assert store.get(job.id).state is state


def test_a_stolen_job_past_its_deadline_is_denied_and_timed_out(store, clock):
    grant = run(store, deadline=40.0)
    clock.advance(31)
    look = denied(store.claim_by_id(grant.id, "thief")).sighting
    clock.advance(10)
    answer = denied(store.claim_by_id(grant.id, "thief", sighting=look))
    assert answer.state is store.get(grant.id).state is State.TIMED_OUT


def test_a_job_of_no_time_at_all_is_not_run_now_and_not_stored(store):
    job = new_job(start_by=0.0)
    with pytest.raises(InvalidState, match="not started in time"):
        store.run_now(job, OWNER, 5)
    assert store.count()[State.CANCELLED] == 0


def test_an_orphan_past_its_deadline_is_handed_out_so_that_it_can_be_stopped(store, clock):
    left = orphan(store, clock, deadline=10.0)
    clock.advance(15)
    (adopted,) = store.adopt("adopter", [SITE])
    assert (adopted.id, adopted.seconds_left) == (left.id, -5.0)


@pytest.mark.parametrize(("limit", "state", "reason"), LIMITS)
def test_what_was_granted_too_late_and_never_ended_is_ended_when_its_lease_is_missed(
    store, clock, backend, monkeypatch, limit, state, reason
):
    """The claimer died between the two."""
    job = put(store, **{limit: 10.0})
    clock.advance(10)
    doomed = backend.open(clock)
    monkeypatch.setattr(doomed, "_in_time", lambda grants: grants)
    (grant,) = doomed.claim("doomed", ["default"], 1)
    assert grant.seconds_left <= 0
    after = lose(store, clock, grant)
    assert (after.id, after.state, after.attempt, after.crashes) == (job.id, state, 0, 0)
    assert claim_ids(store) == []


def test_whoever_holds_what_came_too_late_may_end_it(store, clock, backend, monkeypatch):
    """After a lost reply: the grant is found again, and nobody has run it."""
    job = put(store, start_by=10.0)
    clock.advance(10)
    doomed = backend.open(clock)
    monkeypatch.setattr(doomed, "_in_time", lambda grants: grants)
    doomed.claim("doomed", ["default"], 1)
    (held,) = store.find_leases_of("doomed")
    assert held.seconds_left == 0.0
    assert store.settle([Ending(held.id, held.token, Expired())]).accepted == [job.id]
    assert store.get(job.id).state is State.CANCELLED


def test_a_timed_out_job_that_is_resumed_has_no_second_record_of_its_last_run(store, clock, backend):
    job = put(store, deadline=60.0, policy=Policy(backoff=0.0))
    end(store, claim_one(store), Failure("boom"))
    clock.advance(60)
    assert claim_ids(store) == []
    store.resume(job.id)
    assert backend.query("SELECT number, ended FROM leasehold.attempt") == [(1, "failed")]


def test_a_cancel_that_comes_between_the_grant_and_its_end_is_obeyed(store, clock, backend, monkeypatch):
    job = put(store, deadline=10.0)
    clock.advance(10)
    doomed = backend.open(clock)
    monkeypatch.setattr(doomed, "_in_time", lambda grants: grants)
    (grant,) = doomed.claim("doomed", ["default"], 1)
    store.cancel(job.id)
    store.settle([Ending(grant.id, grant.token, Expired())])
    assert store.get(job.id).state is State.CANCELLED


def test_a_clock_set_back_gives_the_job_its_time_again(store, clock, backend, monkeypatch):
    job = put(store, deadline=10.0)
    clock.advance(10)
    doomed = backend.open(clock)
    monkeypatch.setattr(doomed, "_in_time", lambda grants: grants)
    (grant,) = doomed.claim("doomed", ["default"], 1)
    clock.jump(-5)
    store.settle([Ending(grant.id, grant.token, Expired())])
    assert store.get(job.id).state is State.QUEUED
    assert granted(store.claim_by_id(job.id, OWNER)).seconds_left == 5.0
