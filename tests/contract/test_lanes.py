"""Lanes: one at a time, in order, and never asleep while the next job could run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from leasehold.domain.errors import InvalidState
from leasehold.domain.outcome import (
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
from leasehold.domain.states import FINAL, State
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.stores.verbs.limits import gate_id
from leasehold.testing import START, ManualClock
from tests.backends import Backend, new_job, put
from tests.contract.lives import (
    OWNER,
    SITE,
    claim_ids,
    claim_one,
    claim_until_found,
    end,
    lose,
    sight,
)


def _fill(store: JobStore, count: int, lane: str = "lane", **fields: Any) -> list[str]:
    return [put(store, lane=lane, **fields).id for _ in range(count)]


def _succeed(store: JobStore) -> str:
    """Claim the lane's next and let it succeed."""
    (job_id,) = claim_until_found(store, limit=1)
    (grant,) = [grant for grant in store.find_leases_of(OWNER) if grant.id == job_id]
    end(store, grant, Success())
    return job_id


# -- order -------------------------------------------------------------------------------------------------------------


def test_a_lane_runs_in_the_order_of_its_places_one_at_a_time(store, clock):
    ids = _fill(store, 5)
    done = []
    while grants := store.claim(OWNER, ["default"], 10):
        (grant,) = grants
        assert claim_ids(store) == [], "one at a time"
        end(store, grant, Success())
        done.append(grant.id)
    assert done == ids


def test_a_batch_enters_its_lanes_in_the_order_given(store):
    jobs = [new_job(lane=f"lane-{number % 2}") for number in range(6)]
    store.enqueue(jobs)
    done = [_succeed(store) for _ in jobs]
    for parity in (0, 1):
        lane = [job.id for job in jobs[parity::2]]
        assert [job_id for job_id in done if job_id in lane] == lane


def test_the_place_in_a_lane_is_the_due_time_at_enqueue_then_the_order_of_arrival(store, clock):
    late = put(store, lane="lane", delay=20.0).id
    early = put(store, lane="lane", delay=10.0).id
    same = put(store, lane="lane", delay=10.0).id
    clock.advance(30)
    assert [_succeed(store) for _ in range(3)] == [early, same, late]


def test_many_lanes_give_one_head_each_in_one_claim(store):
    heads = [_fill(store, 3, f"lane-{number}")[0] for number in range(8)]
    assert claim_ids(store, limit=20) == heads
    assert claim_ids(store, limit=20) == []


def test_a_delayed_job_does_not_hold_its_lane(store, clock):
    delayed = put(store, lane="lane", delay=60.0).id
    now = put(store, lane="lane").id
    assert _succeed(store) == now
    assert claim_until_found(store) == []
    clock.advance(60)
    assert _succeed(store) == delayed


def test_a_delayed_job_waits_for_the_one_that_runs_when_its_time_comes(store, clock):
    delayed = put(store, lane="lane", delay=10.0).id
    put(store, lane="lane")
    grant = claim_one(store)
    clock.advance(10)
    assert claim_until_found(store) == []
    end(store, grant, Success())
    assert claim_until_found(store) == [delayed]


def test_a_pending_job_is_not_in_the_lane_until_it_is_released(store, clock):
    held = put(store, lane="lane", hold=True).id
    ids = _fill(store, 2)
    assert _succeed(store) == ids[0]
    clock.advance(1)
    store.release(held)
    assert [_succeed(store), _succeed(store)] == [ids[1], held], "it enters behind those who were there"


def test_a_job_released_before_its_due_time_runs_when_the_time_comes(store, clock):
    held = put(store, lane="lane", hold=True, delay=60.0).id
    store.release(held)
    assert claim_until_found(store) == []
    clock.advance(60)
    assert claim_until_found(store) == [held]


def test_a_job_held_and_delayed_that_was_paused_and_resumed_runs_in_the_end(store, clock):
    held = put(store, lane="lane", hold=True, delay=60.0).id
    store.pause(held)
    store.resume(held)
    claim_until_found(store)
    clock.advance(60)
    if store.get(held).state is State.QUEUED:
        claim_until_found(store)
    assert store.get(held).state is State.RUNNING


