"""Questions in the store: opened, answered, expired and closed, each once and with the right move of the job."""

from __future__ import annotations

import json

import pytest

from leasehold.domain.errors import InvalidAnswer, InvalidState
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import State
from tests.backends import put
from tests.contract.lives import claim_one, claim_until_found, end, run

SCHEMA = json.dumps({"type": "object", "properties": {"code": {"type": "integer"}}, "required": ["code"]})


def status(store, job_id: str) -> list[tuple[str, str]]:
    return [(question.key, question.status) for question in store.questions(job_id)]


def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open(store):
    grant = run(store)
    job = end(store, grant, QuestionAsked("q", "?", SCHEMA))
    reported = store.history(job.id)
    for wrong, path in (("7", "$"), ("{}", "$.code"), ('{"code": "x"}', "$.code")):
        with pytest.raises(InvalidAnswer) as refused:
            store.answer(job.id, "q", wrong)
        assert (refused.value.key, refused.value.path) == ("q", path)
    assert (store.get(job.id), status(store, job.id), store.history(job.id)) == (
        job,
        [("q", "open")],
        reported,
    )
    assert store.answer(job.id, "q", '{"code": 7}').state is State.QUEUED
    assert store.read_question(job.id, "q").answer == '{"code": 7}'


def test_a_second_answer_is_refused(store):
    job = end(store, run(store), QuestionAsked("q", "?"))
    store.pause(job.id)
    store.answer(job.id, "q", "1")
    with pytest.raises(InvalidState, match="no open question 'q'"):
        store.answer(job.id, "q", "2")
    assert store.read_question(job.id, "q").answer == "1"


def test_null_is_an_answer(store):
    job = end(store, run(store), QuestionAsked("q", "?"))
    store.answer(job.id, "q", "null")
    found = store.read_question(job.id, "q")
    assert (found.answer, found.answered, found.status) == ("null", True, "answered")


def test_a_question_expires_by_the_stores_clock_and_its_job_goes_on_in_its_place(store, clock):
    put(store, lane="l")
    second = put(store, lane="l")
    first = claim_one(store)
    end(store, first, QuestionAsked("q", "?", timeout=60.0))
    clock.advance(59.999)
    assert store.expire() == []
    assert status(store, first.id) == [("q", "open")]
    clock.advance(0.001)
    assert store.read_question(first.id, "q").expired
    assert store.open_questions() == []
    (job,) = store.expire()
    assert (job.id, job.state, job.failures, job.attempt) == (first.id, State.QUEUED, 0, 1)
    assert store.history(job.id)[-1].event == "question_expired"
    assert status(store, first.id) == [("q", "expired")]
    assert store.expire() == []
    assert claim_until_found(store) == [first.id], "the lane was kept"
    assert store.get(second.id).state is State.QUEUED


@pytest.mark.parametrize("state", [State.PAUSED, State.QUEUED, State.RUNNING])
def test_a_question_of_a_job_that_does_not_wait_expires_without_moving_it(store, clock, state):
    job = store.pause(end(store, run(store), QuestionAsked("q", "?", timeout=60.0)).id)
    if state is not State.PAUSED:
        job = store.resume(job.id)
    if state is State.RUNNING:
        claim_one(store)
        job = store.get(job.id)
    clock.advance(20)
    assert store.expire() == []
    clock.advance(40)
    assert store.expire() == []
    assert store.get(job.id) == job
    assert status(store, job.id) == [("q", "expired")]
    assert store.history(job.id)[-1].event == "question_expired"


def test_a_job_past_its_deadline_and_its_questions_time_times_out(store, clock):
    job = end(store, run(store, deadline=60.0), QuestionAsked("q", "?", timeout=60.0))
    clock.advance(60)
    assert [(j.id, j.state) for j in store.expire()] == [(job.id, State.TIMED_OUT)]
    assert status(store, job.id) == [("q", "expired")]


def test_an_answer_in_time_wins_over_a_sweep_that_comes_later(store, clock):
    job = end(store, run(store), QuestionAsked("q", "?", timeout=60.0))
    clock.advance(59)
    store.answer(job.id, "q", "1")
    clock.advance(10)
    assert store.expire() == []
    assert status(store, job.id) == [("q", "answered")]


def test_no_more_questions_expire_than_asked_for(store, clock):
    for _ in range(5):
        end(store, run(store), QuestionAsked("q", "?", timeout=1.0))
    clock.advance(1)
    assert [len(store.expire(limit=3)), len(store.expire(limit=3))] == [3, 2]


def test_asked_again_while_open_it_keeps_its_times(store, clock):
    job = end(store, run(store), QuestionAsked("q", "first", timeout=60.0))
    before = store.questions(job.id)[0]
    store.pause(job.id)
    clock.advance(30)
    store.resume(job.id)
    end(store, claim_one(store), QuestionAsked("q", "second", SCHEMA, timeout=60.0))
    (after,) = store.questions(job.id)
    assert (after.text, after.schema) == ("second", SCHEMA)
    assert (after.asked_at, after.expires_at) == (before.asked_at, before.expires_at)


