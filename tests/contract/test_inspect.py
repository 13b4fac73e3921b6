"""Inspect: the row, filtered pages, capped counts, the history."""

from __future__ import annotations

import pytest

from leasehold.domain.errors import JobNotFound
from leasehold.domain.outcome import Failure, Snoozed, Success
from leasehold.domain.states import State
from leasehold.domain.views import Filter
from tests.backends import new_id, new_job, put
from tests.contract.lives import OWNER, claim_one, end, in_state, lose, run


def test_a_job_that_is_not_there_is_not_found(store):
    missing = new_id()
    with pytest.raises(JobNotFound) as refusal:
        store.get(missing)
    assert refusal.value.job_id == missing


# -- lists -------------------------------------------------------------------------------------------------------------


def _ids(page) -> list[str]:
    return [job.id for job in page.jobs]


def test_a_list_is_newest_first(store):
    ids = sorted(put(store).id for _ in range(5))
    page = store.list_jobs()
    assert _ids(page) == ids[::-1]
    assert page.next is None


def test_pages_follow_each_other_without_gap_or_overlap_whatever_arrives_meanwhile(store):
    ids = sorted(job.id for job in [put(store) for _ in range(7)])
    found, before = [], None
    while True:
        page = store.list_jobs(limit=3, before=before)
        found += _ids(page)
        put(store)
        if page.next is None:
            break
        before = page.next
    assert found == ids[::-1]


def test_a_page_that_is_just_full_has_no_next_one(store):
    for _ in range(4):
        put(store)
    assert store.list_jobs(limit=4).next is None
    assert store.list_jobs(limit=3).next is not None


def test_an_empty_list_is_an_empty_page(store):
    page = store.list_jobs()
    assert (page.jobs, page.next) == ([], None)


def test_a_list_shows_the_row_without_its_payloads(store, clock):
    grant = run(
        store, kind="k", queue="q", priority=4, lane="l", group="g", tags=("t",), args='{"secret": 1}'
    )
    store.pause(grant.id, None, "later")
    job = store.get(grant.id)
    (shown,) = store.list_jobs().jobs
    for name in shown.__slots__:
        assert getattr(shown, name) == getattr(job, name), name
    assert not hasattr(shown, "args")
    assert not hasattr(shown, "result")
    assert (shown.state, shown.stop_requested, shown.lease_owner) == (State.RUNNING, "pause", OWNER)


@pytest.mark.parametrize("state", State)
def test_jobs_are_found_by_their_state(store, clock, state):
    wanted = {one: in_state(store, clock, one).id for one in State}
    assert _ids(store.list_jobs(Filter(states=(state,)))) == [wanted[state]]
    two = (state, State.QUEUED)
    assert set(_ids(store.list_jobs(Filter(states=two)))) == {wanted[one] for one in two}


def test_jobs_are_found_by_each_of_their_marks_and_by_all_of_them(store):
    marks = {"queue": "q", "kind": "k", "lane": "l", "group": "g", "tag": "t"}
    full = put(store, queue="q", kind="k", lane="l", group="g", tags=("t", "u"))
    for name, value in marks.items():
        field = {"tags": (value,)} if name == "tag" else {name: value}
        alone = put(store, **field)
        assert _ids(store.list_jobs(Filter(**{name: value}))) == [alone.id, full.id]
        assert _ids(store.list_jobs(Filter(**{name: "other"}))) == []
    assert _ids(store.list_jobs(Filter(**marks, states=(State.QUEUED,)))) == [full.id]
    assert _ids(store.list_jobs(Filter(**marks, states=(State.FAILED,)))) == []


def test_a_filtered_list_has_pages_too(store):
    ids = sorted(put(store, kind="a" if number % 2 else "b").id for number in range(10))
    wanted = [job_id for job_id in ids if store.get(job_id).kind == "a"][::-1]
    first = store.list_jobs(Filter(kind="a"), limit=2)
    assert _ids(first) == wanted[:2]
    rest = store.list_jobs(Filter(kind="a"), limit=10, before=first.next)
    assert (_ids(rest), rest.next) == (wanted[2:], None)


# -- counts ------------------------------------------------------------------------------------------------------------


def test_counts_name_every_state(store, clock):
    assert store.count() == dict.fromkeys(State, 0)
    for number, state in enumerate(State):
        for _ in range(number % 3):
            in_state(store, clock, state)
    assert store.count() == {state: number % 3 for number, state in enumerate(State)}


def test_counts_stop_at_their_cap(store):
    store.enqueue([new_job() for _ in range(20)])
    assert store.count(cap=7)[State.QUEUED] == 7
    assert store.count(cap=20)[State.QUEUED] == 20
    assert store.count(cap=21)[State.QUEUED] == 20


# -- history -----------------------------------------------------------------------------------------------------------


def test_a_job_that_simply_succeeds_leaves_no_history(store):
    grant = run(store, lane="l", group="g")
    store.renew({grant.id: grant.token})
    end(store, grant, Success("1"))
    assert store.history(grant.id) == []


def test_the_history_tells_what_the_row_cannot_in_order(store, clock):
    job = put(store, hold=True)
    store.release(job.id, "anna")
    end(store, claim_one(store), Failure("boom"))
    clock.advance(10)
    end(store, claim_one(store), Snoozed(5.0, "not yet"))
    clock.advance(10)
    lose(store, clock, claim_one(store))
    store.pause(job.id, "bert", "wait")
    store.resume(job.id, "carl")
    store.cancel(job.id, "dora", "enough")
    told = [(entry.event, entry.from_state, entry.to_state, entry.actor) for entry in store.history(job.id)]
    assert told == [
        ("released", "pending", "queued", "anna"),
        ("failed", "running", "queued", OWNER),
        ("snoozed", "running", "queued", OWNER),
        ("lost", "running", "queued", OWNER),
        ("paused", "queued", "paused", "bert"),
        ("resumed", "paused", "queued", "carl"),
        ("cancelled", "queued", "cancelled", "dora"),
    ]
    entries = store.history(job.id)
    assert [entry.detail for entry in entries[1:3]] == ["boom", "not yet"]
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    assert [entry.attempt for entry in entries] == [0, 1, 2, 3, 3, 3, 3]


def test_a_history_belongs_to_its_job(store):
    one, two = put(store), put(store)
    store.cancel(one.id)
    assert len(store.history(one.id)) == 1
    assert store.history(two.id) == []
    assert store.questions(one.id) == []


def test_a_group_that_is_not_there_is_none(store):
    assert store.group("g") is None