def test_a_resumed_job_is_due_now_though_its_delay_has_not_passed(store, clock):
    plain, in_lane = put(store, delay=60.0).id, put(store, delay=60.0, lane="lane").id
    for job_id in (plain, in_lane):
        store.pause(job_id)
        store.resume(job_id)
    assert sorted(claim_until_found(store)) == sorted([plain, in_lane])


def test_priority_plays_no_part_inside_a_lane(store):
    low = put(store, lane="lane", priority=-10).id
    high = put(store, lane="lane", priority=90).id
    middle = put(store, lane="lane", priority=0).id
    assert [_succeed(store) for _ in range(3)] == [low, high, middle]


def test_the_head_of_a_lane_competes_with_its_own_priority(store):
    low = put(store, lane="low", priority=1).id
    put(store, lane="low", priority=99)  # not the head, so it lends the lane nothing
    high = put(store, lane="high", priority=2).id
    middle = put(store, lane="middle", priority=1).id
    found = [claim_until_found(store, limit=1) for _ in range(3)]
    assert found[0] == [high]
    assert sorted(found[1:]) == sorted([[low], [middle]])


# -- what holds a lane -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcome", [Failure("boom"), Snoozed(20.0), HandedBack(delay=20.0)], ids=["backoff", "snooze", "handback"]
)
def test_a_started_job_that_waits_to_run_again_holds_its_lane(store, clock, outcome):
    first, second = _fill(store, 2, policy=Policy(backoff=20.0))
    waiting = end(store, claim_one(store), outcome)
    assert claim_until_found(store) == []
    clock.advance((waiting.available_at - clock.now()).total_seconds() - 0.001)
    assert claim_until_found(store) == []
    clock.advance(0.001)
    assert [_succeed(store), _succeed(store)] == [first, second]


def test_a_second_crash_in_a_lane_waits_for_its_backoff_and_holds_the_lane(store, clock):
    first, second = _fill(store, 2, policy=Policy(backoff=20.0))
    end(store, claim_one(store), Crashed("signal 9"))
    waiting = end(store, claim_one(store), Crashed("signal 9"))
    assert waiting.available_at > clock.now()
    assert claim_until_found(store) == []
    clock.advance(20)
    assert [_succeed(store), _succeed(store)] == [first, second]


def test_a_started_job_stays_first_though_one_with_an_earlier_place_is_committed_late(store, clock, backend):
    (first,) = _fill(store, 1)
    end(store, claim_one(store), Snoozed(10.0))
    slow_producer = backend.open(ManualClock(START - timedelta(seconds=60)))
    late = put(slow_producer, lane="lane").id
    assert store.get(late).lane_at < store.get(first).created_at
    assert claim_until_found(store) == [], "the snoozed one is still first"
    clock.advance(10)
    assert [_succeed(store), _succeed(store)] == [first, late]


def _fail(store: JobStore, clock: ManualClock, job_id: str) -> None:
    end(store, claim_one(store), Failure("boom", final=True))


def _time_out(store: JobStore, clock: ManualClock, job_id: str) -> None:
    end(store, claim_one(store), DeadlinePassed("late"))


def _pause_running(store: JobStore, clock: ManualClock, job_id: str) -> None:
    end(store, claim_one(store), Stopped(pause=True))


def _pause_queued(store: JobStore, clock: ManualClock, job_id: str) -> None:
    store.pause(job_id)


def _ask(store: JobStore, clock: ManualClock, job_id: str) -> None:
    end(store, claim_one(store), QuestionAsked("q", "May I?"))


def _orphan(store: JobStore, clock: ManualClock, job_id: str) -> None:
    grant = claim_one(store)
    store.record_site(grant.id, grant.token, SITE, "run")
    end(store, grant, Detached())


def _lose_fail(store: JobStore, clock: ManualClock, job_id: str) -> None:
    grant = claim_one(store)
    for _ in range(3):
        job = lose(store, clock, grant)
        if job.state is State.FAILED:
            return
        clock.advance(1000)
        grant = claim_one(store)
    raise AssertionError("it should have failed by now")


BLOCKS = [_fail, _time_out, _pause_running, _pause_queued, _ask, _orphan, _lose_fail]