@pytest.mark.parametrize("final", ["succeeded", "succeeded with others waiting", "cancelled"])
def test_a_final_job_keeps_no_secret(store, backend, final):
    job = end(store, run(store), QuestionAsked("q", "?", secret=True))
    if final == "succeeded with others waiting":
        put(store, after=(job.id,))
    store.answer(job.id, "q", '"hunter2"')
    assert store.read_question(job.id, "q").answer == '"hunter2"'
    assert (store.questions(job.id)[0].answer, status(store, job.id)) == (None, [("q", "answered")])
    if final == "cancelled":
        store.cancel(job.id)
    else:
        end(store, claim_one(store), Success())
    assert store.read_question(job.id, "q").answer is None
    assert status(store, job.id) == [("q", "answered")]
    assert backend.query("SELECT count(*) FROM leasehold.question WHERE answer IS NOT NULL") == [(0,)]


def test_a_failed_job_keeps_its_secret_for_its_resume(store):
    job = end(store, run(store), QuestionAsked("q", "?", secret=True))
    store.answer(job.id, "q", '"hunter2"')
    end(store, claim_one(store), Failure("no", final=True))
    store.resume(job.id)
    assert store.read_question(job.id, "q").answer == '"hunter2"'


def test_an_open_answer_is_kept_after_the_end(store):
    job = end(store, run(store), QuestionAsked("q", "?"))
    store.answer(job.id, "q", "1")
    end(store, claim_one(store), Success())
    assert store.questions(job.id)[0].answer == "1"


def test_a_group_hears_of_questions_and_answers(store):
    grant = run(store, group="g")
    versions = [store.group("g").version]
    end(store, grant, QuestionAsked("q", "?"))
    versions.append(store.group("g").version)
    store.answer(grant.id, "q", "1")
    versions.append(store.group("g").version)
    assert versions == sorted(set(versions))


# -- several at once ---------------------------------------------------------------------------------------------------

BOTH = QuestionAsked("a", "?", beside=(QuestionAsked("b", "?", timeout=60.0),))


def test_a_job_with_several_open_questions_waits_for_the_last_answer(store):
    job = end(store, run(store, group="g"), BOTH)
    assert (job.state, status(store, job.id)) == (State.WAITING, [("a", "open"), ("b", "open")])
    seen = store.group("g").version
    assert store.answer(job.id, "b", "1").state is State.WAITING
    assert store.group("g").version == seen + 1, "whoever watches the group is told"
    assert store.claim("worker-1", ["default"], 10) == []
    assert store.answer(job.id, "a", "2").state is State.QUEUED
    assert [entry.detail for entry in store.history(job.id) if entry.event == "answered"] == ["b", "a"]


def test_a_question_that_runs_out_beside_an_open_one_leaves_the_job_waiting(store, clock):
    job = end(store, run(store), BOTH)
    clock.advance(60)
    assert store.expire() == []
    assert (store.get(job.id).state, status(store, job.id)) == (
        State.WAITING,
        [("a", "open"), ("b", "expired")],
    )
    assert store.answer(job.id, "a", "1").state is State.QUEUED


def test_questions_that_run_out_together_let_the_job_go_on_once(store, clock):
    job = end(
        store,
        run(store),
        QuestionAsked("a", "?", timeout=30.0, beside=(QuestionAsked("b", "?", timeout=60.0),)),
    )
    clock.advance(60)
    assert [expired.id for expired in store.expire()] == [job.id]
    assert (store.get(job.id).state, status(store, job.id)) == (
        State.QUEUED,
        [("a", "expired"), ("b", "expired")],
    )
    reported = [entry.detail for entry in store.history(job.id) if entry.event == "question_expired"]
    assert sorted(reported) == [f"question {key!r} was not answered in time" for key in "ab"]


def test_a_cancel_closes_all_questions(store):
    job = end(store, run(store), BOTH)
    store.cancel(job.id)
    assert status(store, job.id) == [("a", "closed"), ("b", "closed")]
    assert store.open_questions() == []


def test_a_paused_job_keeps_all_questions_open_and_all_answers(store):
    job = store.pause(end(store, run(store), BOTH).id)
    assert {one.key for one in store.open_questions()} == {"a", "b"}
    assert store.answer(job.id, "a", "1").state is State.PAUSED
    assert store.answer(job.id, "b", "2").state is State.PAUSED
    assert store.resume(job.id).state is State.QUEUED
    assert [store.read_question(job.id, key).answer for key in "ab"] == ["1", "2"]


def test_a_question_that_the_next_run_does_not_ask_does_not_keep_the_job_waiting(store):
    """It is withdrawn: nobody waits for its answer any more."""
    job = store.pause(end(store, run(store), BOTH).id)
    store.resume(job.id)
    end(store, claim_one(store), QuestionAsked("c", "?"))
    assert sorted(status(store, job.id)) == [("a", "closed"), ("b", "closed"), ("c", "open")]
    with pytest.raises(InvalidState, match="no open question 'a'"):
        store.answer(job.id, "a", "1")
    assert store.answer(job.id, "c", "1").state is State.QUEUED


def test_one_question_that_cannot_be_stored_fails_the_job_and_opens_none(store):
    job = end(store, run(store), QuestionAsked("a", "?", beside=(QuestionAsked("b", "a\x00b"),)))
    assert (job.state, status(store, job.id)) == (State.FAILED, [])
