"""Enqueue once: a repeated request makes nothing, and gets what the first one made."""

from __future__ import annotations

import threading

import pytest

from leasehold.domain.errors import DuplicateJob, IdempotencyKeyReused
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import Backend, new_job, put

DAY = 86_400


def ids(store: JobStore) -> set[str]:
    return {job.id for job in store.list_jobs().jobs}


def test_the_same_request_again_leads_to_the_jobs_of_the_first(store: JobStore):
    jobs = [new_job(), new_job(group="g")]
    first = store.enqueue_once(jobs, "key", "body")
    assert not first.repeated
    assert [one.id for one in first.jobs] == [job.id for job in jobs]
    again = store.enqueue_once([new_job(), new_job(group="g")], "key", "body")
    assert again.repeated
    assert again.jobs == first.jobs
    assert ids(store) == {job.id for job in jobs}


def test_another_request_under_the_same_key_is_refused_and_stores_nothing(store: JobStore):
    first = store.enqueue_once([new_job()], "key", "body")
    with pytest.raises(IdempotencyKeyReused):
        store.enqueue_once([new_job()], "key", "other body")
    assert ids(store) == {first.jobs[0].id}


def test_the_answer_stays_whatever_has_become_of_the_job(store: JobStore, clock: ManualClock):
    first = store.enqueue_once([new_job()], "key", "body")
    store.cancel(first.jobs[0].id, None, None)
    clock.advance(2)
    store.prune(1.0)
    assert ids(store) == set()
    assert store.enqueue_once([new_job()], "key", "body").jobs == first.jobs
    assert ids(store) == set()


def test_a_key_counts_for_a_day(store: JobStore, clock: ManualClock):
    first = store.enqueue_once([new_job()], "key", "body")
    clock.advance(DAY)
    assert store.enqueue_once([new_job()], "key", "body").repeated
    clock.advance(1)
    later = store.enqueue_once([new_job()], "key", "another body")
    assert not later.repeated
    assert later.jobs != first.jobs


def test_old_keys_go_as_new_ones_come(store: JobStore, clock: ManualClock, backend: Backend):
    for number in range(5):
        store.enqueue_once([new_job()], f"old {number}", "body")
    clock.advance(DAY + 1)
    store.enqueue_once([new_job()], "new", "body")
    assert backend.query("SELECT key FROM leasehold.idempotency_key") == [("new",)]


def test_what_is_refused_leaves_no_key_behind(store: JobStore):
    holder = put(store, unique_key="u")
    with pytest.raises(DuplicateJob):
        store.enqueue_once([new_job(), new_job(unique_key="u", on_duplicate="raise")], "key", "body")
    store.cancel(holder.id, None, None)
    assert not store.enqueue_once([new_job(unique_key="u")], "key", "other body").repeated


def test_a_held_unique_key_leads_to_its_holder_each_time(store: JobStore):
    holder = put(store, unique_key="u")
    for _ in range(2):
        (found,) = store.enqueue_once([new_job(unique_key="u")], "key", "body").jobs
        assert (found.id, found.created) == (holder.id, False)


def test_of_many_at_the_same_moment_one_makes_the_job(backend: Backend, store: JobStore):
    stores = [backend.open() for _ in range(4)]
    start, answers = threading.Barrier(len(stores)), []

    def ask(one: JobStore) -> None:
        start.wait()
        answers.append(one.enqueue_once([new_job()], "key", "body"))

    threads = [threading.Thread(target=ask, args=(one,)) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == len(stores)
    assert len({once.jobs[0].id for once in answers}) == 1
    assert sorted(once.repeated for once in answers) == [False, True, True, True]
    assert len(ids(store)) == 1
