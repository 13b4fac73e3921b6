"""`settle` against the table of the semantics, written independently of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from leasehold.domain.job import Job
from leasehold.domain.outcome import (
    AttemptTimedOut,
    Breached,
    Crashed,
    DeadlinePassed,
    Detached,
    Expired,
    Failure,
    HandedBack,
    Lost,
    Snoozed,
    Stopped,
    Success,
)
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.settle import settle
from leasehold.domain.states import TRANSITIONS, Flag, State, Trigger
from leasehold.testing import START

RUNNING = Job(
    id="x",
    seq=1,
    task="k",
    queue="q",
    gate=1,
    priority=0,
    state=State.RUNNING,
    args="{}",
    created_at=START,
    available_at=START,
    updated_at=START,
    worker="w",
    lease_expires_at=START,
    lease_token=5,
    attempt=1,
)
FLAGS = (None, Flag.FINISH, Flag.PAUSE, Flag.CANCEL)
ALL = Policy()
LAST = Policy(max_attempts=1)
ONCE = Policy(max_attempts=1, on_lost="fail", queueing=False)
TABLE = [
    (Success(), ALL, "succeeded succeeded succeeded succeeded"),
    (Failure("e"), ALL, "queued cancelled paused cancelled"),
    (Failure("e"), LAST, "failed failed failed cancelled"),
    (Failure("e", final=True), ALL, "failed failed failed cancelled"),
    (AttemptTimedOut("e"), ALL, "queued timed_out timed_out cancelled"),
    (AttemptTimedOut("e"), LAST, "timed_out timed_out timed_out cancelled"),
    (DeadlinePassed("e"), ALL, "timed_out timed_out timed_out cancelled"),
    (Stopped(), ALL, "queued cancelled paused cancelled"),
    (Stopped(pause=True), ALL, "paused paused paused cancelled"),
    (HandedBack(), ALL, "queued cancelled paused cancelled"),
    (Lost(), ALL, "queued cancelled paused cancelled"),
    (Lost(), Policy(on_lost="fail"), "failed failed failed cancelled"),
    (Lost(), Policy(on_lost="adopt"), "running running running running"),
    (Lost(), Policy(max_crashes=1), "failed failed failed cancelled"),
    (Lost(), Policy(count_lost=True, max_attempts=1), "failed failed failed cancelled"),
    (Crashed("e"), ALL, "queued cancelled paused cancelled"),
    (Detached(), Policy(on_lost="adopt"), "running running running running"),
    (Snoozed(5), ALL, "queued cancelled paused cancelled"),
    (Snoozed(5), LAST, "queued cancelled paused cancelled"),
    (QuestionAsked("k", "?"), ALL, "waiting cancelled paused cancelled"),
    (Breached("e"), ALL, "failed failed failed cancelled"),
    (Breached("e"), Policy(on_breach="pause"), "paused failed paused cancelled"),
    (Success(), ONCE, "succeeded succeeded succeeded succeeded"),
    (Failure("e"), ONCE, "failed failed failed cancelled"),
    (AttemptTimedOut("e"), ONCE, "timed_out timed_out timed_out cancelled"),
    (Stopped(), ONCE, "failed cancelled failed cancelled"),
    (Stopped(pause=True), ONCE, "failed failed failed cancelled"),
    (HandedBack(), ONCE, "failed cancelled failed cancelled"),
    (Lost(), ONCE, "failed failed failed cancelled"),
    (Crashed("e"), ONCE, "failed failed failed cancelled"),
    (Snoozed(5), ONCE, "failed cancelled failed cancelled"),
    (QuestionAsked("k", "?"), ONCE, "failed cancelled failed cancelled"),
    (Breached("e"), replace(ONCE, on_breach="pause"), "failed failed failed cancelled"),
]
CELLS = [
    (outcome, policy, flag, state)
    for outcome, policy, row in TABLE
    for flag, state in zip(FLAGS, row.split(), strict=True)
]


@pytest.mark.parametrize(("outcome", "policy", "flag", "state"), CELLS)
def test_every_cell_of_the_table(outcome, policy, flag, state):
    job = replace(RUNNING, stop_requested=flag, execution_site="here")
    move = settle(job, outcome, policy, now=START)
    assert move.job.state == state
    assert move.job.state in TRANSITIONS[State.RUNNING, Trigger.SETTLE]
    assert move.job.lease_token == 5, "only a grant moves the token"
    assert move.job.worker is None
    if move.job.state is State.RUNNING:
        assert move.job.stop_requested is flag
    else:
        assert move.job.stop_requested is None
        by_owner = (None, None) if isinstance(outcome, Lost) else ("w", 5)
        assert (move.job.settled_by, move.job.settled_token) == by_owner


GRANTED_LATE = {
    "deadline_at": "timed_out timed_out timed_out cancelled",
    "start_by": "cancelled cancelled cancelled cancelled",
}


@pytest.mark.parametrize("limit", GRANTED_LATE)
def test_a_grant_that_came_too_late_ends_the_job_and_counts_as_no_run(limit):
    for flag, state in zip(FLAGS, GRANTED_LATE[limit].split(), strict=True):
        job = replace(
            RUNNING, started_at=START, first_started_at=START, stop_requested=flag, **{limit: START}
        )
        move = settle(job, Expired(), ALL, now=START)
        assert (move.job.state, move.job.attempt, move.job.started_at) == (state, 0, None)
        assert (move.job.worker, move.job.settled_by, move.job.stop_requested) == (None, None, None)
        assert move.job.state in TRANSITIONS[State.RUNNING, Trigger.SETTLE]


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("outcome", [Lost(), Detached()])
def test_with_nothing_placed_there_is_nothing_to_adopt(outcome, flag):
    move = settle(replace(RUNNING, stop_requested=flag), outcome, Policy(on_lost="adopt"), now=START)
    assert move.job.state is not State.RUNNING


def test_a_bystander_survives_more_crashes_than_a_job_that_was_alone():
    crashed = replace(RUNNING, crashes=2)
    assert settle(crashed, Lost(alone=True), ALL, now=START).job.state is State.FAILED
    assert settle(crashed, Lost(alone=False), ALL, now=START).job.state is State.QUEUED


@pytest.mark.parametrize("outcome", [Stopped(pause=True), Breached("e")], ids=["stopped", "breached"])
def test_a_run_that_is_paused_leaves_no_due_time_ahead(outcome):
    """The clock was set back since the claim. Resume keeps the due time of a paused job: only a snooze may set one."""
    late = replace(RUNNING, available_at=START + timedelta(hours=1))
    paused = settle(late, outcome, Policy(on_breach="pause"), now=START).job
    assert (paused.state, paused.available_at) == (State.PAUSED, START)
