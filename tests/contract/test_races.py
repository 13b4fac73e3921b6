"""Every race has one outcome, whichever of the two commits first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from leasehold.domain.errors import DuplicateJob, InvalidState
from leasehold.domain.job import Enqueued, Grant
from leasehold.domain.outcome import Detached, Failure, HandedBack, Snoozed, Stopped, Success
from leasehold.domain.policy import Policy
from leasehold.domain.states import Flag, State
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.testing import START, ManualClock
from tests.backends import new_id, new_job, put
from tests.contract.lives import (
    OWNER,
    SITE,
    claim_ids,
    claim_one,
    claim_until_found,
    denied,
    end,
    in_state,
    run,
    run_external,
    sight,
)
from tests.contract.races import Race, open_race


@pytest.fixture
def race(backend, clock, monkeypatch) -> Iterator[Race]:
    with open_race(backend, clock, monkeypatch) as race:
        yield race


def _settle(store: JobStore, grant: Grant, outcome):
    return lambda: store.settle([Ending(grant.id, grant.token, outcome)])


# -- cancel ∥ complete -------------------------------------------------------------------------------------------------


def test_a_result_that_meets_a_cancel_stays_succeeded(race):
    grant = run(race.one)
    cancelled, settled = race.run(
        grant.id, lambda: race.one.cancel(grant.id), _settle(race.two, grant, Success("1"))
    )
    assert cancelled.stop_requested is Flag.CANCEL
    assert settled.accepted == [grant.id]
    job = race.one.get(grant.id)
    assert (job.state, job.result, job.stop_requested) == (State.SUCCEEDED, "1", None)


def test_a_cancel_after_the_result_is_refused(race):
    grant = run(race.one)
    settled, refusal = race.run(
        grant.id, _settle(race.one, grant, Success("1")), lambda: race.two.cancel(grant.id)
    )
    assert settled.accepted == [grant.id]
    assert isinstance(refusal, InvalidState)
    assert refusal.state == "succeeded"
    assert race.one.get(grant.id).state is State.SUCCEEDED


@pytest.mark.parametrize("outcome", [Failure("boom"), Snoozed(5.0), HandedBack(), Stopped()])
def test_a_run_that_would_be_requeued_is_cancelled_if_the_cancel_came_first(race, outcome):
    grant = run(race.one)
    _, settled = race.run(grant.id, lambda: race.one.cancel(grant.id), _settle(race.two, grant, outcome))
    assert settled.accepted == [grant.id]
    assert race.one.get(grant.id).state is State.CANCELLED
    assert claim_ids(race.one) == []


@pytest.mark.parametrize("outcome", [Failure("boom"), Snoozed(5.0), HandedBack(), Stopped()])
def test_a_requeued_run_is_cancelled_at_once_if_the_cancel_comes_later(race, clock, outcome):
    grant = run(race.one)
    _, cancelled = race.run(grant.id, _settle(race.one, grant, outcome), lambda: race.two.cancel(grant.id))
    assert cancelled.state is State.CANCELLED
    assert race.one.get(grant.id) == cancelled
    clock.advance(100)
    assert claim_ids(race.one) == []


# -- cancel ∥ claim ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", [None, "lane"])
def test_a_job_cancelled_before_the_claim_is_never_started(race, lane):
    job = put(race.one, lane=lane)
    cancelled, claimed = race.run(
        job.id, lambda: race.one.cancel(job.id), lambda: race.two.claim("w2", ["default"], 5)
    )
    assert cancelled.state is State.CANCELLED
    assert claimed == []
    assert race.one.get(job.id).attempt == 0
    assert claim_until_found(race.two) == []


@pytest.mark.parametrize("lane", [None, "lane"])
def test_a_job_claimed_before_the_cancel_carries_the_flag_and_its_owner_sees_it_at_the_next_beat(race, lane):
    job = put(race.one, lane=lane)
    claimed, cancelled = race.run(
        job.id, lambda: race.one.claim("w1", ["default"], 5), lambda: race.two.cancel(job.id)
    )
    (grant,) = claimed
    assert (cancelled.state, cancelled.stop_requested) == (State.RUNNING, Flag.CANCEL)
    assert cancelled.lease_token == grant.token, "a flag does not fence the owner"
    (renewal,) = race.one.renew({grant.id: grant.token})
    assert renewal.stop_requested is Flag.CANCEL
    assert end(race.one, grant, Stopped()).state is State.CANCELLED


def test_a_job_claimed_by_id_before_the_cancel_carries_the_flag(race):
    job = put(race.one)
    grant, cancelled = race.run(
        job.id, lambda: race.one.claim_by_id(job.id, "w1"), lambda: race.two.cancel(job.id)
    )
    assert isinstance(grant, Grant)
    assert (cancelled.state, cancelled.stop_requested) == (State.RUNNING, Flag.CANCEL)


def test_a_job_cancelled_before_the_claim_by_id_is_denied(race):
    job = put(race.one)
    _, answer = race.run(job.id, lambda: race.one.cancel(job.id), lambda: race.two.claim_by_id(job.id, "w2"))
    assert denied(answer).state is State.CANCELLED


# -- claim ∥ claim -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", [None, "lane"])
def test_two_claimers_of_one_job_have_one_winner(race, lane):
    job = put(race.one, lane=lane)
    first, second = race.run(
        job.id,
        lambda: race.one.claim("w1", ["default"], 5),
        lambda: race.two.claim("w2", ["default"], 5),
    )
    assert [grant.id for grant in first] == [job.id]
    assert second == []
    assert race.one.get(job.id).worker == "w1"


def test_a_claim_by_id_that_meets_a_claim_is_denied(race):
    job = put(race.one)
    first, second = race.run(
        job.id, lambda: race.one.claim("w1", ["default"], 5), lambda: race.two.claim_by_id(job.id, "w2")
    )
    assert [grant.id for grant in first] == [job.id]
    assert denied(second).state is State.RUNNING
    assert race.one.get(job.id).attempt == 1


def test_two_claimers_of_one_lane_that_see_different_heads_do_not_both_run(race, backend):
    """The second sees a job with an earlier place, committed meanwhile by a slow producer."""
    first = put(race.one, lane="lane")
    slow_producer = backend.open(ManualClock(START - timedelta(seconds=60)))
    put(slow_producer, queue="warm")
    with race.before_commit(first.id, lambda: race.one.claim("w1", ["default"], 5)) as answer:
        late = new_job(lane="lane")
        enqueued = (
            race.meanwhile(lambda: slow_producer.enqueue([late])) if backend.name == "postgres" else None
        )
        claimed = race.meanwhile(lambda: race.two.claim("w2", ["default"], 5))
        assert not claimed.done(), "it has taken another head, and the tripwire holds it"
    if enqueued is None:
        slow_producer.enqueue([late])
    assert [grant.id for grant in answer.result()] == [first.id]
    assert claimed.result(20) == []
    assert race.one.get(late.id).state is State.QUEUED
    end(race.one, answer.result()[0], Success())
    assert claim_until_found(race.two) == [late.id]


def test_two_claimers_of_one_lane_with_two_tickets_have_one_winner(race):
    first = put(race.one, lane="lane")
    second = put(race.one, lane="lane")
    one, two = race.run(
        first.id,
        lambda: race.one.claim("w1", ["default"], 1),
        lambda: race.two.claim("w2", ["default"], 5),
    )
    assert ([grant.id for grant in one], two) == ([first.id], [])
    end(race.one, one[0], Success())
    assert claim_until_found(race.two) == [second.id]


def test_a_claim_by_id_in_a_lane_that_another_claimer_has_just_taken_is_denied(race):
    first = put(race.one, lane="lane")
    second = put(race.one, lane="lane")
    one, two = race.run(
        first.id,
        lambda: race.one.claim("w1", ["default"], 1),
        lambda: race.two.claim_by_id(second.id, "w2"),
    )
    assert [grant.id for grant in one] == [first.id]
    denied(two)
    assert race.one.get(second.id).state is State.QUEUED


# -- late renew ∥ reap -------------------------------------------------------------------------------------------------


def test_a_late_renewal_before_the_reap_keeps_the_lease(race, clock):
    grant = run(race.one)
    seen = sight(race.two, clock, grant.id)
    renewed, reaped = race.run(
        grant.id, lambda: race.one.renew({grant.id: grant.token}), lambda: race.two.reap([seen])
    )
    assert [renewal.id for renewal in renewed] == [grant.id]
    assert reaped == []
    job = race.one.get(grant.id)
    assert (job.worker, job.lease_token, job.crashes) == (OWNER, grant.token, 0)
    assert job.lease_expires_at == clock.now() + timedelta(seconds=30)
    assert race.two.reap([seen]) == [], "the sighting is worth nothing any more"


def test_a_renewal_after_the_reap_reports_the_loss(race, clock):
    grant = run(race.one)
    seen = sight(race.one, clock, grant.id)
    reaped, renewed = race.run(
        grant.id, lambda: race.one.reap([seen]), lambda: race.two.renew({grant.id: grant.token})
    )
    assert [answer.id for answer in reaped] == [grant.id]
    assert not any(renewal.extended for renewal in renewed)
    assert race.two.renew({grant.id: grant.token}) == []
    job = race.one.get(grant.id)
    assert (job.state, job.crashes, job.lease_expires_at) == (State.QUEUED, 1, None)


# -- late settle -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Success("1"), Failure("boom", final=True)])
def test_a_late_settle_before_the_reap_is_accepted_and_the_reap_changes_nothing(race, clock, outcome):
    grant = run(race.one)
    seen = sight(race.two, clock, grant.id)
    settled, reaped = race.run(grant.id, _settle(race.one, grant, outcome), lambda: race.two.reap([seen]))
    assert settled.accepted == [grant.id]
    assert reaped == []
    assert race.one.get(grant.id).state in (State.SUCCEEDED, State.FAILED)
    assert race.one.get(grant.id).crashes == 0


@pytest.mark.parametrize("outcome", [Success("1"), Failure("boom", final=True)])
def test_a_late_settle_after_the_reap_is_refused_and_told_so(race, clock, outcome):
    grant = run(race.one)
    seen = sight(race.one, clock, grant.id)
    reaped, settled = race.run(grant.id, lambda: race.one.reap([seen]), _settle(race.two, grant, outcome))
    assert [answer.id for answer in reaped] == [grant.id]
    assert (settled.accepted, settled.fenced) == ([], [grant.id])
    assert race.one.get(grant.id).state is State.QUEUED


def test_a_late_settle_after_a_steal_is_refused_and_told_so(race, clock):
    grant = run(race.one)
    seen = sight(race.one, clock, grant.id)
    stolen, settled = race.run(
        grant.id,
        lambda: race.one.claim_by_id(grant.id, "thief", sighting=seen),
        _settle(race.two, grant, Success("1")),
    )
    assert isinstance(stolen, Grant)
    assert settled.fenced == [grant.id]
    assert race.one.get(grant.id).worker == "thief"


# -- reap ∥ reap, adopt ∥ adopt ----------------------------------------------------------------------------------------


def test_two_reapers_of_one_lease_have_one_winner(race, clock):
    grant = run(race.one)
    seen = sight(race.one, clock, grant.id)
    first, second = race.run(grant.id, lambda: race.one.reap([seen]), lambda: race.two.reap([seen]))
    assert [answer.id for answer in first] == [grant.id]
    assert second == []
    job = race.one.get(grant.id)
    assert (job.crashes, job.lease_token) == (1, grant.token)
    assert len(race.one.history(grant.id)) == 1


def test_a_reaper_and_a_thief_of_one_lease_have_one_winner(race, clock):
    grant = run(race.one)
    seen = sight(race.one, clock, grant.id)
    reaped, answer = race.run(
        grant.id,
        lambda: race.one.reap([seen]),
        lambda: race.two.claim_by_id(grant.id, "thief", sighting=seen),
    )
    assert [one.id for one in reaped] == [grant.id]
    # What was reaped is queued again, so the thief gets it by an ordinary claim: lost once, not twice.
    assert isinstance(answer, Grant)
    job = race.one.get(grant.id)
    assert (job.crashes, job.attempt, job.worker) == (1, 2, "thief")


def _orphan(store: JobStore) -> Grant:
    grant = run_external(store)
    end(store, grant, Detached())
    return grant


def test_two_adopters_of_one_orphan_have_one_winner(race):
    grant = _orphan(race.one)
    first, second = race.run(
        grant.id, lambda: race.one.adopt("w1", [SITE]), lambda: race.two.adopt("w2", [SITE])
    )
    assert [one.id for one in first] == [grant.id]
    assert second == []
    job = race.one.get(grant.id)
    assert (job.worker, job.attempt, job.lease_token) == ("w1", 1, grant.token + 1)


def test_an_adopter_and_a_claimer_by_id_of_one_orphan_have_one_winner(race):
    grant = _orphan(race.one)
    first, second = race.run(
        grant.id,
        lambda: race.one.adopt("w1", [SITE]),
        lambda: race.two.claim_by_id(grant.id, "w2", sites=[SITE]),
    )
    assert [one.id for one in first] == [grant.id]
    assert denied(second).state is State.RUNNING


def test_a_cancel_that_meets_an_adoption_reaches_the_adopter(race):
    grant = _orphan(race.one)
    adopted, cancelled = race.run(
        grant.id, lambda: race.one.adopt("w1", [SITE]), lambda: race.two.cancel(grant.id)
    )
    assert cancelled.stop_requested is Flag.CANCEL
    (renewal,) = race.one.renew({grant.id: adopted[0].token})
    assert renewal.stop_requested is Flag.CANCEL


# -- adopt ∥ finish ----------------------------------------------------------------------------------------------------


def test_of_a_run_that_ends_while_it_is_adopted_the_adopter_collects(race):
    grant = _orphan(race.one)
    adopted, late = race.run(
        grant.id, lambda: race.one.adopt("w1", [SITE]), _settle(race.two, grant, Success('"old"'))
    )
    assert late.fenced == [grant.id]
    assert end(race.one, adopted[0], Success('"collected"')).result == '"collected"'


def test_of_a_run_that_ended_before_it_is_adopted_the_adopter_collects_too(race, clock):
    """The old owner's settle comes while its lease is turned into an orphan by the reaper."""
    grant = run_external(race.one, policy=Policy(on_lost="adopt"))
    seen = sight(race.one, clock, grant.id)
    reaped, late = race.run(
        grant.id, lambda: race.one.reap([seen]), _settle(race.two, grant, Success('"old"'))
    )
    assert reaped[0].orphan
    assert late.fenced == [grant.id]
    (adopted,) = race.two.adopt("w2", [SITE])
    assert end(race.two, adopted, Success('"collected"')).state is State.SUCCEEDED


