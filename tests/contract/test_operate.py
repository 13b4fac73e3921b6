"""Operate: each of the operator's verbs on one job, on the row as it stands."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from leasehold.domain.errors import DuplicateJob, InvalidState
from leasehold.domain.job import Grant
from leasehold.domain.outcome import Failure, Stopped, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.records import Filter
from leasehold.domain.states import Flag, State
from tests.backends import new_id, new_job, put
from tests.contract.lives import SITE, claim_ids, claim_one, end, in_state, is_fenced, orphan, run

RESTING = [State.PAUSED, State.FAILED, State.TIMED_OUT, State.SUCCEEDED, State.CANCELLED]
AT_REST_BADLY = [State.PAUSED, State.FAILED, State.TIMED_OUT]

# -- cancel, pause, finish ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state", [State.PENDING, State.QUEUED, State.WAITING, State.PAUSED, State.FAILED, State.TIMED_OUT]
)
def test_a_job_that_does_not_run_is_cancelled_at_once(store, clock, state):
    job = in_state(store, clock, state)
    clock.advance(5)
    answer = store.cancel(job.id, "anna", "not needed")
    assert answer == replace(
        job,
        state=State.CANCELLED,
        finished_at=clock.now(),
        reason="not needed",
        held=False,
        halts_lane=False,
    )
    assert store.get(job.id) == answer
    entry = store.history(job.id)[-1]
    assert (entry.event, entry.from_state, entry.to_state) == ("cancelled", state.value, "cancelled")
    assert (entry.actor, entry.detail, entry.at) == ("anna", "not needed", clock.now())


@pytest.mark.parametrize("state", [State.PENDING, State.QUEUED, State.WAITING])
def test_a_job_that_does_not_run_is_paused_at_once(store, clock, state):
    job = in_state(store, clock, state)
    answer = store.pause(job.id, "anna", "later")
    assert answer == replace(job, state=State.PAUSED, reason="later", held=False)
    assert store.get(job.id) == answer
    assert answer.finished_at is None, "a pause is no end"
    assert claim_ids(store) == []


@pytest.mark.parametrize("state", [State.PENDING, State.QUEUED, State.WAITING, State.PAUSED])
def test_an_interrupted_job_that_does_not_run_is_cancelled(store, clock, state):
    job = in_state(store, clock, state)
    clock.advance(5)
    answer = store.interrupt(job.id, "anna", "not needed")
    assert (answer.state, answer.finished_at, answer.reason) == (State.CANCELLED, clock.now(), "not needed")
    assert store.get(job.id) == answer
    entry = store.history(job.id)[-1]
    assert (entry.event, entry.actor, entry.detail) == ("cancelled", "anna", "not needed")


def test_an_interrupted_run_is_paused_and_goes_on_when_it_is_resumed(store):
    grant = run(store)
    answer = store.interrupt(grant.id, "anna", "lunch")
    assert (answer.state, answer.stop_requested, answer.reason) == (State.RUNNING, Flag.PAUSE, "lunch")
    assert store.history(grant.id)[-1].event == "pause_requested"
    assert end(store, grant, Stopped()).state is State.PAUSED
    assert store.resume(grant.id).state is State.QUEUED


def test_an_interrupt_does_not_weaken_a_cancel(store):
    grant = run(store)
    store.cancel(grant.id, reason="for good")
    answer = store.interrupt(grant.id)
    assert (answer.stop_requested, answer.reason) == (Flag.CANCEL, "for good")


@pytest.mark.parametrize("state", [State.FAILED, State.TIMED_OUT, State.SUCCEEDED, State.CANCELLED])
def test_what_has_ended_is_not_interrupted(store, clock, state):
    job = in_state(store, clock, state)
    with pytest.raises(InvalidState, match="interrupt"):
        store.interrupt(job.id)
    assert store.get(job.id) == job


def test_a_run_that_has_no_queue_to_go_on_from_is_not_interrupted(store):
    grant = run(store, policy=Policy(queueing=False))
    with pytest.raises(InvalidState, match="cancel it") as refusal:
        store.interrupt(grant.id)
    assert refusal.value.verb == "interrupt"


@pytest.mark.parametrize("verb", ["cancel", "pause", "finish"])
def test_a_running_job_is_only_asked_to_stop(store, verb):
    grant = run(store)
    before = store.get(grant.id)
    answer = getattr(store, verb)(grant.id, "anna", "enough")
    assert answer == replace(before, stop_requested=Flag(verb), reason="enough")
    assert store.get(grant.id) == answer, "above all the token is what it was"
    entry = store.history(grant.id)[-1]
    assert (entry.event, entry.actor, entry.detail) == (f"{verb}_requested", "anna", "enough")
    assert len(store.renew({grant.id: grant.token})) == 1


@pytest.mark.parametrize("first", list(Flag))
@pytest.mark.parametrize("second", list(Flag))
def test_of_two_stops_the_stronger_wins(store, first, second):
    grant = run(store)
    getattr(store, first.value)(grant.id, None, "first")
    answer = getattr(store, second.value)(grant.id, None, "second")
    order = [Flag.FINISH, Flag.PAUSE, Flag.CANCEL]
    assert answer.stop_requested is max(first, second, key=order.index)
    assert answer.reason == ("second" if order.index(second) >= order.index(first) else "first")


def test_a_cancelled_job_never_starts_a_new_run(store, clock):
    grant = run(store, policy=Policy(backoff=0.0))
    store.cancel(grant.id)
    assert end(store, grant, Failure("boom")).state is State.CANCELLED
    clock.advance(1000)
    assert claim_ids(store) == []


def test_a_stop_without_actor_and_reason_is_fine(store):
    job = put(store)
    assert store.cancel(job.id).reason is None
    entry = store.history(job.id)[-1]
    assert (entry.actor, entry.detail) == (None, None)


# -- resume ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", AT_REST_BADLY)
def test_a_resumed_job_is_the_same_job_with_a_clean_slate_due_now(store, clock, state):
    grant = run(store, policy=Policy(max_attempts=2, backoff=0.0))
    end(store, grant, Failure("boom"))
    grant = claim_one(store)
    match state:
        case State.PAUSED:
            before = end(store, grant, Stopped(pause=True))
        case State.FAILED:
            before = end(store, grant, Failure("boom"))
        case _:
            store.finish(grant.id)
            before = end(store, grant, Failure("boom", final=True))
    clock.advance(50)
    answer = store.resume(grant.id, "anna")
    assert answer == replace(
        before,
        state=State.QUEUED,
        failures=0,
        crashes=0,
        finished_at=None,
        settled_by=None,
        settled_token=None,
        reason=None,
        halts_lane=False,
    )
    assert store.get(grant.id) == answer
    assert (answer.attempt, answer.lease_token) == (2, 2), "attempt and token go on"
    entry = store.history(grant.id)[-1]
    assert (entry.event, entry.actor) == ("resumed", "anna")
    again = claim_one(store)
    assert (again.id, again.attempt, again.token) == (grant.id, 3, 3)


def test_a_job_paused_in_its_delay_is_due_when_it_is_resumed(store, clock):
    job = put(store, delay=100.0)
    store.pause(job.id)
    assert store.resume(job.id).available_at == clock.now()
    assert claim_ids(store) == [job.id]


def test_a_job_is_resumed_with_new_arguments(store):
    failed = end(store, run(store), Failure("bad arguments", final=True))
    assert store.resume(failed.id, args='{"fixed": true}').args == '{"fixed": true}'
    assert claim_one(store).args == '{"fixed": true}'


def test_a_pause_that_was_only_asked_for_is_withdrawn(store):
    grant = run(store)
    before = store.get(grant.id)
    store.pause(grant.id, "anna", "later")
    assert store.resume(grant.id, "bert") == before
    assert [entry.event for entry in store.history(grant.id)] == ["pause_requested", "pause_withdrawn"]
    assert store.renew({grant.id: grant.token})[0].stop_requested is None


@pytest.mark.parametrize("verb", ["finish", "cancel"])
def test_no_other_stop_is_withdrawn(store, verb):
    grant = run(store)
    flagged = getattr(store, verb)(grant.id)
    with pytest.raises(InvalidState, match="no pause was asked for"):
        store.resume(grant.id)
    assert store.get(grant.id) == flagged


@pytest.mark.parametrize("state", [State.FAILED, State.TIMED_OUT])
def test_a_resume_is_refused_while_another_job_holds_the_unique_key(store, clock, state):
    old = in_state(store, clock, state, unique_key="k")
    holder = put(store, unique_key="k")
    with pytest.raises(DuplicateJob) as refusal:
        store.resume(old.id)
    assert (refusal.value.job_id, refusal.value.unique_key) == (holder.id, "k")
    assert store.get(old.id) == old
    store.cancel(holder.id)
    assert store.resume(old.id).state is State.QUEUED


def test_a_paused_job_still_holds_its_key_and_is_resumed(store, clock):
    old = in_state(store, clock, State.PAUSED, unique_key="k")
    assert put(store, unique_key="k").id == old.id
    assert store.resume(old.id).state is State.QUEUED


def test_a_job_that_holds_its_key_for_good_is_resumed(store, clock):
    old = in_state(store, clock, State.FAILED, unique_key="k", unique_for="ever")
    assert store.resume(old.id).state is State.QUEUED


# -- resolve, release --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.FAILED, State.TIMED_OUT])
def test_a_resolved_job_stays_as_it_is_but_for_its_lane(store, clock, state):
    job = in_state(store, clock, state, lane="l")
    assert job.halts_lane
    answer = store.skip(job.id, "anna", "refunded by hand")
    assert answer == replace(job, halts_lane=False, lane_at=None), "it has no place in its lane any more"
    assert store.get(job.id) == answer
    entry = store.history(job.id)[-1]
    assert (entry.event, entry.actor, entry.detail) == ("skipped", "anna", "refunded by hand")


def test_a_released_job_is_due_from_its_due_time_on(store, clock):
    now, later = put(store, hold=True), put(store, hold=True, delay=60.0)
    clock.advance(10)
    assert store.release(now.id, "anna").available_at == clock.now()
    assert store.release(later.id).available_at == later.available_at
    assert claim_ids(store) == [now.id]
    clock.advance(50)
    assert claim_ids(store) == [later.id]
    assert store.history(now.id)[0].actor == "anna"


# -- snooze ------------------------------------------------------------------------------------------------------------
SNOOZABLE = [State.PENDING, State.QUEUED, State.PAUSED]


@pytest.mark.parametrize("state", SNOOZABLE)
def test_a_snooze_sets_the_due_time_and_nothing_else(store, clock, state):
    job = in_state(store, clock, state, lane="l")
    clock.advance(5)
    until = clock.now() + timedelta(hours=1)
    answer = store.snooze(job.id, until, "anna", "the vendor is closed")
    assert answer == replace(job, available_at=until)
    assert store.get(job.id) == answer
    entry = store.history(job.id)[-1]
    assert (entry.event, entry.actor, entry.from_state, entry.to_state) == ("snoozed", "anna", state, state)
    assert entry.detail == f"until {until.isoformat()}: the vendor is closed"


@pytest.mark.parametrize("state", [state for state in State if state not in SNOOZABLE])
def test_a_job_that_cannot_wait_for_its_time_is_not_snoozed(store, clock, state):
    job = in_state(store, clock, state)
    with pytest.raises(InvalidState) as refusal:
        store.snooze(job.id, clock.now() + timedelta(hours=1))
    assert (refusal.value.verb, refusal.value.state) == ("snooze", state.value)
    assert store.get(job.id) == job


def test_a_snoozed_job_starts_when_its_time_comes_and_not_before(store, clock):
    job = put(store)
    store.snooze(job.id, clock.now() + timedelta(seconds=60))
    clock.advance(59)
    assert claim_ids(store) == []
    assert not isinstance(store.claim_by_id(job.id, "worker-1"), Grant)
    clock.advance(1)
    assert claim_ids(store) == [job.id]


@pytest.mark.parametrize("until", [timedelta(0), timedelta(days=-9000)])
def test_a_delayed_job_that_is_snoozed_to_a_time_in_the_past_is_due_now(store, clock, until):
    job = put(store, delay=3600.0)
    assert store.snooze(job.id, clock.now() + until).available_at == clock.now()
    assert claim_ids(store) == [job.id]


def test_a_time_in_the_past_gives_nobody_a_turn_before_others(store, clock):
    first, due, delayed = put(store), put(store), put(store, delay=60.0)
    clock.advance(1)
    last = put(store)
    clock.advance(1)
    for job in (delayed, due):
        store.snooze(job.id, clock.now() - timedelta(days=1))
    assert claim_ids(store) == [first.id, due.id, last.id, delayed.id], "one that was due keeps its turn"


def test_a_paused_job_that_is_snoozed_stays_paused_and_is_due_at_that_time_when_it_is_resumed(store, clock):
    job = put(store, delay=3600.0)
    store.pause(job.id)
    until = clock.now() + timedelta(seconds=60)
    assert store.snooze(job.id, until).state is State.PAUSED
    clock.advance(10)
    resumed = store.resume(job.id)
    assert (resumed.state, resumed.available_at) == (State.QUEUED, until)
    assert claim_ids(store) == []
    clock.advance(50)
    assert claim_ids(store) == [job.id]


def test_a_paused_job_whose_snooze_is_over_is_due_when_it_is_resumed(store, clock):
    job = in_state(store, clock, State.PAUSED)
    store.snooze(job.id, clock.now() + timedelta(seconds=60))
    clock.advance(100)
    store.resume(job.id)
    assert claim_ids(store) == [job.id]


def test_a_pause_ends_a_snooze(store, clock):
    job = put(store)
    store.snooze(job.id, clock.now() + timedelta(hours=1))
    store.pause(job.id)
    clock.advance(10)
    store.resume(job.id)
    assert claim_ids(store) == [job.id]


def test_a_job_in_backoff_is_snoozed_to_now_or_to_later_and_keeps_its_failures(store, clock):
    jobs = [put(store, policy=Policy(backoff=100.0)) for _ in range(2)]
    for grant in store.claim("worker-1", ["default"], 2):
        end(store, grant, Failure("503"))
    sooner = store.snooze(jobs[0].id, clock.now())
    later = store.snooze(jobs[1].id, clock.now() + timedelta(hours=1))
    assert [(job.failures, job.error) for job in (sooner, later)] == [(1, "503")] * 2
    assert claim_ids(store) == [jobs[0].id]
    clock.advance(3599)
    assert jobs[1].id not in claim_ids(store)
    clock.advance(1)
    assert jobs[1].id in claim_ids(store)


def test_a_released_job_is_due_when_its_snooze_is_over(store, clock):
    job = put(store, hold=True)
    until = clock.now() + timedelta(seconds=60)
    store.snooze(job.id, until)
    assert store.release(job.id).available_at == until


def test_a_child_that_was_snoozed_is_due_at_that_time_though_its_parent_ended_before(store, clock):
    parent = put(store)
    child = put(store, after=(parent.id,))
    until = clock.now() + timedelta(seconds=60)
    store.snooze(child.id, until)
    end(store, claim_one(store), Success())
    assert (store.get(child.id).state, store.get(child.id).available_at) == (State.QUEUED, until)


@pytest.mark.parametrize(("limit", "ends"), [("deadline", State.TIMED_OUT), ("start_by", State.CANCELLED)])
def test_a_snooze_past_a_time_limit_changes_no_limit_and_the_job_expires(store, clock, limit, ends):
    job = put(store, **{limit: 60.0})
    after = store.snooze(job.id, clock.now() + timedelta(hours=1))
    assert (after.deadline_at, after.start_by) == (job.deadline_at, job.start_by)
    clock.advance(61)
    assert [one.id for one in store.expire()] == [job.id]
    assert store.get(job.id).state is ends


def test_a_snoozed_job_runs_with_its_lease_token_and_attempt_as_any_other(store, clock):
    grant = run(store)
    end(store, grant, Stopped(pause=True))
    store.snooze(grant.id, clock.now())
    store.resume(grant.id)
    again = claim_one(store)
    assert (again.id, again.attempt, again.token) == (grant.id, 2, 2)


# -- answer ------------------------------------------------------------------------------------------------------------


def test_an_answered_job_is_due_at_once_and_finds_the_answer(store, clock):
    job = in_state(store, clock, State.WAITING)
    clock.advance(100)
    answered = store.answer(job.id, "q", '{"yes":  true}', "anna")
    assert (answered.state, answered.available_at) == (State.QUEUED, job.available_at)
    (question,) = store.questions(job.id)
    assert (question.answer, question.closed_at) == ('{"yes":  true}', clock.now())
    assert (store.history(job.id)[-1].event, store.history(job.id)[-1].actor) == ("answered", "anna")
    assert claim_ids(store) == [job.id]
    assert (answered.failures, answered.crashes) == (0, 0)


def test_an_answer_to_a_paused_job_is_kept_and_used_on_resume(store, clock):
    job = in_state(store, clock, State.PAUSED)
    assert store.answer(job.id, "q", "true") == job
    assert store.questions(job.id)[0].answer == "true"
    assert claim_ids(store) == []
    store.resume(job.id)
    assert claim_ids(store) == [job.id]
    assert store.questions(job.id)[0].answer == "true"


def test_a_question_is_answered_once(store, clock):
    job = in_state(store, clock, State.PAUSED)
    store.answer(job.id, "q", "1")
    with pytest.raises(InvalidState, match="no open question"):
        store.answer(job.id, "q", "2")
    assert store.questions(job.id)[0].answer == "1"


def test_an_answer_moves_the_version_of_the_group(store, clock):
    for state in (State.WAITING, State.PAUSED):
        job = in_state(store, clock, state, group=f"g-{state}")
        version = store.group(f"g-{state}").version
        store.answer(job.id, "q", "1")
        assert store.group(f"g-{state}").version == version + 1, state


def test_an_answer_that_is_not_json_is_refused_and_the_question_stays_open(store, clock):
    job = in_state(store, clock, State.WAITING)
    with pytest.raises(Exception, match=r"(?i)json"):
        store.answer(job.id, "q", "not json")
    assert store.get(job.id) == job
    assert store.questions(job.id)[0].closed_at is None


def test_questions_are_listed_in_the_order_they_were_asked(store, clock):
    grant = run(store)
    end(store, grant, QuestionAsked("b", "First?", '{"type": "string"}'))
    store.answer(grant.id, "b", '"x"')
    clock.advance(1)
    end(store, claim_one(store), QuestionAsked("a", "Second?"))
    requested = store.questions(grant.id)
    assert [(one.key, one.text, one.schema) for one in requested] == [
        ("b", "First?", '{"type": "string"}'),
        ("a", "Second?", None),
    ]


# -- retry -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", RESTING)
def test_a_retry_makes_a_new_job_and_leaves_the_old_one_as_it_is(store, clock, state):
    old = in_state(
        store,
        clock,
        state,
        task="mail",
        args='{"a": 1}',
        queue="q",
        priority=3,
        group="g",
        tags=("t",),
        lease_seconds=12.0,
        policy=Policy(max_attempts=5),
        deadline=600.0,
        trace="00-1",
    )
    clock.advance(1000)
    new = store.retry(old.id, new_id(), "anna")
    assert store.get(old.id) == old
    assert (new.state, new.retry_of, new.attempt, new.lease_token) == (State.QUEUED, old.id, 0, 0)
    assert (new.task, new.args, new.queue, new.priority) == ("mail", '{"a": 1}', "q", 3)
    assert (new.group, new.tags, new.lease_seconds) == ("g", ("t",), 12.0)
    assert (new.policy, new.trace) == (old.policy, "00-1")
    assert (new.result, new.error, new.finished_at, new.settled_by) == (None, None, None, None)
    assert new.created_at == new.available_at == clock.now()
    assert new.deadline_at == clock.now() + timedelta(seconds=600), "a new job has the whole time again"
    assert store.get(new.id) == new
    entry = store.history(old.id)[-1]
    assert (entry.event, entry.actor, entry.detail) == ("retried", "anna", new.id)
    assert sorted(job.id for job in store.list_jobs(Filter(tag="t")).jobs) == sorted([old.id, new.id])


def test_a_retry_repeated_after_a_lost_reply_makes_no_second_job(store, clock):
    old = in_state(store, clock, State.FAILED)
    new = new_id()
    first = store.retry(old.id, new)
    assert store.retry(old.id, new) == first
    assert sum(store.count().values()) == 2


def test_a_retry_is_refused_while_another_job_holds_the_unique_key(store, clock):
    old = in_state(store, clock, State.FAILED, unique_key="k")
    holder = put(store, unique_key="k")
    reported = store.history(old.id)
    with pytest.raises(DuplicateJob) as refusal:
        store.retry(old.id, new_id())
    assert refusal.value.job_id == holder.id
    assert store.history(old.id) == reported


# -- groups ------------------------------------------------------------------------------------------------------------


def test_a_stop_moves_the_version_of_the_group_and_a_refused_one_does_not(store):
    job = put(store, group="g")
    version = store.group("g").version
    store.cancel(job.id)
    assert store.group("g").version == version + 1
    with pytest.raises(InvalidState):
        store.cancel(job.id)
    assert store.group("g").version == version + 1


def test_a_stop_asked_for_twice_leaves_the_row_as_it_is(store):
    grant = run(store)
    first = store.cancel(grant.id, "anna", "why")
    assert store.pause(grant.id, "bert", "other") == first
    assert store.get(grant.id) == first


def test_a_worker_that_was_cancelled_and_reaped_cannot_end_the_job_otherwise(store, clock):
    grant = run(store)
    store.cancel(grant.id)
    clock.advance(31)
    seen = store.sight_overdue()
    clock.advance(10)
    store.reap(seen)
    assert store.get(grant.id).state is State.CANCELLED
    assert is_fenced(store, grant, Success())


def test_operators_of_two_processes_see_the_same_row(store, clock, backend):
    other = backend.open(clock)
    job = put(store)
    store.pause(job.id)
    assert other.resume(job.id).state is State.QUEUED
    assert store.cancel(job.id).state is State.CANCELLED
    with pytest.raises(InvalidState) as refusal:
        other.cancel(job.id)
    assert (refusal.value.verb, refusal.value.state) == ("cancel", "cancelled")


def test_a_batch_member_that_was_cancelled_does_not_hold_its_key(store):
    first = new_job(unique_key="k")
    store.enqueue([first])
    store.cancel(first.id)
    second = new_job(unique_key="k")
    assert store.enqueue([second])[0].created


@pytest.mark.parametrize(
    ("state", "verb", "more"),
    [
        (State.PENDING, "release", ()),
        (State.QUEUED, "pause", ()),
        (State.PAUSED, "resume", ()),
        (State.WAITING, "answer", ("q", '"yes"')),
        (State.FAILED, "resume", ()),
        (State.FAILED, "cancel", ()),
        (State.RUNNING, "cancel", ()),
        (State.FAILED, "skip", ()),
    ],
)
@pytest.mark.parametrize("fields", [{}, {"lane": "l"}])
def test_a_verb_tells_the_same_time_of_change_as_the_next_reader(store, clock, state, verb, more, fields):
    before = in_state(store, clock, state, **fields)
    clock.advance(5)
    answer = getattr(store, verb)(before.id, *more)
    moved = answer.state is not before.state
    assert answer.updated_at == (clock.now() if moved else before.updated_at)
    assert store.get(before.id).updated_at == answer.updated_at
    (listed,) = store.list_jobs().jobs
    assert listed.updated_at == answer.updated_at
    if moved and answer.state not in (State.CANCELLED,):
        assert store.cancel(before.id).updated_at == clock.now(), "seen by the next who locks it"


def test_an_orphan_was_changed_when_its_run_began(store, clock):
    job = orphan(store, clock)
    clock.advance(5)
    store.adopt("another", [SITE])
    assert store.get(job.id).updated_at == job.updated_at == job.started_at
