"""Slots and rates: counted across all workers from rows, changed at run time, never passed."""

from __future__ import annotations

import itertools
import random
import threading
import time
from datetime import timedelta

import pytest

from leasehold.domain.errors import InvalidInput, LeaseLost
from leasehold.domain.job import Grant
from leasehold.domain.limits import DefaultLimit
from leasehold.domain.outcome import Detached, Failure, HandedBack, Snoozed, Stopped, Success
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import State
from leasehold.stores.results import Ending
from tests.backends import new_job, put
from tests.contract.lives import OWNER, claim_ids, claim_one, denied, end, granted, lose, run, sight

B1 = (("browser", 1),)


def used(store, name: str = "browser") -> int:
    (row,) = [row for row in store.list_slots() if row.name == name]
    return row.used


def put_many(store, count: int, **fields) -> list[str]:
    return [made.id for made in store.enqueue([new_job(**fields) for _ in range(count)])]


# -- slots: the claim -----------------------------------------------------------------------------------------------


def test_no_more_jobs_start_than_a_slot_has_units(store):
    store.set_slot("browser", 2)
    put_many(store, 5, slots=B1)
    assert len(claim_ids(store)) == 2
    assert claim_ids(store) == []
    assert used(store) == 2


def test_units_are_counted_across_workers(store, clock, backend):
    store.set_slot("browser", 3)
    put_many(store, 6, slots=B1)
    other = backend.open(clock)
    assert len(claim_ids(store, 2)) == 2
    assert len(claim_ids(other, 5, "worker-2")) == 1
    assert claim_ids(store) == claim_ids(other) == []


def test_a_job_may_need_several_units_of_several_slots(store):
    store.set_slot("browser", 4)
    store.set_slot("cpu", 3)
    both = put_many(store, 4, slots=(("browser", 1), ("cpu", 2)))
    assert claim_ids(store) == both[:1]
    assert (used(store, "browser"), used(store, "cpu")) == (1, 2)
    two = put_many(store, 4, task="wide", slots=(("browser", 2),))
    assert claim_ids(store) == two[:1]
    assert used(store, "browser") == 3


def test_gates_that_share_a_slot_share_its_units(store):
    store.set_slot("browser", 3)
    put_many(store, 3, task="a", slots=B1)
    put_many(store, 3, task="b", slots=B1, queue="q")
    assert len(claim_ids(store, 2)) == 2
    assert len(claim_ids(store, 5, queue="q")) == 1
    assert claim_ids(store) == []