# -- drain ∥ claim -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", [None, "lane"])
def test_a_claim_that_commits_after_the_drain_signal_is_handed_back_and_keeps_its_place(race, clock, lane):
    first, _ = put(race.one, lane=lane), put(race.one, lane=lane)
    claimed, held = race.run(
        first.id, lambda: race.one.claim("w1", ["default"], 1), lambda: race.two.find_leases_of("w1")
    )
    assert held == [], "the drain does not see it yet"
    clock.advance(5)
    back = end(race.one, claimed[0], HandedBack("drained"))
    assert (back.state, back.available_at) == (State.QUEUED, first.available_at)
    assert (back.attempt, back.failures, back.crashes) == (1, 0, 0)
    assert claim_until_found(race.two, limit=1) == [first.id]


def test_a_hand_back_that_meets_a_cancel_ends_cancelled(race):
    grant = run(race.one)
    _, settled = race.run(
        grant.id, lambda: race.one.cancel(grant.id), _settle(race.two, grant, HandedBack("drained"))
    )
    assert settled.accepted == [grant.id]
    assert race.one.get(grant.id).state is State.CANCELLED


# -- resume ∥ cancel ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.PAUSED, State.FAILED, State.TIMED_OUT])
def test_a_cancel_that_follows_a_resume_wins(race, clock, state):
    job = in_state(race.one, clock, state)
    resumed, cancelled = race.run(job.id, lambda: race.one.resume(job.id), lambda: race.two.cancel(job.id))
    assert (resumed.state, cancelled.state) == (State.QUEUED, State.CANCELLED)
    assert claim_ids(race.one) == []


