"""Settle: every cell of the table, what each ending costs, and who may write it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from leasehold.domain.job import Grant, Job
from leasehold.domain.outcome import (
    AttemptTimedOut,
    Breached,
    Crashed,
    DeadlinePassed,
    Detached,
    Failure,
    HandedBack,
    Outcome,
    Snoozed,
    Stopped,
    Success,
)
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import State
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import new_job, put
from tests.contract.lives import (
    OWNER,
    SITE,
    claim_ids,
    claim_one,
    claim_until_found,
    end,
    is_fenced,
    lose,
    orphan,
    run,
    run_external,
)
from tests.protocol.settle_table import EXPECTED, FLAGS, OUTCOMES, QUESTION_STAYS_OPEN

BACKOFF, SNOOZE = 8.0, 40.0
_RETRIED, _ONCE = Policy(backoff=BACKOFF), Policy(max_attempts=1)


@dataclass(frozen=True)
class Cell:
    """How to end a run so that it falls on a line of the table, and what that costs (semantics.md, section 3)."""

    outcome: Outcome | None
    """None: the lease is missed, and the reaper ends the run."""
    policy: Policy = _RETRIED
    failures: int = 0
    crashes: int = 0
    earliest: float = 0.0
    """When it goes back to queued: seconds until it is due. 0: it keeps its place."""
    latest: float = 0.0
    external: bool = False
    error: str | None = None


LINES: dict[str, Cell] = {
    "success": Cell(Success('{"n": 1}', "ref")),
    "failure, retries left": Cell(
        Failure("boom"), failures=1, earliest=BACKOFF / 2, latest=BACKOFF, error="boom"
    ),
    "failure, exhausted": Cell(Failure("boom"), _ONCE, failures=1, error="boom"),
    "attempt time-out, retries left": Cell(
        AttemptTimedOut("slow"), failures=1, earliest=BACKOFF / 2, latest=BACKOFF, error="slow"
    ),
    "attempt time-out, exhausted": Cell(AttemptTimedOut("slow"), _ONCE, failures=1, error="slow"),
    "whole-job deadline": Cell(DeadlinePassed("late"), error="late"),
    "stopped": Cell(Stopped()),
    "handed back": Cell(HandedBack()),
    "lost, on_lost=retry": Cell(None, crashes=1, error="lease was lost"),
    "lost, on_lost=fail": Cell(None, Policy(on_lost="fail"), crashes=1, error="lease was lost"),
    "lost, on_lost=adopt": Cell(None, Policy(on_lost="adopt"), external=True),
    "external run at drain": Cell(Detached("drain"), external=True),
    "snooze": Cell(Snoozed(SNOOZE), earliest=SNOOZE, latest=SNOOZE),
    "retry in": Cell(Snoozed(SNOOZE, "not yet"), earliest=SNOOZE, latest=SNOOZE, error="not yet"),
    "question": Cell(QuestionAsked("q", "May I?", '{"type": "boolean"}')),
    "budget breach, on_breach=failed": Cell(
        Breached("over budget"), Policy(on_breach="fail"), error="budget"
    ),
    "budget breach, on_breach=paused": Cell(
        Breached("over budget"), Policy(on_breach="pause"), error="budget"
    ),
}
HISTORY_NAMES = {
    Failure: "failed",
    AttemptTimedOut: "timed_out",
    DeadlinePassed: "timed_out",
    Stopped: "stopped",
    HandedBack: "handed_back",
    Detached: "detached",
    Snoozed: "snoozed",
    QuestionAsked: "asked",
    Breached: "breached",
}


def test_every_line_of_the_table_is_tried():
    assert set(LINES) == set(OUTCOMES)


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("line", OUTCOMES)
def test_every_cell_of_the_table_ends_as_written(store, clock, line, flag):
    cell = LINES[line]
    put(store, lane="lane", policy=cell.policy)
    follower = put(store, lane="lane")
    grant = claim_one(store)
    if cell.external:
        assert store.record_site(grant.id, grant.token, SITE, "run-1")
        assert store.mark_started(grant.id, grant.token)
    if flag != "none":
        assert getattr(store, flag)(grant.id, "operator", "as asked").stop_requested == flag
    clock.advance(1)
    before = store.get(grant.id)
    assert (before.lease_token, before.attempt, before.worker) == (grant.token, 1, OWNER)

    after = end(store, grant, cell.outcome) if cell.outcome is not None else lose(store, clock, grant)

    expected = EXPECTED[line, flag]
    assert ("orphan" if after.orphan else after.state.value) == expected
    _check_lease(store, cell, flag, before, after)
    _check_counters(cell, before, after)
    _check_times(cell, before, after, clock)
    _check_texts(cell, line, after)
    _check_questions(store, line, flag, after)
    assert after.halts_lane == (expected in ("failed", "timed_out"))
    _check_history(store, cell, after)
    _check_lane(store, clock, after, follower)


def _check_lease(store: JobStore, cell: Cell, flag: str, before: Job, after: Job) -> None:
    assert after.lease_token == before.lease_token, "only a grant moves the token"
    assert (after.worker, after.lease_expires_at) == (None, None)
    if after.orphan:
        assert after.stop_requested == (None if flag == "none" else flag), "an orphan keeps its flag"
        assert (after.execution_site, after.execution_name) == (SITE, "run-1")
        assert after.execution_started_at == before.execution_started_at
        assert (after.settled_by, after.settled_token) == (None, None)
        return
    assert after.stop_requested is None
    assert (after.execution_site, after.execution_name, after.execution_started_at) == (None, None, None)
    settlement = store.read_settlements({after.id: before.lease_token}, OWNER)[after.id]
    ended = after.state in (State.SUCCEEDED, State.CANCELLED, State.FAILED, State.TIMED_OUT)
    if cell.outcome is not None:
        assert settlement == "done"
        assert not ended or (after.settled_by, after.settled_token) == (OWNER, before.lease_token)
    else:
        assert settlement == "fenced", "a worker that comes back would believe its own settle had arrived"
        assert after.settled_by is None


def _check_counters(cell: Cell, before: Job, after: Job) -> None:
    assert after.attempt == before.attempt, "only a claim starts a run"
    assert (after.failures, after.crashes) == (cell.failures, cell.crashes)


def _check_times(cell: Cell, before: Job, after: Job, clock: ManualClock) -> None:
    if after.state is State.QUEUED and cell.latest:
        wait = (after.available_at - clock.now()).total_seconds()
        assert cell.earliest <= wait <= cell.latest
    else:
        assert after.available_at == before.available_at, "the place is kept"
    ended = after.state in (State.SUCCEEDED, State.CANCELLED, State.FAILED, State.TIMED_OUT)
    assert after.finished_at == (clock.now() if ended else None)
    assert (after.first_started_at, after.started_at) == (before.first_started_at, before.started_at)
    assert (after.seq, after.created_at, after.args) == (before.seq, before.created_at, before.args)


def _check_texts(cell: Cell, line: str, after: Job) -> None:
    if cell.error is None or after.orphan:
        assert after.error is None
    else:
        assert cell.error in after.error
    if line == "success":
        assert (after.result, after.result_ref) == ('{"n": 1}', "ref")
    else:
        assert (after.result, after.result_ref) == (None, None)


def _check_questions(store: JobStore, line: str, flag: str, after: Job) -> None:
    still_open = [question.key for question in store.questions(after.id) if question.closed_at is None]
    assert still_open == (["q"] if line == "question" and QUESTION_STAYS_OPEN[flag] else [])


def _check_history(store: JobStore, cell: Cell, after: Job) -> None:
    reported = [entry for entry in store.history(after.id) if not entry.event.endswith("_requested")]
    if isinstance(cell.outcome, Success):
        assert reported == [], "the row itself tells a plain success"
        return
    (entry,) = reported
    name = "lost" if cell.outcome is None else HISTORY_NAMES[type(cell.outcome)]
    assert (entry.event, entry.from_state, entry.to_state) == (name, "running", after.state.value)
    assert (entry.token, entry.attempt) == (after.lease_token, after.attempt)


def _check_lane(store: JobStore, clock: ManualClock, after: Job, follower: Job) -> None:
    """Succeeded and cancelled let the lane go on; a queued job is still first; all others hold the lane."""
    match after.state:
        case State.SUCCEEDED | State.CANCELLED:
            assert claim_until_found(store) == [follower.id]
        case State.QUEUED:
            wait = (after.available_at - clock.now()).total_seconds()
            if wait > 0:
                assert claim_until_found(store) == []
                clock.advance(wait)
            assert claim_until_found(store) == [after.id]
        case _:
            clock.advance(1000)
            assert claim_until_found(store) == []


# -- readings of the table that have no line of their own --------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "state"),
    [("none", "paused"), ("finish", "paused"), ("pause", "paused"), ("cancel", "cancelled")],
)
def test_a_run_that_was_stopped_in_order_to_pause_acts_as_under_the_stronger_of_flag_and_pause(
    store, flag, state
):
    grant = run(store)
    if flag != "none":
        getattr(store, flag)(grant.id)
    after = end(store, grant, Stopped("drained", pause=True))
    assert after.state == state
    assert (after.failures, after.crashes, after.stop_requested) == (0, 0, None)


@pytest.mark.parametrize(
    ("flag", "state"),
    [("none", "queued"), ("finish", "cancelled"), ("pause", "paused"), ("cancel", "cancelled")],
)
def test_a_run_that_was_never_placed_is_handed_back_at_drain_not_orphaned(store, flag, state):
    grant = run(store)
    if flag != "none":
        getattr(store, flag)(grant.id)
    after = end(store, grant, Detached())
    assert (after.state, after.orphan) == (state, False)


@pytest.mark.parametrize(
    ("flag", "state"),
    [("none", "failed"), ("finish", "failed"), ("pause", "failed"), ("cancel", "cancelled")],
)
def test_a_final_failure_is_not_retried_though_tries_are_left(store, flag, state):
    grant = run(store)
    if flag != "none":
        getattr(store, flag)(grant.id)
    after = end(store, grant, Failure("never", final=True))
    assert (after.state, after.failures) == (state, 1)


@pytest.mark.parametrize("outcome", [Failure("boom"), AttemptTimedOut("slow")])
def test_failures_are_retried_until_max_attempts_and_not_once_more(store, clock, outcome):
    job = put(store, policy=Policy(max_attempts=3, backoff=1.0))
    states = []
    for _ in range(3):
        clock.advance(10)
        states.append(end(store, claim_one(store), outcome).state.value)
    ended = "timed_out" if isinstance(outcome, AttemptTimedOut) else "failed"
    assert states == ["queued", "queued", ended]
    job = store.get(job.id)
    assert (job.attempt, job.failures, job.crashes) == (3, 3, 0)
    assert job.lease_token == 3


def test_the_backoff_doubles_and_is_capped(store, clock):
    job = put(store, policy=Policy(max_attempts=10, backoff=10.0, max_delay=30.0))
    for full in (10, 20, 30, 30):
        after = end(store, claim_one(store), Failure("boom"))
        wait = (after.available_at - clock.now()).total_seconds()
        assert full / 2 <= wait <= full
        assert claim_ids(store) == []
        clock.advance(wait)
    assert store.get(job.id).failures == 4


def test_a_snooze_costs_nothing_however_often(store, clock):
    job = put(store, policy=Policy(max_attempts=1, max_crashes=1))
    for outcome in [Snoozed(5.0), Snoozed(5.0, "busy"), HandedBack(delay=5.0), Stopped()] * 2:
        end(store, claim_one(store), outcome)
        clock.advance(5)
    job = store.get(job.id)
    assert (job.state, job.attempt, job.failures, job.crashes) == (State.QUEUED, 8, 0, 0)


def test_a_kind_without_a_handler_is_handed_back_with_a_delay_and_a_reason(store, clock):
    grant = run(store)
    after = end(store, grant, HandedBack("no handler for 'work' here", delay=30.0))
    assert after.available_at == clock.now() + timedelta(seconds=30)
    assert (after.reason, after.failures, after.crashes) == ("no handler for 'work' here", 0, 0)
    clock.advance(29)
    assert claim_ids(store) == []
    clock.advance(1)
    assert claim_ids(store) == [grant.id]


def test_a_child_that_died_by_a_signal_counts_as_a_crash_and_not_as_a_failure(store, clock):
    job = put(store, policy=Policy(max_attempts=1))
    states = []
    for _ in range(3):
        clock.advance(100)
        states.append(end(store, claim_one(store), Crashed("signal 9")).state.value)
    assert states == ["queued", "queued", "failed"]
    job = store.get(job.id)
    assert (job.attempt, job.failures, job.crashes) == (3, 0, 3)


def test_a_first_crash_is_retried_at_once_in_its_place_and_later_ones_with_backoff(store, clock):
    grant = run(store, policy=Policy(backoff=8.0))
    clock.advance(5)
    first = end(store, grant, Crashed("signal 9"))
    assert first.available_at == first.created_at
    second = end(store, claim_one(store), Crashed("signal 9"))
    assert 4 <= (second.available_at - clock.now()).total_seconds() <= 8


def test_a_crash_counts_as_a_failure_too_when_the_task_says_so(store):
    grant = run(store, policy=Policy(max_attempts=1, count_lost=True))
    after = end(store, grant, Crashed("signal 9"))
    assert (after.state, after.failures, after.crashes) == (State.FAILED, 1, 1)


def test_a_crashed_child_leaves_nothing_to_adopt(store):
    grant = run_external(store, policy=Policy(on_lost="adopt"))
    after = end(store, grant, Crashed("signal 9"))
    assert (after.state, after.orphan, after.execution_site) == (State.QUEUED, False, None)


def test_the_finish_time_is_cleared_when_a_job_goes_back_to_the_queue(store):
    grant = run(store)
    failed = end(store, grant, Failure("boom", final=True))
    assert failed.finished_at is not None
    assert store.resume(failed.id).finished_at is None
    assert end(store, claim_one(store), Stopped()).finished_at is None


def test_the_reason_of_a_stop_outlives_the_settle_that_obeys_it(store):
    grant = run(store)
    store.cancel(grant.id, "anna", "wrong customer")
    assert end(store, grant, Stopped()).reason == "wrong customer"


def test_a_question_is_closed_when_the_job_is_cancelled(store):
    grant = run(store)
    end(store, grant, QuestionAsked("q", "May I?"))
    store.cancel(grant.id)
    (question,) = store.questions(grant.id)
    assert question.closed_at is not None
    assert question.answer is None


def test_the_same_question_asked_again_is_open_again(store, clock):
    grant = run(store)
    end(store, grant, QuestionAsked("q", "May I?"))
    store.answer(grant.id, "q", "true")
    clock.advance(1)
    end(store, claim_one(store), QuestionAsked("q", "Really?"))
    (question,) = store.questions(grant.id)
    assert (question.text, question.answer, question.closed_at) == ("Really?", None, None)
    assert question.asked_at == clock.now()


# -- who may write -----------------------------------------------------------------------------------------------------


def test_a_late_settle_before_the_reap_is_accepted(store, clock):
    grant = run(store)
    clock.advance(1000)
    assert end(store, grant, Success('"late"')).state is State.SUCCEEDED


@pytest.mark.parametrize(
    "outcome", [Success('"late"'), Failure("late"), Snoozed(1.0), QuestionAsked("q", "?")]
)
def test_a_late_settle_after_the_reap_is_refused(store, clock, outcome):
    grant = run(store)
    reaped = lose(store, clock, grant)
    assert is_fenced(store, grant, outcome)
    assert store.get(grant.id) == reaped
    assert store.questions(grant.id) == []


@pytest.mark.parametrize("outcome", [Success('"late"'), Failure("late")])
def test_a_settle_of_the_predecessor_does_not_touch_the_successor(store, clock, outcome):
    grant = run(store)
    lose(store, clock, grant)
    successor = claim_one(store, "worker-2")
    held = store.get(grant.id)
    assert is_fenced(store, grant, outcome)
    assert store.get(grant.id) == held
    assert end(store, successor, Success('"mine"')).result == '"mine"'


def test_a_second_settle_of_the_same_run_is_refused(store):
    grant = run(store)
    done = end(store, grant, Success("1"))
    assert is_fenced(store, grant, Success("2"))
    assert is_fenced(store, grant, Failure("2"))
    assert store.get(grant.id) == done


def test_a_settle_of_an_unknown_job_is_fenced(store):
    ghost = run(store)._replace(id="00000000-0000-7000-8000-000000000000")
    assert is_fenced(store, ghost, Success())
    assert is_fenced(store, ghost, Failure("x"))


def test_a_batch_settles_what_is_held_and_says_what_is_lost(store, clock):
    grants = [run(store) for _ in range(6)]
    lost = grants[:2]
    for grant in lost:
        end(store, grant, HandedBack())
    endings = [
        Ending(grant.id, grant.token, Success(str(number)) if number % 2 else Failure("boom", final=True))
        for number, grant in enumerate(grants)
    ]
    settled = store.settle(endings)
    assert settled.fenced == sorted(grant.id for grant in lost)
    assert settled.accepted == sorted(grant.id for grant in grants[2:])
    assert settled.not_serializable == []
    states = [store.get(grant.id).state.value for grant in grants]
    assert states == ["queued", "queued", "failed", "succeeded", "failed", "succeeded"]


@pytest.mark.parametrize("last", ["stale", "valid"])
@pytest.mark.parametrize("outcome", [Success("1"), Failure("boom", final=True)])
def test_a_stale_ending_in_the_same_batch_does_not_push_out_the_valid_one(store, outcome, last):
    """A worker may lose a job, claim it again, and end both runs within one flush."""
    stale = run(store)
    end(store, stale, HandedBack())
    valid = claim_one(store)
    assert valid.id == stale.id
    order = [valid, stale] if last == "stale" else [stale, valid]
    settled = store.settle([Ending(grant.id, grant.token, outcome) for grant in order])
    assert store.get(valid.id).state in (State.SUCCEEDED, State.FAILED)
    assert settled.accepted == [valid.id]


def test_a_large_batch_is_settled_whole(store):
    for _ in range(3):
        store.enqueue([new_job() for _ in range(400)])
    grants = store.claim(OWNER, ["default"], 2000)
    assert len(grants) == 1200
    endings = [
        Ending(g.id, g.token, Success("1") if number % 3 else Snoozed(60.0))
        for number, g in enumerate(grants)
    ]
    assert len(store.settle(endings).accepted) == 1200
    counts = store.count()
    assert (counts[State.SUCCEEDED], counts[State.QUEUED]) == (800, 400)


def test_an_empty_batch_is_settled_without_a_word(store):
    settled = store.settle([])
    assert (settled.accepted, settled.fenced, settled.not_serializable) == ([], [], [])


# -- after a lost reply ------------------------------------------------------------------------------------------------


def test_after_a_lost_reply_the_row_says_whether_the_settle_arrived(store, clock):
    arrived, handed_back, unsent, stolen = [run(store) for _ in range(4)]
    end(store, arrived, Success())
    end(store, handed_back, HandedBack())
    end(store, stolen, HandedBack())
    taken = store.claim_by_id(stolen.id, "worker-2")
    end(store, taken, Success())
    leases = {grant.id: grant.token for grant in (arrived, handed_back, unsent, stolen)}
    assert store.read_settlements(leases, OWNER) == {
        arrived.id: "done",
        handed_back.id: "done",
        unsent.id: "mine",
        # A later run has ended since; the record of this one stands.
        stolen.id: "done",
    }
    assert store.read_settlements(leases, "worker-9")[arrived.id] == "fenced"


def test_after_a_reap_a_worker_that_lost_a_reply_is_told_that_it_is_fenced(store, clock):
    """The reaper ended the run, not the worker: `done` would be a lie."""
    grant = run(store)
    lose(store, clock, grant)
    assert store.read_settlements({grant.id: grant.token}, OWNER) == {grant.id: "fenced"}


def test_after_a_steal_a_worker_that_lost_a_reply_is_told_that_it_is_fenced(store, clock):
    grant = run(store)
    clock.advance(31)
    look = store.claim_by_id(grant.id, "worker-2").sighting
    clock.advance(10)
    assert isinstance(store.claim_by_id(grant.id, "worker-2", sighting=look), Grant)
    assert store.read_settlements({grant.id: grant.token}, OWNER) == {grant.id: "fenced"}


def test_a_settle_of_an_unknown_job_reads_as_fenced(store):
    ghost = "00000000-0000-7000-8000-000000000000"
    assert store.read_settlements({ghost: 1}, OWNER) == {ghost: "fenced"}


def test_after_a_lost_reply_a_worker_finds_the_leases_it_holds(store, clock):
    mine = sorted(run(store).id for _ in range(2))
    run(store, worker="worker-2")
    end(store, run(store), Success())
    orphan(store, clock)
    held = store.find_leases_of(OWNER)
    assert [grant.id for grant in held] == mine
    assert all(isinstance(grant, Grant) and grant.token == 1 and grant.attempt == 1 for grant in held)
    assert store.find_leases_of("nobody") == []


def test_what_is_found_held_is_what_was_granted(store):
    put(
        store,
        args='{"a": 1}',
        lane="l",
        group="g",
        deadline=600.0,
        trace="00-1",
        policy=Policy(max_attempts=7),
        lease_seconds=45.0,
    )
    grant = claim_one(store)
    # How long it had waited is not kept.
    assert store.find_leases_of(OWNER) == [grant._replace(waited=None)]


# -- groups ------------------------------------------------------------------------------------------------------------


def test_a_settle_moves_the_version_of_its_group_once(store):
    for _ in range(3):
        put(store, group="g")
    grants = store.claim(OWNER, ["default"], 3)
    version = store.group("g").version
    store.settle([Ending(grant.id, grant.token, Success()) for grant in grants[:2]])
    assert store.group("g").version == version + 1
    store.settle([Ending(grants[2].id, grants[2].token, Failure("boom"))])
    assert store.group("g").version == version + 2


def test_a_refused_settle_does_not_move_the_version_of_its_group(store):
    grant = run(store, group="g")
    end(store, grant, Success())
    version = store.group("g").version
    assert is_fenced(store, grant, Success())
    assert is_fenced(store, grant, Failure("x"))
    assert store.group("g").version == version


def test_a_question_and_a_stop_move_the_version_of_the_group_and_a_claim_does_not(store):
    job = put(store, group="g")
    version = store.group("g").version
    grant = claim_one(store)
    store.renew({grant.id: grant.token})
    assert store.group("g").version == version
    store.pause(job.id)
    assert store.group("g").version == version + 1
    end(store, grant, QuestionAsked("q", "May I?"))
    assert store.group("g").version == version + 2


@pytest.mark.parametrize("outcome", [Success("1"), Failure("boom", final=True), HandedBack()])
def test_a_job_that_nobody_ever_held_cannot_be_settled_or_renewed(store, outcome):
    """Its token is 0, and 0 is nobody's."""
    job = put(store)
    assert store.settle([Ending(job.id, 0, outcome)]).fenced == [job.id]
    assert store.renew({job.id: 0}) == []
    assert store.get(job.id) == job


def test_a_result_that_the_database_refuses_costs_its_neighbours_nothing_whatever_they_are_tied_to(store):
    """PostgreSQL takes no broken JSON; SQLite does not look."""
    plain, tied = put(store), put(store, lane="l")
    endings = [
        Ending(grant.id, grant.token, Success("{" if grant.lane else "1"), grant.seq, grant.special)
        for grant in store.claim(OWNER, ["default"], 5)
    ]
    settled = store.settle(endings)
    assert (settled.accepted, settled.fenced) == (sorted([plain.id, tied.id]), [])
    assert store.get(plain.id).state is State.SUCCEEDED
    assert store.get(tied.id).state is (State.FAILED if settled.not_serializable else State.SUCCEEDED)
