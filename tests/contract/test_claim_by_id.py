"""Claim by id: all guards but the queue's; a lease that has run out is reaped first, in two looks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain.outcome import HandedBack, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import Flag, State
from tests.backends import new_id, put
from tests.contract.lives import (
    OWNER,
    SITE,
    claim_ids,
    claim_one,
    claim_until_found,
    denied,
    end,
    granted,
    in_state,
    is_fenced,
    orphan,
    run,
    run_external,
)


def test_a_claim_by_id_writes_what_a_claim_writes(store, clock):
    fields = {
        "args": '{"a": 1}',
        "lane": "l",
        "group": "g",
        "deadline": 60.0,
        "policy": Policy(max_attempts=2),
    }
    one = put(store, **fields)
    by_queue = claim_one(store)
    end(store, by_queue, Success())
    two = put(store, **fields)
    by_id = granted(store.claim_by_id(two.id, OWNER))
    assert by_id._replace(seq=one.seq, id=one.id) == by_queue
    job = store.get(two.id)
    assert (job.state, job.worker, job.attempt, job.lease_token) == (State.RUNNING, OWNER, 1, 1)
    assert job.lease_expires_at == clock.now() + timedelta(seconds=30)
    assert job.started_at == job.first_started_at == clock.now()
    assert store.history(two.id) == []


def test_the_pause_of_its_queue_does_not_stop_a_claim_by_id(store):
    job = put(store, queue="q")
    store.pause_scope("queue", "q")
    assert claim_ids(store, queue="q") == []
    assert granted(store.claim_by_id(job.id, OWNER)).id == job.id


def test_the_pause_of_its_kind_stops_a_claim_by_id(store, clock):
    job = put(store, task="k")
    store.pause_scope("task", "k", for_=60.0)
    assert "paused" in denied(store.claim_by_id(job.id, OWNER)).why
    assert store.get(job.id) == job
    clock.advance(60)
    granted(store.claim_by_id(job.id, OWNER))


def test_a_job_that_is_not_due_is_not_claimed_by_id(store, clock):
    job = put(store, delay=5.0)
    assert "not due" in denied(store.claim_by_id(job.id, OWNER)).why
    clock.advance(5)
    granted(store.claim_by_id(job.id, OWNER))


def test_a_job_that_is_not_there_is_denied(store):
    missing = new_id()
    answer = denied(store.claim_by_id(missing, OWNER))
    assert (answer.id, answer.state, answer.sighting) == (missing, None, None)


@pytest.mark.parametrize("state", [state for state in State if state not in (State.QUEUED, State.RUNNING)])
def test_a_denial_names_the_state(store, clock, state):
    job = in_state(store, clock, state)
    answer = denied(store.claim_by_id(job.id, OWNER))
    assert (answer.state, answer.sighting) == (state, None)
    assert state.value.replace("_", " ") in answer.why
    assert store.get(job.id) == job


def test_a_claimed_job_leaves_the_queue_to_the_others(store):
    first, second = put(store), put(store)
    granted(store.claim_by_id(first.id, OWNER))
    assert claim_ids(store) == [second.id]


# -- when to come back -------------------------------------------------------------------------------------------------


def test_a_denial_of_a_job_that_goes_on_by_itself_says_when_to_ask_again(store, clock):
    later = put(store, delay=7.0)
    assert denied(store.claim_by_id(later.id, OWNER)).retry_in == 7.0
    held = run(store)
    clock.advance(10)
    assert denied(store.claim_by_id(held.id, "thief")).retry_in == 20.0
    clock.advance(21)
    assert denied(store.claim_by_id(held.id, "thief")).retry_in == 10.0, "a third of the lease"
    first, second = put(store, lane="l"), put(store, lane="l")
    assert denied(store.claim_by_id(second.id, OWNER)).retry_in > 0
    child = put(store, after=(first.id,))
    assert denied(store.claim_by_id(child.id, OWNER)).retry_in > 0


@pytest.mark.parametrize("state", [state for state in State if state not in (State.QUEUED, State.RUNNING)])
def test_a_denial_of_a_job_that_needs_somebody_names_no_time(store, clock, state):
    job = in_state(store, clock, state)
    assert denied(store.claim_by_id(job.id, OWNER)).retry_in is None
    assert denied(store.claim_by_id(new_id(), OWNER)).retry_in is None


# -- lanes -------------------------------------------------------------------------------------------------------------


def test_only_the_head_of_a_lane_is_claimed_by_id(store):
    first, second = put(store, lane="l"), put(store, lane="l")
    assert first.id in denied(store.claim_by_id(second.id, OWNER)).why
    grant = granted(store.claim_by_id(first.id, OWNER))
    assert first.id in denied(store.claim_by_id(second.id, OWNER)).why
    assert claim_until_found(store) == []
    end(store, grant, Success())
    granted(store.claim_by_id(second.id, OWNER))


def test_a_halted_lane_is_not_claimed_by_id(store):
    first, second = put(store, lane="l"), put(store, lane="l")
    end(store, granted(store.claim_by_id(first.id, OWNER)), QuestionAsked("q", "?"))
    answer = denied(store.claim_by_id(second.id, OWNER))
    assert first.id in answer.why
    assert answer.state is State.QUEUED


def test_a_job_claimed_by_id_keeps_its_lane_through_a_hand_back(store, clock):
    first, second = put(store, lane="l"), put(store, lane="l")
    end(store, granted(store.claim_by_id(first.id, OWNER)), HandedBack())
    denied(store.claim_by_id(second.id, OWNER))
    assert claim_until_found(store) == [first.id]


# -- a lease that runs, or has run out ---------------------------------------------------------------------------------


def test_a_lease_that_runs_is_not_stolen(store, clock):
    grant = run(store)
    job = store.get(grant.id)
    clock.advance(29.999)
    answer = denied(store.claim_by_id(grant.id, "thief"))
    assert (answer.state, answer.sighting) == (State.RUNNING, None)
    assert OWNER in answer.why
    assert store.get(grant.id) == job


def test_a_lease_that_has_run_out_is_stolen_in_two_looks(store, clock):
    grant = run(store)
    clock.advance(31)
    before = store.get(grant.id)
    look = denied(store.claim_by_id(grant.id, "thief")).sighting
    assert (look.id, look.token, look.worker, look.seen_at) == (
        grant.id,
        grant.token,
        OWNER,
        clock.monotonic(),
    )
    clock.advance(9.999)
    assert denied(store.claim_by_id(grant.id, "thief", sighting=look)).sighting is not None
    assert store.get(grant.id) == before
    clock.advance(0.001)
    stolen = granted(store.claim_by_id(grant.id, "thief", sighting=look))
    job = store.get(grant.id)
    assert (stolen.token, stolen.attempt, stolen.crashes) == (grant.token + 1, 2, 1)
    assert (job.worker, job.attempt, job.crashes, job.failures) == ("thief", 2, 1, 0)
    assert [entry.event for entry in store.history(grant.id)] == ["lost"]
    assert is_fenced(store, grant, Success())


def test_a_sighting_of_the_sweep_serves_a_claim_by_id(store, clock):
    grant = run(store)
    clock.advance(31)
    (look,) = store.sight_overdue()
    clock.advance(10)
    granted(store.claim_by_id(grant.id, "thief", sighting=look))


def test_a_renewal_between_the_looks_keeps_the_lease_from_the_thief(store, clock):
    grant = run(store)
    clock.advance(31)
    look = denied(store.claim_by_id(grant.id, "thief")).sighting
    clock.advance(10)
    store.renew({grant.id: grant.token})
    assert denied(store.claim_by_id(grant.id, "thief", sighting=look)).sighting is None
    clock.advance(31)
    again = denied(store.claim_by_id(grant.id, "thief", sighting=look))
    assert again.sighting.expires_at > look.expires_at, "it starts with a first look again"
    assert store.get(grant.id).worker == OWNER


@pytest.mark.parametrize(
    ("flag", "state"), [("finish", State.CANCELLED), ("pause", State.PAUSED), ("cancel", State.CANCELLED)]
)
def test_a_lost_job_that_was_to_stop_is_reaped_and_denied(store, clock, flag, state):
    grant = run(store)
    getattr(store, flag)(grant.id)
    answer = _steal(store, clock, grant.id)
    assert denied(answer).state is state
    assert store.get(grant.id).state is state


def test_a_lost_job_that_must_not_run_twice_is_reaped_and_denied(store, clock):
    grant = run(store, policy=Policy(on_lost="fail"))
    assert denied(_steal(store, clock, grant.id)).state is State.FAILED
    assert store.get(grant.id).state is State.FAILED


def test_a_lost_job_that_has_crashed_too_often_is_reaped_and_denied(store, clock):
    grant = run(store, policy=Policy(max_crashes=1))
    assert denied(_steal(store, clock, grant.id)).state is State.FAILED


def test_a_second_loss_waits_for_its_backoff_and_is_denied_until_then(store, clock):
    grant = run(store, policy=Policy(backoff=8.0))
    granted(_steal(store, clock, grant.id))
    answer = denied(_steal(store, clock, grant.id))
    assert (answer.state, "not due" in answer.why) == (State.QUEUED, True)
    assert store.get(grant.id).crashes == 2
    clock.advance(8)
    granted(store.claim_by_id(grant.id, "thief"))


def test_a_stolen_lane_job_runs_again_at_the_head_of_its_lane(store, clock):
    first, second = put(store, lane="l"), put(store, lane="l")
    granted(store.claim_by_id(first.id, OWNER))
    stolen = granted(_steal(store, clock, first.id))
    assert claim_until_found(store) == []
    end(store, stolen, Success())
    assert claim_until_found(store) == [second.id]


def test_a_steal_counts_a_bystander_as_a_bystander(store, clock):
    """Whoever takes the first look, a job that shared its dead process may have been killed by its neighbour."""
    grant = run(store, worker="busy", policy=Policy(backoff=0.0))
    run(store, worker="busy", lease_seconds=3600.0)
    clock.advance(31)
    assert denied(store.claim_by_id(grant.id, "thief")).sighting.alone is False


# -- orphans -----------------------------------------------------------------------------------------------------------


def test_an_orphan_of_a_served_site_is_adopted_by_id(store, clock):
    left = orphan(store, clock)
    grant = granted(store.claim_by_id(left.id, "adopter", sites=["elsewhere", SITE]))
    assert (grant.token, grant.attempt, grant.execution_name) == (
        left.lease_token + 1,
        1,
        left.execution_name,
    )
    assert store.get(left.id).worker == "adopter"
    assert store.history(left.id)[-1].event == "adopted"


def test_an_orphan_of_another_site_is_denied(store, clock):
    left = orphan(store, clock)
    for sites in ([], ["elsewhere"]):
        answer = denied(store.claim_by_id(left.id, "adopter", sites=sites))
        assert "another site" in answer.why
    assert store.get(left.id) == left


@pytest.mark.parametrize("serves", [True, False])
def test_a_lost_external_run_is_reaped_and_adopted_at_once_where_its_site_is_served(store, clock, serves):
    grant = run_external(store, policy=Policy(on_lost="adopt"))
    store.pause(grant.id)
    answer = _steal(store, clock, grant.id, sites=[SITE] if serves else [])
    job = store.get(grant.id)
    assert (job.crashes, job.attempt, job.stop_requested) == (0, 1, Flag.PAUSE)
    if serves:
        assert granted(answer).token == grant.token + 1
        assert job.worker == "thief"
    else:
        assert denied(answer).state is State.RUNNING
        assert job.orphan


def _steal(store, clock, job_id, sites=()):
    """Both looks, then the claim."""
    clock.advance(31)
    look = denied(store.claim_by_id(job_id, "thief", sites=sites)).sighting
    clock.advance(10)
    return store.claim_by_id(job_id, "thief", sites=sites, sighting=look)
