"""What the doctor looks for behind the store's back: jobs in no place or in two, and groups that miscount."""

from __future__ import annotations

import pytest

from leasehold.domain.states import State
from leasehold.stores.store import JobStore
from leasehold.stores.verbs import workers
from leasehold.testing import ManualClock
from tests.backends import Backend, put
from tests.contract.lives import in_state, orphan

_COLUMNS = "gate, priority, available_at, token, attempt, lease_seconds, special"


def _lives(store: JobStore, clock: ManualClock) -> None:
    for state in State:
        for lane in (None, f"lane of one that is {state}"):
            in_state(store, clock, state, lane=lane, group="g")
    orphan(store, clock, group="g")


def test_of_jobs_in_all_states_none_is_misplaced(store: JobStore, clock: ManualClock):
    _lives(store, clock)
    assert store.misplaced() == []


def test_a_job_in_no_place_is_found(store: JobStore, clock: ManualClock, backend: Backend):
    _lives(store, clock)
    lost = put(store)
    backend.query("DELETE FROM leasehold.ready WHERE seq = ?", lost.seq)
    assert store.misplaced() == [f"job {lost.id} is in no place"]


def test_a_job_in_two_places_is_found(store: JobStore, clock: ManualClock, backend: Backend):
    _lives(store, clock)
    twice = in_state(store, clock, State.FAILED)
    other = put(store)
    backend.query(
        f"INSERT INTO leasehold.ready (seq, {_COLUMNS})"
        f" SELECT {twice.seq}, {_COLUMNS} FROM leasehold.ready WHERE seq = ?",
        other.seq,
    )
    assert store.misplaced() == [f"job {twice.id} is in more than one place"]


def test_a_place_without_a_job_is_found(store: JobStore, backend: Backend):
    job = put(store)
    put(store)
    backend.query("DELETE FROM leasehold.job WHERE seq = ?", job.seq)
    assert store.misplaced() == [f"there is a place for number {job.seq}, but no such job"]


def test_a_group_that_miscounts_is_found(store: JobStore, clock: ManualClock, backend: Backend):
    _lives(store, clock)
    backend.query("UPDATE leasehold.job_group SET live = live + 1 WHERE name = 'g'")
    assert store.misplaced() == ["group 'g' miscounts its jobs that live"]


def test_no_more_are_told_than_were_asked_for(store: JobStore, backend: Backend):
    for _ in range(5):
        put(store)
    backend.query("DELETE FROM leasehold.ready")
    assert len(store.misplaced()) == 5
    assert len(store.misplaced(limit=3)) == 3


def test_the_search_ends_after_so_many_jobs(
    store: JobStore, backend: Backend, monkeypatch: pytest.MonkeyPatch
):
    for _ in range(5):
        put(store)
    backend.query("DELETE FROM leasehold.ready")
    monkeypatch.setattr(workers, "JOBS_EXAMINED", 2)
    assert len(store.misplaced()) == 2