@pytest.mark.parametrize(
    "outcome",
    [
        Success("1"),
        Failure("x", final=True),
        Failure("x"),
        Snoozed(60),
        HandedBack(),
        Stopped(),
        QuestionAsked("q", "?"),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_every_ending_frees_the_units_and_says_so(store, outcome):
    store.set_slot("browser", 1)
    put_many(store, 2, slots=B1)
    grant = claim_one(store)
    assert claim_ids(store) == []
    settled = store.settle([Ending(grant.id, grant.token, outcome)])
    assert settled.accepted == [grant.id]
    assert settled.freed
    assert used(store) == 0
    assert len(claim_ids(store)) == 1


def test_a_plain_success_frees_nothing_for_others(store):
    put(store)
    grant = claim_one(store)
    assert not store.settle([Ending(grant.id, grant.token, Success())]).freed


def test_a_lost_lease_frees_its_units_only_when_it_is_reaped(store, clock):
    store.set_slot("browser", 1)
    put_many(store, 2, slots=B1)
    grant = claim_one(store)
    seen = sight(store, clock, grant.id)
    assert claim_ids(store) == []
    assert used(store) == 1
    store.reap([seen])
    assert used(store) == 0
    assert len(claim_ids(store, worker="worker-2")) == 1


def test_an_orphan_keeps_its_units(store, clock):
    store.set_slot("browser", 1)
    first = run(store, slots=B1)
    assert store.record_site(first.id, first.token, "machine-1", "run-1")
    assert store.mark_started(first.id, first.token)
    assert end(store, first, Detached("drained")).orphan
    put(store, slots=B1)
    assert used(store) == 1
    assert claim_ids(store) == []
    (adopted,) = store.adopt("worker-2", ["machine-1"])
    assert used(store) == 1
    end(store, adopted, Success())
    assert len(claim_ids(store)) == 1


def test_a_limit_is_changed_at_run_time(store):
    store.set_slot("browser", 1)
    put_many(store, 6, slots=B1)
    assert len(claim_ids(store)) == 1
    store.set_slot("browser", 4)
    assert len(claim_ids(store)) == 3
    store.set_slot("browser", 2)
    assert used(store) == 4
    assert claim_ids(store) == []


def test_a_limit_of_zero_closes_a_slot_and_jobs_may_wait_for_it(store):
    store.set_slot("browser", 0)
    job = put(store, slots=B1)
    assert claim_ids(store) == []
    store.set_slot("browser", 1)
    assert claim_ids(store) == [job.id]


def test_plain_work_passes_what_waits_for_a_full_slot(store):
    store.set_slot("browser", 0)
    put_many(store, 3, slots=B1, priority=50)
    plain = put(store)
    assert claim_ids(store) == [plain.id]


def test_priority_rules_between_limited_and_plain_jobs(store):
    store.set_slot("browser", 5)
    low = put(store, slots=B1, priority=-1)
    plain = put(store)
    high = put(store, slots=B1, priority=1)
    assert claim_ids(store) == [high.id, plain.id, low.id]


def test_of_one_priority_the_older_goes_first_whatever_it_needs(store, clock):
    store.set_slot("browser", 5)
    older = put(store, slots=B1)
    clock.advance(1)
    plain = put(store)
    clock.advance(1)
    put(store, slots=B1, task="other")
    assert claim_ids(store, 1) == [older.id]
    assert claim_ids(store, 1) == [plain.id]


def test_paused_kinds_and_queues_stay_paused_behind_limits(store):
    store.set_slot("browser", 5)
    put(store, slots=B1)
    store.pause_scope("task", "work")
    assert claim_ids(store) == []
    store.resume_scope("task", "work")
    store.pause_scope("queue", "default")
    assert claim_ids(store) == []
    store.resume_scope("queue", "default")
    assert len(claim_ids(store)) == 1


# -- slots and lanes --------------------------------------------------------------------------------------------------


def test_lanes_and_slots_hold_together(store):
    store.set_slot("browser", 2)
    first = [put(store, slots=B1, lane=f"lane-{n}") for n in range(3)]
    second = [put(store, slots=B1, lane=f"lane-{n}") for n in range(3)]
    taken = claim_ids(store)
    assert taken == [first[0].id, first[1].id]
    end(store, granted_as(store, taken[0]), Success())
    assert claim_ids(store) == [first[2].id]
    end(store, granted_as(store, taken[1]), Success())
    assert claim_ids(store) == [second[0].id]


def test_a_lane_head_behind_a_full_slot_holds_its_lane_and_wakes_with_the_slot(store):
    store.set_slot("browser", 1)
    holder = run(store, slots=B1)
    head = put(store, lane="l", slots=B1, task="limited")
    behind = put(store, lane="l", task="plain")
    for _ in range(3):
        assert claim_ids(store) == []
    end(store, holder, Success())
    assert claim_ids(store) == [head.id]
    end(store, granted_as(store, head.id), Success())
    assert claim_ids(store) == [behind.id]


def test_a_lane_goes_from_a_plain_job_to_a_limited_one_and_back(store):
    store.set_slot("browser", 1)
    jobs = [
        put(store, lane="l"),
        put(store, lane="l", slots=B1),
        put(store, lane="l", task="other"),
        put(store, lane="l", slots=B1, priority=5),
    ]
    for job in jobs:
        assert claim_ids(store) == [job.id]
        end(store, granted_as(store, job.id), Success())


def granted_as(store, job_id: str):
    (grant,) = [grant for grant in store.find_leases_of(OWNER) if grant.id == job_id]
    return grant


# -- rates: the claim -------------------------------------------------------------------------------------------------


def test_a_rate_lets_jobs_start_evenly(store, clock):
    store.set_rate("api", "60/min", 1.0, 1)
    put_many(store, 5, rate="api")
    assert len(claim_ids(store)) == 1
    clock.advance(0.999)
    assert claim_ids(store) == []
    clock.advance(0.001)
    assert len(claim_ids(store)) == 1


@pytest.mark.parametrize("lane", [None, "target"])
def test_a_job_with_a_rate_alone_is_retried_as_often_as_any(store, clock, lane):
    """It took a place among those that hold slots, kept it past its run, and its second run stopped every claim."""
    store.set_rate("api", "600/min", 0.1, 5)
    job = put(store, rate="api", lane=lane).id
    for attempt in (1, 2):
        grant = claim_one(store)
        assert (grant.id, grant.attempt) == (job, attempt)
        end(store, grant, Failure("ConnectionError: 503"))
        clock.advance(3600)
    grant = claim_one(store)
    assert grant.attempt == 3
    end(store, grant, Success(None))
    assert store.get(job).state is State.SUCCEEDED


def test_a_burst_is_used_at_once_and_comes_back_one_by_one(store, clock):
    store.set_rate("api", "60/min", 1.0, 3)
    put_many(store, 20, rate="api")
    assert len(claim_ids(store)) == 3
    clock.advance(1)
    assert len(claim_ids(store)) == 1
    clock.advance(60)
    assert len(claim_ids(store)) == 3, "silence saves up no more than the burst"


def test_jobs_of_several_kinds_share_a_rate(store, clock):
    store.set_rate("api", "60/min", 1.0, 2)
    put_many(store, 3, task="a", rate="api")
    put_many(store, 3, task="b", rate="api")
    assert len(claim_ids(store)) == 2
    clock.advance(1)
    assert len(claim_ids(store)) == 1


@pytest.mark.parametrize("spacing", [1 / 3, 0.1, 1 / 7, 2.5])
@pytest.mark.parametrize("burst", [1, 4])
def test_no_window_sees_more_starts_than_the_rate_and_its_burst(store, clock, spacing, burst):
    store.set_rate("api", "x", spacing, burst)
    put_many(store, 60, rate="api")
    starts = []
    step = itertools.cycle([0.0, 0.05, 0.4, 0.013, 3.0, 0.7])
    while len(starts) < 60:
        starts += [clock.now()] * len(claim_ids(store, 7))
        clock.advance(next(step))
    for first, last in itertools.combinations(range(60), 2):
        window = (starts[last] - starts[first]).total_seconds()
        assert last - first + 1 <= window / spacing + burst + 1e-4


def test_a_closed_key_starts_nothing_until_it_opens_by_itself(store, clock):
    store.set_rate("api", "60/min", 1.0, 2)
    job = put(store, rate="api")
    store.close_rate("api", "ops", "429", for_=120.0)
    (row,) = store.list_rates()
    assert (row.closed, row.closed_by, row.closed_reason) == (True, "ops", "429")
    assert row.closed_until == clock.now() + timedelta(seconds=120)
    assert row.next_in == 120
    clock.advance(119)
    assert claim_ids(store) == []
    clock.advance(1)
    assert claim_ids(store) == [job.id]
    assert not store.list_rates()[0].closed


def test_a_key_without_an_end_is_closed_until_somebody_opens_it(store, clock, backend):
    store.set_rate("api", "60/min", 1.0, 2)
    job = put(store, rate="api")
    other = backend.open(clock)
    other.close_rate("api")
    clock.advance(1e6)
    assert claim_ids(store) == []
    assert store.list_rates()[0].next_in is None
    assert other.open_rate("api")
    assert not other.open_rate("api")
    assert claim_ids(store) == [job.id]


def test_a_key_that_does_not_exist_cannot_be_closed_or_opened(store):
    for verb in (store.close_rate, store.open_rate):
        with pytest.raises(InvalidInput, match=r"app\.rates\.set\('api'"):
            verb("api")


def test_a_new_rate_counts_at_once(store, clock):
    store.set_rate("api", "1/h", 3600.0, 1)
    put_many(store, 5, rate="api")
    assert len(claim_ids(store)) == 1
    store.set_rate("api", "1/s", 1.0, 1)
    clock.advance(1)
    assert len(claim_ids(store)) == 1


def test_a_slot_and_a_rate_must_both_admit(store, clock):
    store.set_slot("browser", 1)
    store.set_rate("api", "1/s", 1.0, 5)
    put_many(store, 5, slots=B1, rate="api")
    grant = claim_one(store)
    clock.advance(10)
    assert claim_ids(store) == []
    end(store, grant, Success())
    assert len(claim_ids(store)) == 1


def test_a_rate_holds_for_lane_heads_too(store, clock):
    store.set_rate("api", "1/s", 1.0, 1)
    jobs = [put(store, rate="api", lane=f"lane-{n}") for n in range(3)]
    assert claim_ids(store) == [jobs[0].id]
    assert claim_ids(store) == []
    clock.advance(1)
    assert claim_ids(store) == [jobs[1].id]


# -- when it opens ----------------------------------------------------------------------------------------------------


def test_the_store_remembers_when_a_rate_opens(store, clock):
    assert store.opens_in(["default"]) is None
    store.set_rate("api", "1/2s", 2.0, 1)
    put_many(store, 3, rate="api")
    claim_ids(store, tasks=["work"])
    assert store.opens_in(["default"], ["work"]) == pytest.approx(2.0)
    assert store.opens_in(["other"], ["work"]) is None
    clock.advance(0.5)
    assert claim_ids(store, tasks=["work"]) == []
    assert store.opens_in(["default", "q"], ["work", "more"]) == pytest.approx(1.5)
    clock.advance(2)
    assert store.opens_in(["default"], ["work"]) == 0.0
    assert store.opens_in(["default"], ["work"]) is None, "told once, so that nobody goes round in circles"


def test_a_closed_key_with_an_end_is_remembered_and_one_without_is_not(store):
    store.set_rate("api", "1/s", 1.0, 1)
    put(store, rate="api")
    store.close_rate("api", for_=90.0)
    claim_ids(store)
    assert store.opens_in(["default"]) == pytest.approx(90)
    store.close_rate("api")
    claim_ids(store)
    assert store.opens_in(["default"]) is None


def test_a_rate_is_not_waited_for_while_a_slot_is_full(store):
    store.set_slot("browser", 1)
    store.set_rate("api", "1/s", 1.0, 1)
    put_many(store, 2, slots=B1, rate="api")
    claim_ids(store)
    assert store.opens_in(["default"]) is None


# -- enqueue ----------------------------------------------------------------------------------------------------------


def test_unknown_names_are_refused_at_enqueue_with_the_remedy(store):
    with pytest.raises(InvalidInput, match=r"slots: no slot is called 'browser'.*app\.slots\.set\('browser'"):
        put(store, slots=B1)
    with pytest.raises(InvalidInput, match=r"rate: no rate has the key 'api'.*app\.rates\.set\('api'"):
        put(store, rate="api")
    assert store.list_jobs().jobs == []
    store.set_slot("browser", 1)
    put(store, slots=B1)


def test_more_units_than_there_can_be_are_refused_at_enqueue(store):
    store.set_slot("browser", 2)
    with pytest.raises(InvalidInput, match=r"3 units of 'browser' can never be free"):
        put(store, slots=(("browser", 3),))
    store.set_slot("browser", 3)
    put(store, slots=(("browser", 3),))


def test_a_task_may_bring_its_limits_along_and_an_operators_own_stay(store):
    store.set_slot("gpu", 7)
    limits = (
        DefaultLimit("browser", 4),
        DefaultLimit("gpu", 1),
        DefaultLimit("api", text="60/min", spacing=1.0, burst=2),
    )
    put(store, slots=(("browser", 1), ("gpu", 1)), rate="api", limits=limits)
    assert {row.name: row.limit for row in store.list_slots()} == {"browser": 4, "gpu": 7}
    assert [(row.key, row.limit, row.burst) for row in store.list_rates()] == [("api", "60/min", 2)]
    store.set_slot("browser", 1)
    put(store, task="other", slots=(("browser", 1), ("gpu", 1)), rate="api", limits=limits)
    assert {row.name: row.limit for row in store.list_slots()} == {"browser": 1, "gpu": 7}


def test_a_name_is_a_slot_or_a_rate_not_both(store):
    store.set_slot("one", 1)
    store.set_rate("two", "1/s", 1.0, 1)
    with pytest.raises(InvalidInput, match="'one' is a slot already"):
        store.set_rate("one", "1/s", 1.0, 1)
    with pytest.raises(InvalidInput, match="'two' is a rate already"):
        store.set_slot("two", 1)
    with pytest.raises(InvalidInput, match="'two' is a rate already"):
        put(store, slots=(("two", 1),), limits=(DefaultLimit("two", 4),))


def test_a_follow_up_that_takes_a_rate_for_a_slot_does_not_undo_the_success(store):
    store.set_rate("two", "1/s", 1.0, 1)
    parent = run(store)
    bad = new_job(task="next", slots=(("two", 1),), limits=(DefaultLimit("two", 4),))
    assert end(store, parent, Success("1", follow_ups=(bad,))).state is State.SUCCEEDED
    (entry,) = [entry for entry in store.history(parent.id) if entry.event == "follow_up_refused"]
    assert "'two' is a rate already" in entry.detail


def test_a_retry_needs_what_the_first_one_needed(store):
    store.set_slot("browser", 1)
    store.set_rate("api", "1/s", 1.0, 5)
    job = end(store, run(store, slots=B1, rate="api"), Failure("x", final=True))
    again = store.retry(job.id, new_job().id)
    assert (again.gate, again.limited) == (job.gate, True)


def test_a_follow_up_that_names_no_limit_is_left_out_and_the_success_stays(store):
    store.set_slot("browser", 1)
    parent = run(store)
    good, bad = new_job(task="next", slots=B1), new_job(task="next", slots=(("nowhere", 1),))
    assert end(store, parent, Success("1", follow_ups=(good, bad))).state is State.SUCCEEDED
    assert [job.id for job in store.list_jobs().jobs] == [good.id, parent.id]
    (entry,) = [entry for entry in store.history(parent.id) if entry.event == "follow_up_refused"]
    assert "no slot is called 'nowhere'" in entry.detail
    with pytest.raises(InvalidInput, match="nowhere"):
        put(store, task="next", slots=(("nowhere", 1),))


# -- claim by id ------------------------------------------------------------------------------------------------------


def test_a_claim_by_id_passes_no_limit(store, clock):
    store.set_slot("browser", 1)
    first, second = (put(store, slots=B1) for _ in range(2))
    grant = granted(store.claim_by_id(first.id, OWNER))
    assert (
        "1 of slot 'browser', of which 1 of 1 are in use" in denied(store.claim_by_id(second.id, OWNER)).why
    )
    end(store, grant, Success())
    assert granted(store.claim_by_id(second.id, OWNER)).attempt == 1


def test_a_claim_by_id_takes_a_token(store, clock):
    store.set_rate("api", "1/s", 1.0, 1)
    first, second = (put(store, rate="api") for _ in range(2))
    granted(store.claim_by_id(first.id, OWNER))
    assert "in 1.000 s" in denied(store.claim_by_id(second.id, OWNER)).why
    clock.advance(1)
    store.close_rate("api")
    assert "is closed until it is opened" in denied(store.claim_by_id(second.id, OWNER)).why
    store.open_rate("api")
    granted(store.claim_by_id(second.id, OWNER))
    assert claim_ids(store) == []


def test_a_claim_by_id_that_steals_reuses_the_units_of_the_lost_run(store, clock):
    store.set_slot("browser", 1)
    grant = run(store, slots=B1)
    seen = sight(store, clock, grant.id)
    assert granted(store.claim_by_id(grant.id, "worker-2", sighting=seen)).attempt == 2
    assert used(store) == 1


# -- inside a run -----------------------------------------------------------------------------------------------------


def test_a_run_acquires_units_and_keeps_them_until_it_ends(store):
    store.set_slot("browser", 2)
    one, two = run(store), run(store)
    assert store.acquire(one.id, one.token, "browser").granted
    assert store.acquire(one.id, one.token, "browser").granted
    assert used(store) == 2
    assert not store.acquire(two.id, two.token, "browser").granted
    put(store, slots=B1)
    assert claim_ids(store) == []
    end(store, one, Success())
    assert used(store) == 0
    assert store.acquire(two.id, two.token, "browser").granted
    assert len(claim_ids(store)) == 1
    assert used(store) == 2


def test_units_may_be_given_back_early(store):
    store.set_slot("browser", 1)
    one = run(store)
    assert store.acquire(one.id, one.token, "browser").granted
    assert store.release_slot(one.id, one.attempt, "browser") == 1
    assert store.release_slot(one.id, one.attempt, "browser") == 0
    assert used(store) == 0


def test_a_new_attempt_does_not_inherit_the_units_of_the_last(store, clock, backend):
    store.set_slot("browser", 1)
    grant = run(store)
    assert store.acquire(grant.id, grant.token, "browser").granted
    lose(store, clock, grant)
    again = claim_one(store)
    assert used(store) == 0
    assert store.acquire(again.id, again.token, "browser").granted
    rows = backend.query("SELECT attempt FROM leasehold.slot_hold")
    assert rows == [(2,)], "what the lost attempt left was swept"


def test_an_orphan_keeps_what_its_run_acquired(store):
    store.set_slot("browser", 1)
    grant = run(store)
    assert store.acquire(grant.id, grant.token, "browser").granted
    assert store.record_site(grant.id, grant.token, "machine-1", "run-1")
    assert store.mark_started(grant.id, grant.token)
    assert end(store, grant, Detached("drained")).orphan
    assert used(store) == 1
    other = run(store)
    assert not store.acquire(other.id, other.token, "browser").granted
    assert used(store) == 1


def test_a_run_that_lost_its_lease_acquires_nothing(store, clock):
    store.set_slot("browser", 1)
    grant = run(store)
    lose(store, clock, grant)
    with pytest.raises(LeaseLost):
        store.acquire(grant.id, grant.token, "browser")
    assert used(store) == 0


def test_a_rate_inside_a_run_and_at_the_claim_is_one(store, clock):
    store.set_rate("api", "1/s", 1.0, 2)
    grant = run(store)
    put_many(store, 2, task="limited", rate="api")
    assert len(claim_ids(store, 1)) == 1
    assert store.acquire(grant.id, grant.token, "api").granted
    answer = store.acquire(grant.id, grant.token, "api")
    assert (answer.granted, answer.wait) == (False, pytest.approx(1.0))
    assert claim_ids(store) == []
    store.close_rate("api", for_=5.0)
    clock.advance(1)
    assert store.acquire(grant.id, grant.token, "api").wait == pytest.approx(4.0)
    clock.advance(4)
    assert store.acquire(grant.id, grant.token, "api", 2).granted


def test_what_can_never_be_had_is_refused(store):
    store.set_slot("browser", 1)
    store.set_rate("api", "1/s", 1.0, 2)
    grant = run(store)
    for name, units, problem in [
        ("nowhere", 1, "no slot and no rate is called"),
        ("browser", 2, "can never be free"),
        ("api", 3, "more than the burst of 2"),
    ]:
        with pytest.raises(InvalidInput, match=problem):
            store.acquire(grant.id, grant.token, name, units)


def test_a_run_brings_the_limit_of_a_rate_that_nobody_has_set(store, clock):
    grant = run(store)
    brought = DefaultLimit("example.org", text="1/s", spacing=1.0, burst=2)
    answers = [store.acquire(grant.id, grant.token, "example.org", 1, brought) for _ in range(3)]
    assert [answer.granted for answer in answers] == [True, True, False]
    assert answers[2].wait == pytest.approx(1.0)
    (rate,) = store.list_rates()
    assert (rate.key, rate.limit, rate.burst) == ("example.org", "1/s", 2)


def test_a_limit_that_is_set_wins_over_the_one_that_a_run_brings(store):
    store.set_rate("example.org", "1/min", 60.0, 1)
    store.set_slot("browser", 1)
    grant = run(store)
    brought = DefaultLimit("example.org", text="1000/s", spacing=0.001, burst=9)
    assert store.acquire(grant.id, grant.token, "example.org", 1, brought).granted
    assert store.acquire(grant.id, grant.token, "example.org", 1, brought).wait == pytest.approx(60.0, abs=1)
    (rate,) = store.list_rates()
    assert (rate.limit, rate.burst) == ("1/min", 1)
    with pytest.raises(InvalidInput, match="'browser' is a slot already"):
        store.acquire(grant.id, grant.token, "browser", 1, DefaultLimit("browser", text="1/s", spacing=1.0))


def test_runs_that_bring_the_same_rate_at_once_share_it(store, clock, backend):
    """The row is made once, and every token of it is taken once."""
    grants = [run(store) for _ in range(4)]
    brought = DefaultLimit("example.org", text="1/h", spacing=3600.0, burst=3)
    stores = [backend.open(clock) for _ in grants]
    together = threading.Barrier(len(grants))
    granted_to: list[bool] = []

    def take(own, grant: Grant) -> None:
        together.wait()
        granted_to.append(own.acquire(grant.id, grant.token, "example.org", 1, brought).granted)

    threads = [threading.Thread(target=take, args=pair) for pair in zip(stores, grants, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(granted_to) == [False, True, True, True]


def test_pruning_takes_the_holds_of_a_job_along(store, clock, backend):
    store.set_slot("browser", 1)
    grant = run(store)
    assert store.acquire(grant.id, grant.token, "browser").granted
    end(store, grant, Success())
    clock.advance(10 * 86_400)
    assert store.prune(86_400).deleted == 1
    assert backend.query("SELECT count(*) FROM leasehold.slot_hold") == [(0,)]


# -- races ------------------------------------------------------------------------------------------------------------


def test_whoever_races_for_the_last_units_none_is_taken_twice(backend):
    """Claims, claims by id and acquires of six threads, each with a store of its own, by the database's own clock."""
    store, limit, jobs = backend.open(), 3, 180
    store.set_slot("browser", limit)
    ids = put_many(store, jobs, slots=B1)
    seen, errors = [0], []

    def look(own) -> None:
        """The first holders wait for each other: then the slot was full once, however slow the machine is."""
        deadline = time.monotonic() + 20
        seen.append(used(own))
        while max(seen) < limit and time.monotonic() < deadline:
            seen.append(used(own))

    def by_claim(own, worker: str) -> None:
        grants = own.claim(worker, ["default"], 2)
        seen.append(used(own))
        if grants:
            look(own)
        for grant in grants:
            end(own, grant, Success())

    def by_id(own, worker: str) -> None:
        grant = own.claim_by_id(random.choice(ids), worker)
        if isinstance(grant, Grant):
            look(own)
            end(own, grant, Success())

    def by_acquire(own, worker: str) -> None:
        grant = granted(own.claim_by_id(put(own, task="plain", queue="elsewhere").id, worker))
        if own.acquire(grant.id, grant.token, "browser", 2).granted:
            look(own)
        end(own, grant, Success())

    def race(number: int) -> None:
        own, worker = backend.open(), f"worker-{number}"
        act = (by_claim, by_id, by_acquire)[number % 3]
        try:
            while own.count()[State.SUCCEEDED] < jobs and own.count()[State.QUEUED]:
                act(own, worker)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert max(seen) == limit
    assert used(store) == 0


# -- inspect ----------------------------------------------------------------------------------------------------------


def test_a_slot_tells_who_holds_it(store, clock):
    store.set_slot("browser", 4)
    by_gate = run(store, slots=(("browser", 2),), task="wide")
    clock.advance(1)
    inside = run(store, worker="worker-2")
    assert store.acquire(inside.id, inside.token, "browser").granted
    (row,) = store.list_slots()
    assert (row.name, row.limit, row.used) == ("browser", 4, 3)
    assert [(h.job_id, h.units, h.task, h.worker) for h in row.holders] == [
        (by_gate.id, 2, "wide", OWNER),
        (inside.id, 1, "work", "worker-2"),
    ]


def test_the_limits_of_a_gate_tell_what_stands_in_its_way(store):
    store.set_slot("browser", 2)
    store.set_rate("api", "60/min", 1.0, 1)
    holder = run(store, slots=(("browser", 2),), task="wide")
    waiting = put(store, slots=B1, rate="api")
    store.close_rate("api", "ops", "429", for_=60.0)
    limits = store.limits_of(waiting.gate)
    (slot,) = limits.slots
    assert (slot.name, slot.need, slot.limit, slot.used, slot.full) == ("browser", 1, 2, 2, True)
    assert [h.job_id for h in slot.holders] == [holder.id]
    assert limits.rate is not None
    assert (limits.rate.key, limits.rate.closed_by, limits.rate.next_in) == ("api", "ops", 60)
    plain = store.limits_of(put(store).gate)
    assert (plain.slots, plain.rate) == ([], None)
