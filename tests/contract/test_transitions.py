"""Every event meets every state: it moves the job as TRANSITIONS says, or is refused and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from leasehold.domain.errors import InvalidState
from leasehold.domain.job import Grant, Job, Sighting
from leasehold.domain.outcome import AttemptTimedOut, Detached, Failure, Outcome, Snoozed, Stopped, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import TRANSITIONS, State, Trigger
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import Backend, new_id
from tests.contract.lives import SITE, in_state, lose, orphan, run, run_external, sight

DEADLINE = 600.0
HOUR = timedelta(hours=1)

Apply = Callable[[JobStore, ManualClock, Job], bool]
"""Apply an event to a job by its verb. False: the verb refused, in its own way."""


def _operator(verb: str, *more: object) -> Apply:
    def apply(store: JobStore, clock: ManualClock, job: Job) -> bool:
        try:
            getattr(store, verb)(job.id, *more)
        except InvalidState as refusal:
            reported = (refusal.job_id, refusal.verb, refusal.state)
        else:
            return True
        assert reported == (job.id, verb, job.state.value), "a refusal names the present state"
        return False

    return apply


def _retry(store: JobStore, clock: ManualClock, job: Job) -> bool:
    return _operator("retry", new_id())(store, clock, job)


def _tokens(job: Job) -> list[int]:
    """What a worker might come with: the lease of a running job, else every token that was or will be issued. The
    present token of a row that is not running names no grant, nobody can have it."""
    if job.state is State.RUNNING:
        return [job.lease_token]
    return [token for token in range(job.lease_token + 3) if token != job.lease_token]


def _claim(store: JobStore, clock: ManualClock, job: Job) -> bool:
    return job.id in [grant.id for grant in store.claim("another", [job.queue], 100)]


def _claim_by_id(store: JobStore, clock: ManualClock, job: Job) -> bool:
    return isinstance(store.claim_by_id(job.id, "another", sites=[SITE]), Grant)


def _adopt(store: JobStore, clock: ManualClock, job: Job) -> bool:
    return job.id in [grant.id for grant in store.adopt("another", [SITE])]


def _renew(store: JobStore, clock: ManualClock, job: Job) -> bool:
    held = [renewal for token in _tokens(job) for renewal in store.renew({job.id: token})]
    return bool(held)


def _settle(outcome: Outcome) -> Apply:
    def apply(store: JobStore, clock: ManualClock, job: Job) -> bool:
        answers = [store.settle([Ending(job.id, token, outcome)]) for token in _tokens(job)]
        assert all(answer.accepted or answer.fenced == [job.id] for answer in answers)
        return any(answer.accepted for answer in answers)

    return apply


def _reap(store: JobStore, clock: ManualClock, job: Job) -> bool:
    if job.state is State.RUNNING:
        return bool(store.reap([sight(store, clock, job.id)]))
    seen_at = clock.monotonic() - 1000
    looks = [
        Sighting(job.id, token, clock.now(), 30.0, "worker-1", True, seen_at)
        for token in range(job.lease_token + 2)
    ]
    reaped = [answer for look in looks for answer in store.reap([look])]
    return bool(reaped)


def _expire(store: JobStore, clock: ManualClock, job: Job) -> bool:
    clock.advance(DEADLINE + 1)
    return job.id in [expired.id for expired in store.expire()]


VERBS: dict[Trigger, Apply] = {
    Trigger.RELEASE: _operator("release"),
    Trigger.CLAIM: _claim,
    Trigger.ADOPT: _adopt,
    Trigger.RENEW: _renew,
    Trigger.SETTLE: _settle(Success('"late"')),
    Trigger.REAP: _reap,
    Trigger.CANCEL: _operator("cancel"),
    Trigger.PAUSE: _operator("pause"),
    Trigger.INTERRUPT: _operator("interrupt"),
    Trigger.RESUME: _operator("resume"),
    Trigger.SKIP: _operator("skip"),
    Trigger.SNOOZE: lambda store, clock, job: _operator("snooze", clock.now() + HOUR)(store, clock, job),
    Trigger.ANSWER: _operator("answer", "q", '"yes"'),
    Trigger.RETRY: _retry,
    Trigger.EXPIRE: _expire,
}


def _subject(store: JobStore, clock: ManualClock, state: State, event: Trigger) -> Job:
    """A job in this state, of the sort that the event is about."""
    if (state, event) == (State.RUNNING, Trigger.ADOPT):
        return orphan(store, clock)
    job = in_state(store, clock, state, **({"deadline": DEADLINE} if event is Trigger.EXPIRE else {}))
    if (state, event) == (State.RUNNING, Trigger.RESUME):
        return store.pause(job.id)
    return job


def _check(store: JobStore, clock: ManualClock, job: Job, event: Trigger, apply: Apply) -> None:
    before, reported = store.get(job.id), store.history(job.id)
    requested = store.questions(job.id)
    clock.advance(1)
    moved = apply(store, clock, before)
    after = store.get(job.id)
    (listed,) = [one for one in store.list_jobs(limit=500).jobs if one.id == job.id]
    assert listed.updated_at == after.updated_at
    if (job.state, event) in TRANSITIONS:
        assert moved
        assert after.state in TRANSITIONS[job.state, event]
        if after.state is not before.state:
            assert before.updated_at < after.updated_at == clock.now()
    else:
        assert not moved
        assert after == before
        assert after.updated_at == before.updated_at
        assert store.history(job.id) == reported
        assert store.questions(job.id) == requested


@pytest.mark.parametrize("event", Trigger)
@pytest.mark.parametrize("state", State)
def test_every_pair_of_state_and_event_moves_as_listed_or_is_refused_and_changes_nothing(
    store, clock, state, event
):
    _check(store, clock, _subject(store, clock, state, event), event, VERBS[event])


@pytest.mark.parametrize("state", State)
def test_the_other_doors_to_an_event_refuse_the_same_states(store, clock, state):
    for event, apply in [
        (Trigger.CLAIM, _claim_by_id),
        (Trigger.SETTLE, _settle(Failure("late"))),
        (Trigger.SETTLE, _settle(Snoozed(5.0))),
    ]:
        _check(store, clock, _subject(store, clock, state, event), event, apply)


@pytest.mark.parametrize("state", [state for state in State if state is not State.RUNNING])
def test_finish_is_for_the_running_only(store, clock, state):
    job = in_state(store, clock, state)
    with pytest.raises(InvalidState) as refusal:
        store.finish(job.id)
    assert refusal.value.state == state.value
    assert store.get(job.id) == job


# -- legal pairs: every listed end is really reached -------------------------------------------------------------------

SETTLE_ENDS: dict[State, tuple[Outcome, str | None]] = {
    State.SUCCEEDED: (Success(), None),
    State.QUEUED: (Stopped(), None),
    State.FAILED: (Failure("broken", final=True), None),
    State.TIMED_OUT: (AttemptTimedOut("slow"), "finish"),
    State.CANCELLED: (Stopped(), "cancel"),
    State.PAUSED: (Stopped(), "pause"),
    State.WAITING: (QuestionAsked("q", "May I?"), None),
    State.RUNNING: (Detached(), None),
}
REAP_ENDS: dict[State, tuple[str, str | None]] = {
    State.QUEUED: ("retry", None),
    State.FAILED: ("fail", None),
    State.PAUSED: ("retry", "pause"),
    State.CANCELLED: ("retry", "cancel"),
    State.RUNNING: ("adopt", None),
}


def test_the_ends_tried_here_are_the_ends_that_are_listed():
    assert set(SETTLE_ENDS) == TRANSITIONS[State.RUNNING, Trigger.SETTLE]
    # A grant that came too late, by a claim that did not live to say so, ends as its limit says: test_claim_in_time.
    assert set(REAP_ENDS) | {State.TIMED_OUT} == TRANSITIONS[State.RUNNING, Trigger.REAP]


@pytest.mark.parametrize("end", SETTLE_ENDS)
def test_a_settle_reaches_every_end_that_is_listed(store, end):
    outcome, flag = SETTLE_ENDS[end]
    grant = run_external(store)
    if flag is not None:
        getattr(store, flag)(grant.id)
    assert store.settle([Ending(grant.id, grant.token, outcome)]).accepted == [grant.id]
    assert store.get(grant.id).state is end


@pytest.mark.parametrize("end", REAP_ENDS)
def test_a_reap_reaches_every_end_that_is_listed(store, clock, end):
    on_lost, flag = REAP_ENDS[end]
    grant = run_external(store, policy=Policy(on_lost=on_lost))
    if flag is not None:
        getattr(store, flag)(grant.id)
    assert lose(store, clock, grant).state is end


def test_a_released_job_that_waits_for_others_stays_pending(store, clock, backend: Backend):
    job = in_state(store, clock, State.PENDING)
    backend.query("UPDATE leasehold.parked SET unmet = 1 WHERE job = ?", job.seq)
    released = store.release(job.id)
    assert (released.state, released.held) == (State.PENDING, False)
    assert store.get(job.id) == released
    with pytest.raises(InvalidState):
        store.release(job.id)


def test_a_resumed_job_that_waits_for_others_goes_back_to_pending(store, clock, backend: Backend):
    job = in_state(store, clock, State.PAUSED)
    backend.query("UPDATE leasehold.parked SET unmet = 1 WHERE job = ?", job.seq)
    assert store.resume(job.id).state is State.PENDING
    assert store.claim("another", ["default"], 10) == []


# -- inside legal pairs: the guards ------------------------------------------------------------------------------------


def _unchanged(store: JobStore, job: Job, reported: int) -> bool:
    return store.get(job.id) == job and len(store.history(job.id)) == reported


def test_a_running_job_with_an_owner_is_not_adopted(store):
    grant = run_external(store)
    job = store.get(grant.id)
    assert store.adopt("another", [SITE]) == []
    assert _unchanged(store, job, 0)


def test_a_running_job_that_was_not_asked_to_pause_is_not_resumed(store):
    job = store.get(run(store).id)
    with pytest.raises(InvalidState, match="no pause was asked for"):
        store.resume(job.id)
    assert _unchanged(store, job, 0)


def test_a_cancel_is_not_withdrawn_by_resume(store):
    job = store.cancel(run(store).id)
    with pytest.raises(InvalidState):
        store.resume(job.id)
    assert _unchanged(store, job, 1)


def test_an_answer_to_a_question_that_was_not_asked_is_refused(store, clock):
    for state in (State.WAITING, State.PAUSED):
        job = in_state(store, clock, state)
        reported = len(store.history(job.id))
        with pytest.raises(InvalidState, match="another"):
            store.answer(job.id, "another", '"yes"')
        assert _unchanged(store, job, reported)
        assert store.questions(job.id)[0].answer is None


def test_tokens_that_the_running_job_does_not_carry_renew_and_settle_nothing(store, clock):
    grant = run(store)
    clock.advance(1)
    job = store.get(grant.id)
    for token in (0, grant.token - 1, grant.token + 1, grant.token + 2):
        assert store.renew({grant.id: token}) == []
        assert store.settle([Ending(grant.id, token, Success())]).fenced == [grant.id]
        assert store.settle([Ending(grant.id, token, Failure("x"))]).fenced == [grant.id]
        assert not store.record_site(grant.id, token, SITE, "name")
        assert not store.mark_started(grant.id, token)
    assert _unchanged(store, job, 0)


def test_a_lease_that_is_not_missed_is_not_reaped(store, clock):
    grant = run(store)
    job = store.get(grant.id)
    clock.advance(29)
    look = Sighting(
        job.id, job.lease_token, job.lease_expires_at, 30.0, "worker-1", True, clock.monotonic() - 60
    )
    assert store.reap([look]) == []
    assert _unchanged(store, job, 0)