@pytest.mark.parametrize("block", BLOCKS)
def test_what_halts_a_lane_holds_it_whatever_comes(store, clock, block):
    first, _ = _fill(store, 2)
    block(store, clock, first)
    assert claim_until_found(store) == []
    clock.advance(1000)
    put(store, lane="lane", priority=100)
    assert claim_until_found(store) == []
    other = put(store, lane="another").id
    assert claim_until_found(store) == [other], "other lanes go on"


@pytest.mark.parametrize("block", BLOCKS)
def test_a_cancelled_halter_lets_the_lane_go_on(store, clock, block):
    first, second = _fill(store, 2)
    block(store, clock, first)
    claim_until_found(store)
    store.cancel(first)
    if block is _orphan:
        (adopted,) = store.adopt("adopter", [SITE])
        end(store, adopted, Stopped())
    assert store.get(first).state is State.CANCELLED
    assert claim_until_found(store) == [second]


@pytest.mark.parametrize("block", [_fail, _time_out, _pause_running, _pause_queued, _lose_fail])
def test_a_resumed_halter_runs_again_in_its_old_place(store, clock, block):
    first, second = _fill(store, 2)
    block(store, clock, first)
    claim_until_found(store)
    store.resume(first)
    assert [_succeed(store), _succeed(store)] == [first, second]


@pytest.mark.parametrize("block", [_fail, _time_out, _pause_running, _pause_queued])
def test_resuming_a_lane_resumes_the_job_that_halts_it(store, clock, block):
    first, second = _fill(store, 2)
    assert store.resume_lane("lane") is None
    block(store, clock, first)
    claim_until_found(store)
    resumed = store.resume_lane("lane", "anna")
    assert (resumed.id, resumed.state) == (first, State.QUEUED)
    assert store.history(first)[-1].actor == "anna"
    assert [_succeed(store), _succeed(store)] == [first, second]
    assert store.resume_lane("lane") is None


@pytest.mark.parametrize("block", [_fail, _time_out, _lose_fail])
def test_a_resolved_failure_stays_on_record_and_the_lane_goes_on(store, clock, block):
    first, second = _fill(store, 2)
    block(store, clock, first)
    claim_until_found(store)
    before = store.get(first)
    resolved = store.skip(first)
    assert (resolved.state, resolved.error, resolved.halts_lane) == (before.state, before.error, False)
    assert claim_until_found(store) == [second]


def test_an_answered_job_goes_on_before_those_behind_it(store, clock):
    first, second = _fill(store, 2)
    _ask(store, clock, first)
    claim_until_found(store)
    store.answer(first, "q", "true")
    assert [_succeed(store), _succeed(store)] == [first, second]


def test_an_adopted_orphan_that_ends_lets_the_lane_go_on(store, clock):
    first, second = _fill(store, 2)
    _orphan(store, clock, first)
    claim_until_found(store)
    (adopted,) = store.adopt("adopter", [SITE])
    assert claim_until_found(store) == [], "an adopted job runs"
    end(store, adopted, Success())
    assert claim_until_found(store) == [second]


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_paused_job_blocks_its_lane_wherever_it_stands(store, clock, place):
    ids = _fill(store, 3)
    paused = ids[0] if place == "first" else ids[2]
    store.pause(paused)
    assert claim_until_found(store) == []
    store.cancel(paused)
    rest = [job_id for job_id in ids if job_id != paused]
    assert [_succeed(store), _succeed(store)] == rest


def test_a_failure_that_is_skipped_does_not_hold_the_lane(store, clock):
    first, second = _fill(store, 2, policy=Policy(on_failure="skip"))
    failed = end(store, claim_one(store), Failure("boom", final=True))
    assert (failed.id, failed.state, failed.halts_lane) == (first, State.FAILED, False)
    assert claim_until_found(store) == [second]
    assert store.resume_lane("lane") is None


def test_a_failure_that_is_skipped_holds_the_lane_while_it_has_tries_left(store, clock):
    first, _ = _fill(store, 2, policy=Policy(on_failure="skip", backoff=10.0))
    end(store, claim_one(store), Failure("boom"))
    assert claim_until_found(store) == []
    clock.advance(10)
    assert claim_until_found(store) == [first]


