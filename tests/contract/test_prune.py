"""Prune: what came to rest long ago goes, in batches, and nothing that is still needed."""

from __future__ import annotations

import secrets

import pytest

from leasehold.domain.checks.ids import make_id
from leasehold.domain.errors import JobNotFound
from leasehold.domain.outcome import Asked, Failure, Success
from leasehold.domain.policy import Policy
from leasehold.domain.states import State
from leasehold.domain.views import Filter
from tests.backends import put
from tests.contract.lives import end, in_state, run

DAY = 86_400.0


def _id(clock) -> str:
    """Ids are in time order, and prune relies on it: they are made by the test's clock here."""
    return make_id(int(clock.now().timestamp() * 1000), secrets.token_bytes(10))


@pytest.mark.parametrize("state", State)
def test_only_what_has_ended_is_pruned(store, clock, state):
    job = in_state(store, clock, state, id=_id(clock))
    clock.advance(10 * DAY)
    ended = state in (State.SUCCEEDED, State.CANCELLED, State.FAILED, State.TIMED_OUT)
    assert store.prune(DAY).deleted == (1 if ended else 0)
    if ended:
        with pytest.raises(JobNotFound):
            store.get(job.id)
    else:
        assert store.get(job.id) == job


def test_the_age_counts_from_the_end_of_the_job(store, clock):
    grant = run(store, id=_id(clock))
    clock.advance(10 * DAY)
    end(store, grant, Success())
    clock.advance(100)
    assert store.prune(100.0).deleted == 0
    clock.advance(0.001)
    assert store.prune(100.0).deleted == 1


def test_a_pruned_job_takes_its_history_tags_and_questions_along(store, clock, backend):
    grant = run(store, id=_id(clock), tags=("t",))
    end(store, grant, Asked("q", "May I?"))
    store.cancel(grant.id)
    kept = put(store, id=_id(clock), tags=("t",))
    store.cancel(kept.id)
    store.retry(kept.id, _id(clock))
    clock.advance(DAY)
    store.prune(0.0)
    for table in ("history", "tag", "question"):
        left = backend.query(f"SELECT count(*) FROM leasehold.{table} WHERE job_id = ?", grant.id)
        assert left == [(0,)], table
    (left,) = store.list_jobs(Filter(tag="t")).jobs
    assert store.get(left.id).retry_of == kept.id, "the link may lead to a job that is gone"


def test_a_failure_that_halts_its_lane_is_never_pruned(store, clock):
    job = in_state(store, clock, State.FAILED, id=_id(clock), lane="l")
    clock.advance(100 * DAY)
    assert store.prune(DAY).deleted == 0
    store.resolve(job.id)
    assert store.prune(DAY).deleted == 1


def test_a_failure_that_was_skipped_is_pruned(store, clock):
    grant = run(store, id=_id(clock), lane="l", policy=Policy(on_failure="skip"))
    end(store, grant, Failure("boom", final=True))
    clock.advance(2 * DAY)
    assert store.prune(DAY).deleted == 1


def test_what_holds_a_unique_key_for_good_is_never_pruned(store, clock):
    holder = in_state(store, clock, State.SUCCEEDED, id=_id(clock), unique_key="k", unique_for="ever")
    in_state(store, clock, State.SUCCEEDED, id=_id(clock), unique_key="k2")
    clock.advance(100 * DAY)
    assert store.prune(DAY).deleted == 1
    assert put(store, unique_key="k", unique_for="ever").id == holder.id


def test_a_group_is_pruned_only_when_none_of_it_lives(store, clock):
    in_state(store, clock, State.SUCCEEDED, id=_id(clock), group="g")
    alive = in_state(store, clock, State.PAUSED, id=_id(clock), group="g")
    in_state(store, clock, State.SUCCEEDED, id=_id(clock), group="other")
    clock.advance(2 * DAY)
    assert store.prune(DAY).deleted == 1
    store.cancel(alive.id)
    clock.advance(2 * DAY)
    assert store.prune(DAY).deleted == 2


def test_prune_works_in_batches_that_say_where_to_go_on(store, clock):
    for _ in range(7):
        in_state(store, clock, State.SUCCEEDED, id=_id(clock))
    clock.advance(2 * DAY)
    deleted, after = [], None
    while True:
        batch = store.prune(DAY, limit=3, after=after)
        deleted.append(batch.deleted)
        if batch.next is None:
            break
        after = batch.next
    assert deleted == [3, 3, 1]
    assert sum(store.count().values()) == 0


def test_prune_passes_over_what_it_must_keep(store, clock):
    for number in range(6):
        state = State.SUCCEEDED if number % 2 else State.PAUSED
        in_state(store, clock, state, id=_id(clock))
    clock.advance(2 * DAY)
    first = store.prune(DAY, limit=3)
    second = store.prune(DAY, limit=3, after=first.next)
    assert first.deleted + second.deleted == 3
    assert store.count()[State.PAUSED] == 3


def test_jobs_whose_producers_clock_runs_ahead_are_pruned_too(store, clock):
    clock.advance(0.5 * DAY)
    ahead = _id(clock)
    clock.advance(-0.5 * DAY)
    in_state(store, clock, State.SUCCEEDED, id=ahead)
    clock.advance(1000)
    assert store.prune(900.0).deleted == 1


def test_nothing_to_prune_is_no_work(store):
    pruned = store.prune(0.0)
    assert (pruned.deleted, pruned.next) == (0, None)
