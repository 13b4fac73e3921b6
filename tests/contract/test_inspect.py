"""Inspect: the row, filtered pages, capped counts, the history."""

from __future__ import annotations

import pytest

from leasehold.domain.checks.ids import make_id
from leasehold.domain.errors import JobNotFound
from leasehold.domain.outcome import Failure, Snoozed, Success
from leasehold.domain.records import Filter
from leasehold.domain.states import State
from leasehold.stores.verbs.locking import lock
from tests.backends import new_id, new_job, put
from tests.contract.lives import OWNER, claim_one, end, in_state, lose, orphan, run


def test_a_job_that_is_not_there_is_not_found(store):
    missing = new_id()
    with pytest.raises(JobNotFound) as refusal:
        store.get(missing)
    assert refusal.value.job_id == missing


@pytest.mark.parametrize("lane", [None, "l"])
@pytest.mark.parametrize("state", [*State, "orphan", "tried", "flagged", "resumed", "waiting for a parent"])
def test_a_job_reads_the_same_as_under_its_lock(store, clock, state, lane):
    """It is put together from the same rows in two ways."""
    fields = {"lane": lane, "group": "g", "tags": ("t",), "unique_key": "k", "deadline": 1e6, "trace": "abc"}
    match state:
        case "orphan":
            job = orphan(store, clock, **fields)
        case "tried":
            job = end(store, run(store, **fields), Failure("broken"))
        case "flagged":
            job = store.pause(run(store, **fields).id, None, "later")
        case "resumed":
            job = store.resume(in_state(store, clock, State.FAILED, **fields).id)
        case "waiting for a parent":
            job = put(store, after=(put(store).id,), **fields)
            clock.advance(2e6)
            assert store.expire()[0].state is State.TIMED_OUT
        case _:
            job = in_state(store, clock, state, **fields)
    locked, _ = store._database.transact(lambda session: lock(session, [job.id]))
    assert store.get(job.id) == locked[job.id]


# -- lists -------------------------------------------------------------------------------------------------------------


def _ids(page) -> list[str]:
    return [job.id for job in page.jobs]


def test_a_list_is_newest_first_by_arrival_whatever_the_ids(store):
    ids = sorted((new_id() for _ in range(5)), reverse=True)
    for job_id in ids:
        put(store, id=job_id)
    page = store.list_jobs()
    assert _ids(page) == ids[::-1]
    assert page.next is None


def test_pages_follow_each_other_without_gap_or_overlap_whatever_arrives_meanwhile(store):
    ids = [put(store).id for _ in range(7)]
    found, before = [], None
    while True:
        page = store.list_jobs(limit=3, cursor=before)
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
        store, task="k", queue="q", priority=4, lane="l", group="g", tags=("t",), args='{"secret": 1}'
    )
    store.pause(grant.id, None, "later")
    job = store.get(grant.id)
    (shown,) = store.list_jobs().jobs
    for name in shown.__slots__:
        assert getattr(shown, name) == getattr(job, name), name
    assert not hasattr(shown, "args")
    assert not hasattr(shown, "result")
    assert (shown.state, shown.stop_requested, shown.worker) == (State.RUNNING, "pause", OWNER)


@pytest.mark.parametrize("lane", [None, "l"])
@pytest.mark.parametrize("state", State)
def test_a_list_tells_of_every_state_what_the_job_itself_does(store, clock, state, lane):
    job = in_state(store, clock, state, lane=lane, group="g", tags=("t",))
    for filter in (
        Filter(),
        Filter(states=(state,)),
        Filter(group="g"),
        Filter(tag="t"),
        Filter(task="work"),
    ):
        (shown,) = store.list_jobs(filter).jobs
        for name in shown.__slots__:
            assert getattr(shown, name) == getattr(job, name), name


@pytest.mark.parametrize("lane", [None, "l"])
def test_a_list_tells_of_later_tries_what_the_job_itself_does(store, clock, lane):
    grant = run(store, lane=lane)
    end(store, grant, Failure("broken"))
    moved = put(store, lane=lane, delay=50.0, hold=True)
    clock.advance(1)
    store.release(moved.id)
    away = orphan(store, clock) if lane is None else put(store, lane="other", delay=5.0)
    for shown in store.list_jobs().jobs:
        job = store.get(shown.id)
        for name in shown.__slots__:
            assert getattr(shown, name) == getattr(job, name), name
    assert {shown.id for shown in store.list_jobs().jobs} == {grant.id, moved.id, away.id}


@pytest.mark.parametrize("state", State)
def test_jobs_are_found_by_their_state(store, clock, state):
    wanted = {one: in_state(store, clock, one).id for one in State}
    assert _ids(store.list_jobs(Filter(states=(state,)))) == [wanted[state]]
    two = (state, State.QUEUED)
    assert set(_ids(store.list_jobs(Filter(states=two)))) == {wanted[one] for one in two}