def test_a_job_passed_by_its_lane_does_not_come_back_before_a_started_one(store, clock):
    first, second, third = _fill(store, 3, policy=Policy(on_failure="skip", backoff=10.0))
    end(store, claim_one(store), Failure("boom", final=True))
    end(store, claim_one(store), Snoozed(10.0))
    store.resume(first)
    assert claim_until_found(store) == []
    clock.advance(10)
    done = [_succeed(store) for _ in range(3)]
    assert done[0] == second
    assert sorted(done) == sorted([first, second, third])


def test_a_missed_lease_gives_the_lane_back_to_the_same_job(store, clock):
    first, second = _fill(store, 2)
    grant = claim_one(store)
    seen = sight(store, clock, grant.id)
    assert claim_until_found(store) == [], "a missed lease still holds the lane until it is reaped"
    store.reap([seen])
    assert [_succeed(store), _succeed(store)] == [first, second]


def test_a_cancelled_queued_head_in_backoff_lets_the_next_one_run_at_once(store, clock):
    first, second = _fill(store, 2, policy=Policy(backoff=100.0))
    end(store, claim_one(store), Failure("boom"))
    assert claim_until_found(store) == []
    store.cancel(first)
    assert claim_until_found(store) == [second]


def test_a_retried_job_enters_its_lane_as_a_new_one(store, clock):
    first, second = _fill(store, 2)
    end(store, claim_one(store), Failure("boom", final=True))
    again = new_job().id
    clock.advance(1)
    store.retry(first, again)
    assert claim_until_found(store) == [], "the failure still halts"
    store.skip(first)
    assert [_succeed(store), _succeed(store)] == [second, again]


# -- snooze ------------------------------------------------------------------------------------------------------------


def test_a_lane_waits_for_its_snoozed_first_job_and_keeps_its_order(store, clock):
    ids = _fill(store, 3)
    store.snooze(ids[0], clock.now() + timedelta(seconds=60))
    assert claim_until_found(store) == [], "nobody overtakes"
    clock.advance(30)
    late = put(store, lane="lane").id
    assert claim_until_found(store) == []
    clock.advance(30)
    assert [_succeed(store) for _ in range(4)] == [*ids, late]


def test_a_job_snoozed_further_back_in_its_lane_holds_up_those_behind_it_alone(store, clock):
    first, second, third = _fill(store, 3)
    store.snooze(second, clock.now() + timedelta(seconds=60))
    assert _succeed(store) == first
    assert claim_until_found(store) == []
    clock.advance(60)
    assert [_succeed(store), _succeed(store)] == [second, third]


def test_a_lane_goes_on_at_once_when_its_snoozed_first_job_is_due_sooner(store, clock):
    first, second = _fill(store, 2)
    store.snooze(first, clock.now() + timedelta(hours=1))
    assert claim_until_found(store) == []
    store.snooze(first, clock.now())
    assert [_succeed(store), _succeed(store)] == [first, second]


def test_a_lane_goes_on_when_its_snoozed_first_job_is_cancelled(store, clock):
    first, second = _fill(store, 2)
    store.snooze(first, clock.now() + timedelta(hours=1))
    assert claim_until_found(store) == []
    store.cancel(first)
    assert claim_until_found(store) == [second]


def test_a_started_job_that_is_snoozed_stays_first_in_its_lane(store, clock):
    first, second = _fill(store, 2, policy=Policy(backoff=10.0))
    end(store, claim_one(store), Failure("boom"))
    store.snooze(first, clock.now() + timedelta(seconds=60))
    clock.advance(59)
    assert claim_until_found(store) == []
    clock.advance(1)
    assert [_succeed(store), _succeed(store)] == [first, second]


def test_a_delayed_job_that_is_snoozed_to_now_enters_its_lane_behind_those_who_are_there(store, clock):
    delayed = put(store, lane="lane", delay=3600.0).id
    ids = _fill(store, 2)
    clock.advance(1)
    store.snooze(delayed, clock.now() - timedelta(days=1))
    assert [_succeed(store) for _ in range(3)] == [*ids, delayed]


def test_a_delayed_job_that_is_snoozed_to_later_lets_its_lane_go_on_until_its_place_comes(store, clock):
    delayed = put(store, lane="lane", delay=10.0).id
    store.snooze(delayed, clock.now() + timedelta(seconds=60))
    before = put(store, lane="lane").id
    assert _succeed(store) == before
    clock.advance(11)
    behind = put(store, lane="lane").id
    assert claim_until_found(store) == []
    clock.advance(49)
    assert [_succeed(store), _succeed(store)] == [delayed, behind]


