"""Attempts and steps as records: every run of a job, the last one included, and what its runs have kept."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain.job import Grant
from leasehold.domain.outcome import Failure, HandedBack, Snoozed, Stopped, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import State
from tests.backends import put
from tests.contract.lives import OWNER, SITE, claim_one, end, lose, run, run_external

AT_ONCE = Policy(backoff=0, max_attempts=9)


def reported(store, job_id):
    return [(one.attempt, one.outcome, one.error) for one in store.attempts(job_id)]


def test_a_job_that_never_ran_has_no_attempts(store):
    job = put(store)
    assert store.attempts(job.id) == []
    store.cancel(job.id)
    assert store.attempts(job.id) == []


def test_the_run_that_is_under_way_is_an_attempt(store, clock):
    began = clock.now()
    grant = run(store)
    clock.advance(5)
    (one,) = store.attempts(grant.id)
    assert (one.attempt, one.worker, one.started_at) == (1, OWNER, began)
    assert (one.ended_at, one.outcome, one.error) == (None, "running", None)


def test_a_plain_success_is_an_attempt(store, clock):
    grant = run(store)
    clock.advance(5)
    end(store, grant, Success("1"))
    (one,) = store.attempts(grant.id)
    assert (one.attempt, one.worker, one.outcome, one.error) == (1, OWNER, "succeeded", None)
    assert one.ended_at - one.started_at == timedelta(seconds=5)


def test_each_attempt_has_its_own_end_and_its_own_error(store, clock):
    job = put(store, policy=AT_ONCE)
    for outcome in (
        Failure("boom"),
        Failure("boom"),
        HandedBack("drained"),
        Snoozed(0.0, "busy"),
        Snoozed(0.0),
    ):
        end(store, claim_one(store), outcome)
    lose(store, clock, claim_one(store))
    end(store, claim_one(store, worker="worker-2"), Success())
    assert reported(store, job.id) == [
        (1, "failed", "boom"),
        (2, "failed", "boom"),
        (3, "handed_back", None),
        (4, "snoozed", "busy"),
        (5, "snoozed", None),
        (6, "lost", "the lease was lost: its worker died, froze or was cut off"),
        (7, "succeeded", None),
    ]
    records = store.attempts(job.id)
    assert [one.worker for one in records] == [OWNER] * 6 + ["worker-2"]
    assert all(one.started_at <= one.ended_at for one in records)


def test_the_last_attempt_tells_how_it_ended_and_not_what_the_operator_made_of_it(store, clock):
    failed = run(store, policy=Policy(max_attempts=1))
    end(store, failed, Failure("boom"))
    ended_at = store.get(failed.id).finished_at
    clock.advance(60)
    store.cancel(failed.id)
    (one,) = store.attempts(failed.id)
    assert (one.outcome, one.error, one.ended_at, one.worker) == ("failed", "boom", ended_at, OWNER)


def test_a_poisoned_job_tells_whose_runs_were_lost(store, clock):
    job = put(store, policy=Policy(backoff=0))
    for number in range(3):
        clock.advance(1000)
        lose(store, clock, claim_one(store, worker=f"worker-{number}"))
    assert store.get(job.id).state is State.FAILED
    assert [(one.outcome, one.worker) for one in store.attempts(job.id)] == [
        ("lost", f"worker-{number}") for number in range(3)
    ]


def test_a_job_cancelled_in_the_queue_has_no_attempt_more(store):
    job = put(store, policy=AT_ONCE)
    end(store, claim_one(store), Failure("boom"))
    store.cancel(job.id)
    assert reported(store, job.id) == [(1, "failed", "boom")]


def test_a_stopped_run_a_question_and_a_resume_each_end_an_attempt(store):
    job = put(store, policy=Policy(max_attempts=1))
    end(store, claim_one(store), QuestionAsked("k", "May I?"))
    store.answer(job.id, "k", "1")
    end(store, claim_one(store), Stopped("later", pause=True))
    store.resume(job.id)
    end(store, claim_one(store), Failure("boom"))
    store.resume(job.id)
    assert [(number, how) for number, how, _ in reported(store, job.id)] == [
        (1, "asked"),
        (2, "stopped"),
        (3, "failed"),
    ]
    claim_one(store)
    assert reported(store, job.id)[2:] == [(3, "failed", "boom"), (4, "running", None)]


def test_an_adopted_run_is_told_once_for_each_who_held_it(store, clock):
    grant = run_external(store, policy=Policy(on_lost="adopt"))
    lose(store, clock, grant)
    assert reported(store, grant.id)[0][:2] == (1, "lost")
    (adopted,) = store.adopt("worker-2", [SITE])
    assert isinstance(adopted, Grant)
    end(store, adopted, Success())
    assert [(one.attempt, one.outcome, one.worker) for one in store.attempts(grant.id)] == [
        (1, "lost", OWNER),
        (1, "succeeded", "worker-2"),
    ]


# -- steps -------------------------------------------------------------------------------------------------------------


def test_steps_are_told_in_the_order_in_which_they_were_kept(store, clock):
    grant = run(store, policy=AT_ONCE)
    store.save_steps(grant.id, grant.token, {"z": '{"a": [1, null]}'})
    first_at = clock.now()
    end(store, grant, HandedBack())
    clock.advance(5)
    newer = claim_one(store)
    store.save_steps(newer.id, newer.token, {"a": '"ü"', "b": "null"})
    assert [(one.name, one.attempt, one.saved_at, one.result) for one in store.steps(grant.id)] == [
        ("z", 1, first_at, {"a": [1, None]}),
        ("a", 2, clock.now(), "ü"),
        ("b", 2, clock.now(), None),
    ]


# -- the error of a job that has succeeded -----------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"lane": "l"}, {"group": "g"}], ids=["plain", "lane", "group"])
def test_a_success_leaves_the_errors_of_earlier_attempts_to_them(store, fields):
    job = put(store, policy=AT_ONCE, **fields)
    end(store, claim_one(store), Failure("boom"))
    assert store.get(job.id).error == "boom"
    after = end(store, claim_one(store), Success("1"))
    assert (after.state, after.error) == (State.SUCCEEDED, None)
    assert store.list_jobs().jobs[0].error is None
    assert reported(store, job.id)[0] == (1, "failed", "boom")


def test_a_success_that_others_wait_for_has_no_error_either(store):
    job = put(store, policy=AT_ONCE)
    put(store, after=(job.id,))
    end(store, claim_one(store), Failure("boom"))
    assert end(store, claim_one(store), Success("1")).error is None
