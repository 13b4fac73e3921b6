"""Enqueue: durable, all or none, harmless when repeated; a held unique key leads to its holder."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from leasehold.domain.errors import DuplicateJob
from leasehold.domain.job import Enqueued
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.policy import Policy
from leasehold.domain.records import Filter
from leasehold.domain.states import HOLDS_UNIQUE_KEY, State
from leasehold.testing import START
from tests.backends import new_id, new_job, put
from tests.contract.lives import claim_ids, claim_one, end, in_state, run

# -- the row -----------------------------------------------------------------------------------------------------------


def test_a_new_job_is_what_was_asked_for(store, clock):
    job = put(
        store,
        task="mail",
        args='{"to":  "ä"}',
        queue="slow",
        priority=-7,
        lane="l",
        unique_key="u",
        unique_for="ever",
        lease_seconds=12.5,
        policy=Policy(max_attempts=9),
        group="g",
        tags=("b", "a"),
        deadline=600.0,
        start_by=60.0,
        trace="00-1",
    )
    assert (job.task, job.args, job.queue, job.priority) == ("mail", '{"to":  "ä"}', "slow", -7)
    assert (job.lane, job.unique_key, job.unique_for) == ("l", "u", "ever")
    assert (job.lease_seconds, job.policy, job.trace) == (12.5, Policy(max_attempts=9), "00-1")
    assert (job.group, job.tags) == ("g", ("b", "a"))
    assert job.created_at == job.available_at == job.lane_at == clock.now()
    assert job.deadline_at == clock.now() + timedelta(seconds=600)
    assert job.start_by == clock.now() + timedelta(seconds=60)


def test_a_new_job_has_no_past(store):
    job = put(store)
    assert job.state is State.QUEUED
    assert (job.attempt, job.failures, job.crashes, job.lease_token) == (0, 0, 0, 0)
    nothing = (
        job.reason,
        job.lane,
        job.lane_at,
        job.worker,
        job.lease_expires_at,
        job.stop_requested,
        job.execution_site,
        job.first_started_at,
        job.started_at,
        job.finished_at,
        job.settled_by,
        job.settled_token,
        job.result,
        job.error,
        job.unique_key,
        job.group,
        job.deadline_at,
        job.start_by,
        job.retry_of,
        job.trace,
    )
    assert set(nothing) == {None}
    assert (job.halts_lane, job.held, job.unmet, job.tags) == (False, False, 0, ())
    assert store.history(job.id) == []


def test_an_acknowledged_job_is_there_for_every_other_process(store, clock, backend):
    job = put(store)
    assert backend.open(clock).get(job.id) == job


def test_a_delay_counts_from_the_stores_own_now(store, clock):
    clock.advance(100)
    job = put(store, delay=1.5)
    assert job.available_at == clock.now() + timedelta(seconds=1.5)
    clock.advance(1.499999)
    assert claim_ids(store) == []
    clock.advance(0.000001)
    assert claim_ids(store) == [job.id]


def test_a_users_own_due_time_wins_over_the_delay(store, clock):
    at = clock.now() + timedelta(days=3, microseconds=7)
    assert put(store, at=at, delay=5.0).available_at == at


def test_a_due_time_in_the_past_is_kept_and_means_at_once(store, clock):
    at = START - timedelta(days=1)
    job = put(store, at=at, lane="l")
    assert (job.available_at, job.lane_at) == (at, clock.now()), "nobody is passed inside a lane"
    assert claim_ids(store) == [job.id]


def test_a_held_job_is_pending_and_is_not_claimed(store, clock):
    job = put(store, hold=True)
    assert (job.state, job.held) == (State.PENDING, True)
    clock.advance(1000)
    assert claim_ids(store) == []


# -- many --------------------------------------------------------------------------------------------------------------


def test_a_batch_is_answered_and_numbered_in_the_order_given(store):
    jobs = [new_job() for _ in range(30)]
    jobs.reverse()
    assert store.enqueue(jobs) == [Enqueued(job.id, True) for job in jobs]
    numbers = [store.get(job.id).seq for job in jobs]
    assert numbers == sorted(numbers)
    assert claim_ids(store, limit=30) == [job.id for job in jobs]


def test_a_large_batch_is_stored_whole(store):
    jobs = [new_job(lane=f"lane-{number % 7}", tags=("t",)) for number in range(2500)]
    assert len(store.enqueue(jobs)) == 2500
    assert store.count()[State.QUEUED] == 2500


def test_an_empty_batch_is_no_work(store):
    assert store.enqueue([]) == []


def test_a_batch_is_stored_wholly_or_not_at_all(store):
    put(store, unique_key="k")
    batch = [new_job(group="g", tags=("t",)), new_job(unique_key="k", on_duplicate="raise"), new_job()]
    with pytest.raises(DuplicateJob):
        store.enqueue(batch)
    assert sum(store.count().values()) == 1
    assert store.group("g") is None
    assert store.list_jobs(Filter(tag="t")).jobs == []


# -- repeated ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"lane": "l"}, {"unique_key": "u"}, {"group": "g", "tags": ("t",)}])
def test_an_enqueue_repeated_after_a_lost_reply_makes_no_second_job(store, fields):
    job = new_job(**fields)
    assert store.enqueue([job]) == [Enqueued(job.id, True)]
    before = store.get(job.id)
    assert store.enqueue([job]) == [Enqueued(job.id, False)]
    assert store.get(job.id) == before
    assert sum(store.count().values()) == 1


def test_an_enqueue_repeated_after_its_job_has_ended_makes_no_second_job(store):
    job = new_job(unique_key="u")
    store.enqueue([job])
    done = end(store, claim_one(store), Success())
    assert store.enqueue([job]) == [Enqueued(job.id, False)]
    assert store.get(job.id) == done


def test_a_batch_repeated_in_part_adds_what_is_missing(store):
    jobs = [new_job() for _ in range(4)]
    store.enqueue(jobs[:2])
    assert store.enqueue(jobs) == [Enqueued(job.id, number > 1) for number, job in enumerate(jobs)]
    assert store.count()[State.QUEUED] == 4


def test_the_same_id_twice_in_one_batch_makes_one_job(store):
    job = new_job(lane="l", group="g", tags=("t",))
    answers = store.enqueue([job, job])
    assert [answer.id for answer in answers] == [job.id, job.id]
    assert store.count()[State.QUEUED] == 1


# -- unique keys -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", State)
def test_a_unique_key_is_held_while_its_job_lives_or_is_paused(store, clock, state):
    holder = in_state(store, clock, state, unique_key="k")
    job = new_job(unique_key="k")
    (answer,) = store.enqueue([job])
    held = state in (State.PENDING, State.QUEUED, State.RUNNING, State.WAITING, State.PAUSED)
    assert held == (state in HOLDS_UNIQUE_KEY)
    assert answer == (Enqueued(holder.id, False) if held else Enqueued(job.id, True))
    assert store.get(holder.id) == holder


@pytest.mark.parametrize("state", State)
def test_a_unique_key_held_for_good_is_held_in_every_state(store, clock, state):
    holder = in_state(store, clock, state, unique_key="k", unique_for="ever")
    assert store.enqueue([new_job(unique_key="k", unique_for="ever")]) == [Enqueued(holder.id, False)]


def test_a_unique_key_belongs_to_its_kind(store):
    put(store, task="a", unique_key="k")
    (answer,) = store.enqueue([new_job(task="b", unique_key="k")])
    assert answer.created


def test_a_duplicate_is_raised_if_asked_and_names_the_holder(store):
    holder = put(store, unique_key="k")
    with pytest.raises(DuplicateJob) as refusal:
        store.enqueue([new_job(unique_key="k", on_duplicate="raise")])
    assert (refusal.value.job_id, refusal.value.unique_key, refusal.value.task) == (holder.id, "k", "work")
    assert sum(store.count().values()) == 1


@pytest.mark.parametrize("state", [State.PENDING, State.QUEUED])
def test_a_job_that_has_never_started_can_be_replaced(store, clock, state):
    old = in_state(store, clock, state, unique_key="k", lane="l")
    new = new_job(unique_key="k", on_duplicate="replace", lane="l", args='{"v": 2}')
    assert store.enqueue([new]) == [Enqueued(new.id, True)]
    replaced = store.get(old.id)
    assert (replaced.state, replaced.held) == (State.CANCELLED, False)
    assert new.id in replaced.reason
    assert claim_ids(store) == [new.id]


@pytest.mark.parametrize("state", [State.RUNNING, State.WAITING, State.PAUSED])
def test_a_job_that_has_started_is_not_replaced(store, clock, state):
    old = in_state(store, clock, state, unique_key="k")
    new = new_job(unique_key="k", on_duplicate="replace")
    assert store.enqueue([new]) == [Enqueued(old.id, False)]
    assert store.get(old.id) == old


def test_a_job_that_goes_back_to_the_queue_after_a_try_is_not_replaced(store):
    old = end(store, run(store, unique_key="k"), Failure("boom"))
    assert old.state is State.QUEUED
    assert store.enqueue([new_job(unique_key="k", on_duplicate="replace")]) == [Enqueued(old.id, False)]


def test_a_key_that_stands_twice_in_a_batch_makes_one_job(store):
    first, second = new_job(unique_key="k"), new_job(unique_key="k")
    assert store.enqueue([first, second]) == [Enqueued(first.id, True), Enqueued(first.id, False)]


def test_a_key_that_stands_twice_in_a_batch_of_replacements_leads_to_a_job_that_lives(store):
    old = put(store, unique_key="k")
    batch = [new_job(unique_key="k", on_duplicate="replace") for _ in range(2)]
    answers = store.enqueue(batch)
    assert store.get(old.id).state is State.CANCELLED
    (alive,) = claim_ids(store)
    assert alive in [job.id for job in batch]
    for answer, job in zip(answers, batch, strict=True):
        assert answer.id == alive or (answer.created and store.get(job.id).state is State.CANCELLED)


def test_a_key_is_free_again_when_its_job_is_replaced_or_ends(store):
    first = put(store, unique_key="k")
    store.cancel(first.id)
    second = put(store, unique_key="k")
    assert second.id != first.id
    end(store, claim_one(store), Success())
    assert put(store, unique_key="k").id not in (first.id, second.id)


# -- groups and tags ---------------------------------------------------------------------------------------------------


def test_a_group_is_made_by_its_first_job_and_moves_its_version_with_every_enqueue(store):
    assert store.group("g") is None
    put(store, group="g")
    assert (store.group("g").state, store.group("g").version) == ("active", 1)
    store.enqueue([new_job(group="g"), new_job(group="g"), new_job(group="h")])
    assert (store.group("g").version, store.group("h").version) == (2, 1)


def test_a_repeated_enqueue_does_not_move_the_version_of_its_group(store):
    job = new_job(group="g")
    store.enqueue([job])
    store.enqueue([job])
    assert store.group("g").version == 1


def test_tags_find_their_jobs(store):
    both = put(store, tags=("red", "blue"))
    red = put(store, tags=("red",))
    put(store)
    assert [job.id for job in store.list_jobs(Filter(tag="red")).jobs] == [red.id, both.id]
    assert [job.id for job in store.list_jobs(Filter(tag="blue")).jobs] == [both.id]


# -- retry of --------------------------------------------------------------------------------------------------------


def test_a_link_to_the_job_that_is_tried_anew_is_kept(store):
    old = new_id()
    assert put(store, retry_of=old).retry_of == old


def test_many_plain_jobs_of_one_call_are_stored_in_their_order_and_a_repeat_makes_none(store):
    texts = ('tab\t, break\n, \\ and "quotes"', "ümlaut ✂", "")
    args = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    jobs = [new_job(args=args[n % 3]) for n in range(120)]
    assert store.enqueue(jobs) == [Enqueued(job.id, created=True) for job in jobs]
    assert store.enqueue(jobs) == [Enqueued(job.id, created=False) for job in jobs]
    granted = store.claim("w", ["default"], 500)
    assert [(grant.id, grant.args) for grant in granted] == [(job.id, job.args) for job in jobs]


def test_many_plain_jobs_are_stored_all_or_none(store):
    jobs = [new_job() for _ in range(120)]
    jobs[-1] = new_job(args="no JSON")
    with pytest.raises(Exception, match=r"JSON|json"):
        store.enqueue(jobs)
    assert store.claim("w", ["default"], 500) == []