@pytest.mark.parametrize("state", [State.PAUSED, State.FAILED, State.TIMED_OUT])
def test_a_resume_that_follows_a_cancel_is_refused(race, clock, state):
    job = in_state(race.one, clock, state)
    cancelled, refusal = race.run(job.id, lambda: race.one.cancel(job.id), lambda: race.two.resume(job.id))
    assert isinstance(refusal, InvalidState)
    assert race.one.get(job.id) == cancelled


@pytest.mark.parametrize("order", ["resume first", "cancel first"])
def test_a_running_job_that_is_resumed_and_cancelled_is_cancelled_in_the_end(race, order):
    grant = run(race.one)
    race.one.pause(grant.id)
    if order == "resume first":
        resumed, _ = race.run(grant.id, lambda: race.one.resume(grant.id), lambda: race.two.cancel(grant.id))
        assert resumed.stop_requested is None
    else:
        _, refusal = race.run(grant.id, lambda: race.one.cancel(grant.id), lambda: race.two.resume(grant.id))
        assert isinstance(refusal, InvalidState)
    assert race.one.get(grant.id).stop_requested is Flag.CANCEL
    assert end(race.one, grant, Stopped()).state is State.CANCELLED


# -- pause ∥ complete --------------------------------------------------------------------------------------------------