def test_a_lane_waits_for_a_job_that_was_snoozed_while_it_was_paused(store, clock):
    first, second = _fill(store, 2)
    store.pause(first)
    store.snooze(first, clock.now() + timedelta(seconds=60))
    store.resume(first)
    assert claim_until_found(store) == []
    clock.advance(60)
    assert [_succeed(store), _succeed(store)] == [first, second]


# -- gates -------------------------------------------------------------------------------------------------------------


def test_a_lane_whose_head_is_of_a_paused_kind_waits_for_that_kind(store, clock):
    sleepy = put(store, lane="lane", task="sleepy").id
    awake = put(store, lane="lane", task="awake").id
    store.pause_scope("task", "sleepy")
    assert claim_until_found(store) == []
    store.resume_scope("task", "sleepy")
    assert [_succeed(store), _succeed(store)] == [sleepy, awake]


@pytest.mark.parametrize(
    "outcome", [Success(), Failure("boom", final=True), Stopped()], ids=["success", "failure", "cancelled"]
)
def test_a_lane_goes_on_though_the_kind_that_just_left_it_is_paused(store, clock, outcome):
    """The ticket must not sleep under the gate of the job that has gone."""
    put(store, lane="lane", task="sleepy", policy=Policy(on_failure="skip"))
    awake = put(store, lane="lane", task="awake").id
    grant = claim_one(store)
    store.pause_scope("task", "sleepy")
    if isinstance(outcome, Stopped):
        store.cancel(grant.id)
    assert claim_until_found(store) == []
    end(store, grant, outcome)
    assert claim_until_found(store) == [awake]


def test_a_lane_goes_on_when_its_head_of_a_paused_kind_is_cancelled(store, clock):
    sleepy = put(store, lane="lane", task="sleepy").id
    awake = put(store, lane="lane", task="awake").id
    store.pause_scope("task", "sleepy")
    assert claim_until_found(store) == []
    store.cancel(sleepy)
    assert claim_until_found(store) == [awake]


def test_a_job_that_joins_a_lane_whose_head_is_paused_by_kind_does_not_take_its_place(store, clock):
    sleepy = put(store, lane="lane", task="sleepy").id
    store.pause_scope("task", "sleepy")
    claim_until_found(store)
    awake = put(store, lane="lane", task="awake").id
    assert claim_until_found(store) == []
    store.resume_scope("task", "sleepy")
    assert [_succeed(store), _succeed(store)] == [sleepy, awake]


def test_a_worker_of_another_kind_leaves_the_lane_to_those_who_know_its_head(store, clock):
    put(store, lane="lane", task="done")
    head = put(store, lane="lane", task="known").id
    end(store, claim_one(store), Success())
    for _ in range(3):
        assert claim_ids(store, tasks=["other"]) == []
    assert claim_ids(store, tasks=["known"]) == [head]


def test_a_worker_of_another_queue_leaves_the_lane_to_those_who_serve_its_head(store, clock):
    put(store, lane="lane", queue="a")
    head = put(store, lane="lane", queue="b").id
    end(store, claim_one(store, queue="a"), Success())
    for _ in range(3):
        assert claim_ids(store, queue="a") == []
    assert claim_ids(store, queue="b") == [head]


def test_a_lane_of_mixed_priorities_never_needs_a_second_claim(store):
    """An empty answer means that there is nothing to do: a worker that is told so goes to sleep."""
    ids = [put(store, lane="lane", priority=priority).id for priority in (5, 0, 5, -5)]
    done = []
    for _ in ids:
        grants = store.claim(OWNER, ["default"], 1)
        done += [grant.id for grant in grants]
        for grant in grants:
            end(store, grant, Success())
    assert done == ids


# -- tickets and the tripwire ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_ends", [None, Failure("boom", final=True), Snoozed(60.0)])
def test_a_second_job_of_a_held_lane_is_refused_by_the_database_itself(store, backend: Backend, first_ends):
    """Also when the first has halted the lane, or waits to run again: a claim that saw the lane free before it
    started must not commit after it."""
    _, second = _fill(store, 2)
    grant = claim_one(store)
    if first_ends is not None:
        end(store, grant, first_ends)
    starts = "INSERT INTO leasehold.lane_hold (lane, job) SELECT lane, seq FROM leasehold.job WHERE id = ?"
    with pytest.raises(Exception, match=r"(?i)unique"):
        backend.query(starts, second)
    assert store.get(second).state is State.QUEUED


