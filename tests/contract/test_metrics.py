"""What was counted adds up to the last run, whoever adds it, and a look at it costs the same however much has ended."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from leasehold.domain.errors import DatabaseUnreachable
from leasehold.domain.metrics import BOUNDS, MOST_PAIRS, OTHER, SPARE, Histogram, Rollup
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from tests.backends import new_job, put
from tests.plans.traced import Traced


def rollup(
    task: str = "work",
    queue: str = "default",
    outcome: str = "succeeded",
    runs: int = 1,
    bucket: int = 0,
    seconds: float = 0.0,
) -> Rollup:
    buckets = [0] * (len(BOUNDS) + 1)
    buckets[bucket] = runs
    found = Histogram(tuple(buckets), seconds)
    return Rollup(queue, task, outcome, runs, found, found)


def settle(store: JobStore) -> None:
    grants = store.claim("w", ["default"], 5000)
    store.settle([Ending(grant.id, grant.token, Success(), grant.seq) for grant in grants])


# --- what is added up -----------------------------------------------------------------------------------------------


def test_what_several_workers_add_is_the_sum(store, backend, clock):
    other = backend.open(clock)
    store.add_rollups([rollup(runs=3, bucket=2, seconds=0.25), rollup(outcome="failed")])
    other.add_rollups([rollup(runs=2, bucket=12, seconds=20000.0)])
    store.add_rollups([rollup(runs=1, bucket=2, seconds=0.5)])
    failed, succeeded = store.totals()
    assert (failed.outcome, failed.attempts) == ("failed", 1)
    assert succeeded.attempts == 6
    assert succeeded.wait.buckets == succeeded.duration.buckets == (0, 0, 4, *[0] * 9, 2)
    assert succeeded.wait.seconds == succeeded.duration.seconds == 20000.75
    assert succeeded.wait.count == 6
    assert succeeded.minute is None


def test_nothing_is_written_for_nothing(store, backend):
    with Traced(store) as calls:
        store.add_rollups([])
    assert calls == []


def test_minutes_are_those_of_the_databases_clock_and_go_while_totals_stay(store, clock):
    began = clock.now()
    for _ in range(3):
        store.add_rollups([rollup(), rollup(task="mail", queue="slow")])
        clock.advance(40)
    minutes = store.list_rollups(3600)
    assert [(one.minute - began).total_seconds() for one in minutes if one.task == "work"] == [0.0, 60.0]
    assert [one.attempts for one in minutes if one.task == "work"] == [2, 1]
    assert {one.task for one in store.list_rollups(3600, queue="slow")} == {"mail"}
    assert {one.queue for one in store.list_rollups(3600, task="work")} == {"default"}
    assert [one.attempts for one in store.list_rollups(65, task="work")] == [1]
    store.prune_rollups()
    assert len(store.list_rollups(3600)) == 4
    before = store.totals()
    clock.advance(48 * 3600)
    store.prune_rollups()
    assert store.list_rollups(1e6) == []
    assert store.totals() == before
    assert [one.attempts for one in before] == [3, 3]


@pytest.mark.parametrize("many", ["tasks", "queues"])
def test_beyond_a_number_of_pairs_the_rest_is_one_and_nothing_is_lost(store, backend, clock, many):
    names = {"tasks": lambda n: ("default", f"k{n}"), "queues": lambda n: (f"q{n}", "work")}[many]
    stores = itertools.cycle([store, backend.open(clock)])
    for first in range(0, 400, 100):
        some = [
            rollup(queue=queue, task=task) for queue, task in (names(n) for n in range(first, first + 100))
        ]
        next(stores).add_rollups(some)
    totals = store.totals()
    pairs = {(one.queue, one.task) for one in totals}
    assert len(pairs) <= MOST_PAIRS
    assert sum(one.attempts for one in totals) == 400
    assert (("default", OTHER) if many == "tasks" else (OTHER, OTHER)) in pairs
    # Whoever was told apart stays so.
    store.add_rollups([rollup(*reversed(names(0))), rollup(*reversed(names(399)))])
    assert {(one.queue, one.task) for one in store.totals()} == pairs
    assert [one.attempts for one in store.totals() if (one.queue, one.task) == names(0)] == [2]


def test_workers_that_bring_new_pairs_at_the_same_time_keep_to_the_number(store, backend, clock):
    told_apart = MOST_PAIRS - SPARE
    store.add_rollups([rollup(task=f"k{n}") for n in range(told_apart - 5)])
    stores = [backend.open(clock) for _ in range(4)]
    start = threading.Barrier(len(stores))

    def add(number: int, own: JobStore) -> None:
        own.totals()  # it has its connection
        start.wait()
        own.add_rollups([rollup(task=f"k{number}-{n}") for n in range(5)])

    threads = [threading.Thread(target=add, args=one) for one in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    totals = store.totals()
    assert len({(one.queue, one.task) for one in totals}) == told_apart + 1
    assert {one.task: one.attempts for one in totals}[OTHER] == 15


class _Trouble:
    """A database whose transactions fail: before they have begun, or after their commit."""

    def __init__(self, real: Any, committed: bool) -> None:
        self._real, self._committed = real, committed

    def transact(self, work: Callable[[Any], Any], *, idempotent: bool = False) -> Any:
        if self._committed:
            self._real.transact(work)
        raise DatabaseUnreachable("it", "gone")


@pytest.mark.parametrize("committed", [False, True])
def test_it_raises_only_if_nothing_was_written(store, committed):
    real, store._database = store._database, _Trouble(store._database, committed)
    if committed:
        store.add_rollups([rollup()])
    else:
        with pytest.raises(DatabaseUnreachable):
            store.add_rollups([rollup()])
    store._database = real
    assert sum(one.attempts for one in store.totals()) == committed


# --- what a grant knows of its wait ---------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", [None, "l"])
def test_a_grant_tells_how_long_its_job_was_due(store, clock, lane):
    put(store, lane=lane)
    clock.advance(5)
    (grant,) = store.claim("w", ["default"], 10)
    assert grant.waited == 5
    store.settle([Ending(grant.id, grant.token, Failure("no"))])
    due = store.get(grant.id).available_at
    clock.advance(600)
    (grant,) = store.claim("w", ["default"], 10, idle=True)
    assert grant.waited == pytest.approx((clock.now() - due).total_seconds())


def test_the_wait_of_a_delayed_or_released_job_begins_when_it_is_due(store, clock):
    put(store, delay=60.0)
    held = put(store, hold=True, task="held")
    clock.advance(90)
    store.release(held.id)
    clock.advance(10)
    grants = {grant.task: grant.waited for grant in store.claim("w", ["default"], 10)}
    assert grants == {"work": 40, "held": 10}


def test_a_job_that_is_claimed_by_its_id_or_at_once_tells_its_wait_too(store, clock):
    job = put(store)
    clock.advance(7)
    assert store.claim_by_id(job.id, "w").waited == 7
    assert store.run_now(new_job(), "w", 5).waited == 0


# --- the moment -----------------------------------------------------------------------------------------------------


def test_the_oldest_that_is_due_counts_and_not_what_is_not(store, clock):
    put(store, queue="later", delay=3600.0)
    put(store, priority=5)
    clock.advance(10)
    put(store, queue="lanes", lane="l")
    clock.advance(20)
    put(store, priority=9)
    clock.advance(30)
    found = {age.queue: age.seconds for age in store.gauges().ready}
    assert found == {"default": 60, "lanes": 50}
    settle(store)
    assert {age.queue for age in store.gauges().ready} == {"lanes"}


def test_leases_tell_their_age_and_their_end(store, clock):
    assert store.gauges().leases == []
    put(store, lease_seconds=30.0)
    store.claim("w", ["default"], 1)
    clock.advance(10)
    put(store, lease_seconds=60.0)
    put(store, task="mail", lease_seconds=60.0)
    store.claim("w", ["default"], 2)
    clock.advance(25)
    found = {age.task: (age.oldest, age.expires_in) for age in store.gauges().leases}
    assert found == {"work": (35, -5), "mail": (25, 35)}


def test_slots_and_open_questions_are_told(store, clock):
    store.set_slot("gpu", 3)
    put(store, slots=(("gpu", 2),))
    put(store)
    grants = store.claim("w", ["default"], 2)
    questions_box = next(grant for grant in grants if grant.special == 0)
    store.settle([Ending(questions_box.id, questions_box.token, QuestionAsked("go", "May I?"))])
    gauges = store.gauges()
    assert [(slot.name, slot.used, slot.limit) for slot in gauges.slots] == [("gpu", 2, 3)]
    assert gauges.open_questions == 1


def test_a_look_takes_as_many_statements_however_many_jobs_have_ended(store, clock):
    def look() -> Counter[str]:
        with Traced(store) as calls:
            store.totals()
            store.gauges()
            store.count_by_queue()
            store.list_workers()
        return Counter(call.statement for call in calls)

    few = look()
    store.enqueue([new_job(policy=Policy(max_attempts=1)) for _ in range(1000)])
    for n in range(20):
        store.set_slot(f"slot {n}", 1)
    settle(store)
    assert look() == few
    assert sum(few.values()) <= 8