def test_a_result_that_meets_a_pause_stays_succeeded(race):
    grant = run(race.one)
    paused, settled = race.run(
        grant.id, lambda: race.one.pause(grant.id), _settle(race.two, grant, Success("1"))
    )
    assert paused.stop_requested is Flag.PAUSE
    assert settled.accepted == [grant.id]
    assert race.one.get(grant.id).state is State.SUCCEEDED


def test_a_pause_after_the_result_is_refused(race):
    grant = run(race.one)
    _, refusal = race.run(grant.id, _settle(race.one, grant, Success("1")), lambda: race.two.pause(grant.id))
    assert isinstance(refusal, InvalidState)
    assert race.one.get(grant.id).state is State.SUCCEEDED


def test_a_failure_that_meets_a_pause_comes_to_rest_paused(race):
    grant = run(race.one)
    race.run(grant.id, lambda: race.one.pause(grant.id), _settle(race.two, grant, Failure("boom")))
    job = race.one.get(grant.id)
    assert (job.state, job.failures) == (State.PAUSED, 1)


def test_a_pause_that_meets_a_failure_pauses_the_requeued_job(race):
    grant = run(race.one)
    _, paused = race.run(
        grant.id, _settle(race.one, grant, Failure("boom")), lambda: race.two.pause(grant.id)
    )
    assert paused.state is State.PAUSED