def test_thousands_of_stale_tickets_are_cleared_by_one_claim_with_room_for_one(
    store, clock, backend: Backend
):
    (blocked, _) = _fill(store, 2, "halted")
    store.pause(blocked)
    numbers = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
        " INSERT INTO leasehold.ticket (gate, priority, available_at, lane)"
        " SELECT j.gate, j.priority, j.available_at, j.lane FROM n, leasehold.job_row AS j WHERE j.id = ?"
    )
    backend.query(numbers, blocked)
    clock.advance(1)
    alive = put(store, lane="alive").id
    assert claim_ids(store, limit=1) == [alive], "an empty answer means that there is nothing to do"
    assert backend.query("SELECT count(*) FROM leasehold.ticket") == [(0,)]


def test_stale_tickets_of_a_lane_do_not_keep_plain_jobs_waiting(store, clock, backend: Backend):
    (blocked,) = _fill(store, 1, "halted", priority=50)
    store.pause(blocked)
    plain = put(store).id
    assert claim_ids(store, limit=1) == [plain]


Query = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture
def window() -> Iterator[Callable[[Backend], Query]]:
    """`Backend.query` over one connection: the walk looks behind the store's back at every step."""
    with ExitStack() as opened:

        def open_window(backend: Backend) -> Query:
            if backend.name == "sqlite":
                return backend.query
            import psycopg

            connection = opened.enter_context(psycopg.connect(backend.url, autocommit=True))
            schema = f'"{backend.schema}".'
            return lambda text: connection.execute(text.replace("leasehold.", schema).encode()).fetchall()

        yield open_window


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 36])
def test_an_unblocked_lane_with_a_due_head_has_a_due_ticket_whatever_happens(
    store, clock, backend, window, seed
):
    walk = Walk(store, clock, backend, window(backend), random.Random(seed))
    for _ in range(120):
        walk.step()
        walk.check()
    walk.drain()