def test_jobs_are_found_by_each_of_their_marks_and_by_all_of_them(store):
    marks = {"queue": "q", "task": "k", "lane": "l", "group": "g", "tag": "t"}
    full = put(store, queue="q", task="k", lane="l", group="g", tags=("t", "u"))
    for name, value in marks.items():
        field = {"tags": (value,)} if name == "tag" else {name: value}
        alone = put(store, **field)
        assert _ids(store.list_jobs(Filter(**{name: value}))) == [alone.id, full.id]
        assert _ids(store.list_jobs(Filter(**{name: "other"}))) == []
    assert _ids(store.list_jobs(Filter(**marks, states=(State.QUEUED,)))) == [full.id]
    assert _ids(store.list_jobs(Filter(**marks, states=(State.FAILED,)))) == []


def test_a_filtered_list_has_pages_too(store):
    ids = [put(store, task="a" if number % 2 else "b").id for number in range(10)]
    wanted = [job_id for job_id in ids if store.get(job_id).task == "a"][::-1]
    first = store.list_jobs(Filter(task="a"), limit=2)
    assert _ids(first) == wanted[:2]
    rest = store.list_jobs(Filter(task="a"), limit=10, cursor=first.next)
    assert (_ids(rest), rest.next) == (wanted[2:], None)


def test_a_list_goes_on_behind_a_job_that_was_pruned_meanwhile(store, clock):
    ids = [in_state(store, clock, State.SUCCEEDED).id for _ in range(6)]
    put(store)
    first = store.list_jobs(Filter(states=(State.SUCCEEDED,)), limit=2)
    assert _ids(first) == ids[:3:-1]
    clock.advance(100)
    for job_id in ids[:4]:
        store.retry(job_id, new_id())
    kept = [put(store, after=(job_id,)) for job_id in ids[:3]]
    assert store.prune(50).deleted == 3
    rest = store.list_jobs(cursor=first.next)
    assert _ids(rest) == ids[2::-1]
    assert len(kept) == 3


@pytest.mark.parametrize("of", ["task", "queue", "lane"])
@pytest.mark.parametrize("states", [(), (State.QUEUED,), (State.SUCCEEDED,), (State.QUEUED, State.SUCCEEDED)])
def test_what_no_index_serves_is_looked_for_in_windows(store, clock, monkeypatch, of, states):
    """A page may come with few jobs or none; whoever follows the cursors meets all of them, once, in order."""
    from leasehold.stores.verbs import inspect

    monkeypatch.setattr(inspect, "WINDOW", 7)
    wanted = []
    for number in range(40):
        mark = {of: "rare"} if number % 13 == 3 else {}
        state = State.SUCCEEDED if number < 20 else State.QUEUED
        job = in_state(store, clock, state, **mark)
        if mark and (not states or state in states):
            wanted.append(job.id)
    pages, before = [], None
    while True:
        page = store.list_jobs(Filter(**{of: "rare"}, states=states), limit=2, cursor=before)
        pages.append(_ids(page))
        if page.next is None:
            break
        before = page.next
    assert [job_id for found in pages for job_id in found] == wanted[::-1]


def test_a_tag_on_many_jobs_is_looked_for_in_windows_too(store, monkeypatch):
    from leasehold.stores.verbs import inspect

    ids = [put(store, tags=("t",) if number % 3 else ()).id for number in range(30)]
    wanted = [job_id for number, job_id in enumerate(ids) if number % 3][::-1]
    assert _ids(store.list_jobs(Filter(tag="t"))) == wanted
    monkeypatch.setattr(inspect, "WINDOW", 4)
    found, before = [], None
    while True:
        page = store.list_jobs(Filter(tag="t"), limit=3, cursor=before)
        found += _ids(page)
        if page.next is None:
            break
        before = page.next
    assert found == wanted


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
    reported = [
        (entry.event, entry.from_state, entry.to_state, entry.actor) for entry in store.history(job.id)
    ]
    assert reported == [
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


# -- ids by their beginning --------------------------------------------------------------------------------------------


def ids_at(milliseconds: int, *tails: str) -> list[str]:
    return [make_id(milliseconds, bytes.fromhex(tail)) for tail in tails]


def test_ids_are_found_by_their_beginning(store):
    one, two = ids_at(1_700_000_000_000, "0" * 20, "00" + "f" * 18)
    (later,) = ids_at(1_700_000_000_001, "0" * 20)
    store.enqueue([new_job(id=job_id) for job_id in (later, two, one)])
    assert store.find_ids(one[:8]) == [one, two, later]
    assert store.find_ids(one[:8], limit=2) == [one, two]
    assert store.find_ids(one[:13]) == [one, two]
    assert store.find_ids(two[:18]) == [two]
    assert store.find_ids(later) == [later]
    assert store.find_ids("ffffffff") == []


def test_an_id_is_shortened_to_what_no_other_job_begins_with(store):
    near = ids_at(1_700_000_000_000, "0" * 20, "0" * 19 + "1", "00" + "f" * 18)
    (alone,) = ids_at(1_800_000_000_000, "0" * 20)
    store.enqueue([new_job(id=job_id) for job_id in (*near, alone)])
    short = store.short_ids([*near, alone])
    assert short[alone] == alone[:13], "its time is enough"
    assert short[near[0]] == near[0], "down to the last digit"
    assert short[near[2]] == near[2][:17]
    assert all(store.find_ids(part) == [job_id] for job_id, part in short.items())
    assert store.short_ids([]) == {}