# -- renew ∥ the rest --------------------------------------------------------------------------------------------------


def test_a_flag_is_not_lost_under_a_renewal(race):
    grant = run(race.one)
    race.run(grant.id, lambda: race.one.renew({grant.id: grant.token}), lambda: race.two.cancel(grant.id))
    assert race.one.get(grant.id).stop_requested is Flag.CANCEL


def test_a_renewal_is_not_lost_under_a_flag(race, clock):
    grant = run(race.one)
    clock.advance(10)
    _, renewed = race.run(
        grant.id, lambda: race.one.cancel(grant.id), lambda: race.two.renew({grant.id: grant.token})
    )
    assert [renewal.id for renewal in renewed] == [grant.id], "it is held all the time"
    if not renewed[0].extended:
        renewed = race.two.renew({grant.id: grant.token})
    assert [renewal.stop_requested for renewal in renewed] == [Flag.CANCEL]
    assert race.one.get(grant.id).lease_expires_at == clock.now() + timedelta(seconds=30)


def test_a_renewal_that_meets_a_settle_brings_no_lease_back(race):
    grant = run(race.one)
    _, renewed = race.run(
        grant.id,
        _settle(race.one, grant, Success()),
        lambda: race.two.renew({grant.id: grant.token}),
    )
    assert not any(renewal.extended for renewal in renewed)
    assert race.two.renew({grant.id: grant.token}) == []
    job = race.one.get(grant.id)
    assert (job.state, job.lease_expires_at) == (State.SUCCEEDED, None)


def test_two_settles_of_one_run_have_one_winner(race):
    grant = run(race.one)
    first, second = race.run(
        grant.id, _settle(race.one, grant, Success("1")), _settle(race.two, grant, Failure("boom"))
    )
    assert first.accepted == [grant.id]
    assert second.fenced == [grant.id]
    assert race.one.get(grant.id).state is State.SUCCEEDED


# -- settle ∥ enqueue in one lane --------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Success(), Failure("boom", final=True)], ids=["success", "skipped"])
def test_a_job_enqueued_while_its_lane_is_settled_is_not_forgotten(race, backend, outcome):
    """A claim in between finds the lane still blocked and drops the new job's ticket; the settle's own remains."""
    put(race.one, lane="lane", policy=Policy(on_failure="skip"))
    grant = claim_one(race.one)
    new = new_job(lane="lane")
    with race.before_commit(grant.id, _settle(race.one, grant, outcome)):
        enqueued = race.meanwhile(lambda: race.two.enqueue([new]))
        claimed = race.meanwhile(lambda: race.three.claim("w3", ["default"], 5))
        if backend.name == "postgres":
            assert (enqueued.done(), claimed.result(20)) == (True, [])
    assert enqueued.result(20)[0].created
    found = [one.id for one in claimed.result(20)] or claim_until_found(race.two)
    assert found == [new.id]