class Walk:
    """Random verbs on a few lanes; after each of them the lanes must be awake."""

    LANES = tuple("abcdefghijklmnop")
    KINDS = ("work", "other")
    FITTING: ClassVar[dict[State, list[str]]] = {
        State.PENDING: ["release"] * 4,
        State.QUEUED: [],
        State.RUNNING: ["resume"],
        State.WAITING: ["answer"] * 4,
        State.PAUSED: ["resume", "answer"] * 3,
        State.FAILED: ["resume", "skip"] * 2,
        State.TIMED_OUT: ["resume", "skip"] * 2,
    }

    def __init__(
        self, store: JobStore, clock: ManualClock, backend: Backend, query: Query, chance: random.Random
    ) -> None:
        self.store, self.clock, self.backend, self.query, self.chance = store, clock, backend, query, chance
        self.reported: list[str] = []

    def step(self) -> None:
        act = self.chance.choice(
            [self._enqueue] * 3
            + [self._claim] * 5
            + [self._settle] * 5
            + [self._operate] * 5
            + [self._pass_time] * 2
            + [self._recover, self._pause_kind]
        )
        act()

    def check(self) -> None:
        jobs = self.query(
            "SELECT lane, lane_at, seq, state, halts_lane, available_at, task FROM leasehold.job_row"
            " ORDER BY lane_at, seq"
        )
        tickets = self.query("SELECT lane, gate, available_at FROM leasehold.ticket")
        for lane in self.LANES:
            asleep = self._asleep([j for j in jobs if j[0] == lane], [t for t in tickets if t[0] == lane])
            assert not asleep, (lane, self.reported[-12:])

    def drain(self) -> None:
        """With every obstacle out of the way all jobs come to rest."""
        for task in self.KINDS:
            self.store.resume_scope("task", task)
        for _ in range(400):
            for job in self.store.list_jobs(limit=500).jobs:
                match job.state:
                    case State.PENDING:
                        self.store.release(job.id)
                    case State.WAITING | State.PAUSED | State.FAILED | State.TIMED_OUT:
                        self.store.cancel(job.id)
                    case State.RUNNING if job.worker is None:
                        self.store.adopt(OWNER, [SITE])
            grants = self.store.find_leases_of(OWNER)
            self.store.settle([Ending(grant.id, grant.token, Success()) for grant in grants])
            if not self.store.claim(OWNER, ["default"], 10):
                self.clock.advance(10)
            counts = self.store.count()
            if not any(counts[state] for state in (State.PENDING, State.QUEUED, State.RUNNING)):
                return
            self.check()
        raise AssertionError(f"not drained: {self.store.count()}")

    def _enqueue(self) -> None:
        delay = self.chance.choice([0.0, 0.0, 15.0])
        put(
            self.store,
            lane=self.chance.choice(self.LANES),
            task=self.chance.choice(self.KINDS),
            priority=self.chance.choice([0, 0, 5]),
            delay=delay,
            hold=self.chance.random() < 0.25,
            policy=Policy(
                backoff=5.0,
                on_failure=self.chance.choice(["halt", "skip"]),
                on_lost=self.chance.choice(["retry", "fail", "adopt"]),
            ),
        )
        self.reported.append("enqueue")

    def _claim(self) -> None:
        grants = self.store.claim(OWNER, ["default"], self.chance.choice([1, 3]))
        for grant in grants:
            if self.chance.random() < 0.4:
                self.store.record_site(grant.id, grant.token, SITE, "run")
        self.reported.append(f"claim {len(grants)}")

    def _settle(self) -> None:
        if held := self.store.find_leases_of(OWNER):
            grant = self.chance.choice(held)
            outcomes: list[Outcome] = [
                *[Success()] * 5,
                Failure("boom"),
                Failure("boom", final=True),
                Snoozed(7.0),
                HandedBack(),
                QuestionAsked("q", "?"),
                Stopped(pause=True),
                Detached(),
            ]
            outcome = self.chance.choice(outcomes)
            self.store.settle([Ending(grant.id, grant.token, outcome)])
            self.reported.append(f"settle {grant.lane} {outcome}")

    def _operate(self) -> None:
        jobs = [job for job in self.store.list_jobs(limit=500).jobs if job.state not in FINAL]
        if not jobs:
            return
        job = self.chance.choice(jobs)
        verb = self.chance.choice([*self.FITTING[job.state], "cancel", "pause", "snooze"])
        until = self.clock.now() + timedelta(seconds=self.chance.choice([-5, 5, 25]))
        more: tuple[Any, ...] = {"answer": ("q", "1"), "snooze": (until,)}.get(verb, ())
        try:
            getattr(self.store, verb)(job.id, *more)
        except InvalidState:
            return
        self.reported.append(f"{verb} {job.lane}")

    def _recover(self) -> None:
        self.clock.advance(31)
        seen = self.store.sight_overdue()
        self.clock.advance(10)
        self.store.reap(seen)
        if self.chance.random() < 0.5:
            self.store.adopt(OWNER, [SITE])
        self.reported.append("reap")

    def _pause_kind(self) -> None:
        task = self.chance.choice(self.KINDS)
        if not self.store.resume_scope("task", task):
            self.store.pause_scope("task", task)
        self.reported.append(f"pause or resume kind {task}")

    def _pass_time(self) -> None:
        self.clock.advance(self.chance.choice([1, 8, 20]))
        self.reported.append("time")

    def _asleep(self, jobs: list[tuple[Any, ...]], tickets: list[tuple[Any, ...]]) -> bool:
        now: Any = self.clock.now()
        if self.backend.name == "sqlite":
            now = round(now.timestamp() * 1_000_000)
        states = [state for _, _, _, state, *_ in jobs]
        assert states.count("running") <= 1
        if {"running", "waiting", "paused"} & set(states) or any(halts for *_, halts, _, _ in jobs):
            return False
        heads = [job for job in jobs if job[3] == "queued" and job[1] <= now]
        if not heads or heads[0][5] > now:
            return False
        paused = {pause.name for pause in self.store.list_pauses()}
        awake = {0, gate_id("default", heads[0][6])}
        awake |= {gate_id("default", task) for task in self.KINDS if task not in paused}
        return not any(gate in awake and due <= now for _, gate, due in tickets)