def test_a_lane_settled_while_a_job_is_enqueued_does_not_forget_it(race, backend):
    """A claim in between finds the lane empty and drops the settle's ticket; the new job's own remains."""
    put(race.one, lane="lane")
    grant = claim_one(race.one)
    new = new_job(lane="lane")
    with race.before_commit(new.id, lambda: race.one.enqueue([new])):
        settled = race.meanwhile(_settle(race.two, grant, Success()))
        claimed = race.meanwhile(lambda: race.three.claim("w3", ["default"], 5))
        if backend.name == "postgres":
            assert (settled.done(), claimed.result(20)) == (True, [])
    assert settled.result(20).accepted == [grant.id]
    found = [one.id for one in claimed.result(20)] or claim_until_found(race.two)
    assert found == [new.id]


def test_an_enqueue_into_a_lane_does_not_hold_up_the_settle_of_its_running_job(race, backend):
    put(race.one, lane="lane")
    grant = claim_one(race.one)
    new = new_job(lane="lane")
    with race.before_commit(new.id, lambda: race.one.enqueue([new])):
        settled = race.meanwhile(_settle(race.two, grant, Success()))
        # SQLite has one writer at a time: there everybody waits for everybody, for milliseconds.
        assert settled.done() == (backend.name == "postgres")
    assert settled.result(20).accepted == [grant.id]


# -- enqueue ∥ enqueue of one unique key -------------------------------------------------------------------------------


def test_two_enqueues_of_one_unique_key_make_one_job(race):
    first, second = new_job(unique_key="k"), new_job(unique_key="k")
    one, two = race.run(first.id, lambda: race.one.enqueue([first]), lambda: race.two.enqueue([second]))
    assert one == [Enqueued(first.id, True)]
    assert two == [Enqueued(first.id, False)]


def test_an_enqueue_of_a_unique_key_goes_through_when_the_one_before_it_is_rolled_back(race):
    holder = put(race.one, unique_key="other")
    first, second = new_job(unique_key="k"), new_job(unique_key="k")
    doomed = new_job(unique_key="other", on_duplicate="raise")
    one, two = race.run(
        first.id,
        lambda: race.one.enqueue([first, doomed]),
        lambda: race.two.enqueue([second]),
        at_write=True,
    )
    assert isinstance(one, DuplicateJob)
    assert one.job_id == holder.id
    assert two == [Enqueued(second.id, True)]
    assert race.one.get(second.id).state is State.QUEUED


def test_two_enqueues_of_one_id_make_one_job(race):
    job = new_job(lane="lane")
    one, two = race.run(job.id, lambda: race.one.enqueue([job]), lambda: race.two.enqueue([job]))
    assert (one, two) == ([Enqueued(job.id, True)], [Enqueued(job.id, False)])


def test_a_resume_that_meets_an_enqueue_of_its_unique_key_is_refused_and_names_the_holder(race, clock):
    old = in_state(race.one, clock, State.FAILED, unique_key="k")
    new = new_job(unique_key="k")
    made, refusal = race.run(new.id, lambda: race.one.enqueue([new]), lambda: race.two.resume(old.id))
    assert made == [Enqueued(new.id, True)]
    assert isinstance(refusal, DuplicateJob), repr(refusal)
    assert refusal.job_id == new.id
    assert race.one.get(old.id).state is State.FAILED


def test_an_enqueue_that_meets_a_resume_of_its_unique_key_leads_to_the_resumed_job(race, clock):
    old = in_state(race.one, clock, State.FAILED, unique_key="k")
    new = new_job(unique_key="k")
    resumed, made = race.run(old.id, lambda: race.one.resume(old.id), lambda: race.two.enqueue([new]))
    assert resumed.state is State.QUEUED
    assert made == [Enqueued(old.id, False)]


def test_a_replacement_that_meets_the_claim_of_the_job_to_replace_leads_to_the_running_job(race):
    old = put(race.one, unique_key="k")
    new = new_job(unique_key="k", on_duplicate="replace")
    claimed, made = race.run(
        old.id, lambda: race.one.claim("w1", ["default"], 1), lambda: race.two.enqueue([new])
    )
    assert [grant.id for grant in claimed] == [old.id]
    assert made == [Enqueued(old.id, False)]


def test_two_retries_of_one_job_with_a_unique_key_make_one_job(race, clock):
    old = in_state(race.one, clock, State.FAILED, unique_key="k")
    first, second = new_id(), new_id()
    made, refusal = race.run(
        first, lambda: race.one.retry(old.id, first), lambda: race.two.retry(old.id, second)
    )
    assert made.id == first
    assert isinstance(refusal, DuplicateJob)
    assert refusal.job_id == first
