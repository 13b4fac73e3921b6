"""Events: numbered without gaps under the fence, once per key, written once; progress and logs stay small."""

from __future__ import annotations

import threading

import pytest

from leasehold.domain.errors import JobNotFound
from leasehold.domain.job import Grant
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.states import State
from leasehold.domain.stream import LOG, LOG_CAP, Note, RunNotes
from leasehold.stores.store import JobStore
from tests.backends import new_id, put
from tests.contract.lives import claim_one, end, run


def reported(grant: Grant, *notes: Note) -> RunNotes:
    return RunNotes(grant.id, grant.token, grant.attempt, notes)


def item(place: int, data: str = "1", key: str | None = None, kind: str = "item") -> Note:
    return Note(place, kind, data, key)


def progress(place: int, done: int) -> Note:
    return Note(place, "progress", f'{{"done":{done},"total":10,"note":"n"}}')


def line(place: int, text: str) -> Note:
    return Note(place, LOG, text=text)


def seen(store: JobStore, job_id: str, since: int = 0) -> list[tuple[int, str, object]]:
    return [(event.seq, event.kind, event.data) for event in store.read_stream(job_id, since).updates]


def test_events_are_numbered_in_order_without_gaps(store, clock):
    one, two = run(store), run(store)
    assert store.write_updates([reported(one, item(1), item(2)), reported(two, item(1, '"x"'))]).lost == []
    clock.advance(1)
    store.write_updates([reported(one, item(3, '{"a":[1]}'))])
    assert seen(store, one.id) == [(1, "item", 1), (2, "item", 1), (3, "item", {"a": [1]})]
    assert seen(store, two.id) == [(1, "item", "x")]
    assert seen(store, one.id, since=2) == [(3, "item", {"a": [1]})]
    assert store.read_stream(one.id, since=2).updates[0].at == clock.now()


def test_a_look_shows_a_page_and_the_state(store):
    grant = run(store)
    store.write_updates([reported(grant, *(item(place) for place in range(1, 8)))])
    page = store.read_stream(grant.id, 0, 5)
    assert [event.seq for event in page.updates] == [1, 2, 3, 4, 5]
    assert (page.state, page.attempt) == (State.RUNNING, 1)
    assert [event.seq for event in store.read_stream(grant.id, 5, 5).updates] == [6, 7]
    assert store.read_stream(grant.id, 7).updates == []


def test_the_stream_of_an_unknown_job_is_not_found(store):
    with pytest.raises(JobNotFound):
        store.read_stream(new_id())


def test_who_lost_the_lease_tells_nothing(store):
    lost = run(store)
    end(store, lost, Failure("boom"))
    live = run(store)
    stale = RunNotes(live.id, live.token - 1, 1, (item(1),))
    never_held = RunNotes(put(store).id, 0, 0, (item(1),))
    answer = store.write_updates(
        [reported(lost, item(1), line(2, "x")), reported(live, item(1)), stale, never_held]
    )
    assert sorted(answer.lost) == sorted(
        [(lost.id, lost.token), (live.id, live.token - 1), (never_held.id, 0)]
    )
    assert seen(store, lost.id) == []
    assert store.logs(lost.id) == []
    assert seen(store, never_held.id) == []
    assert seen(store, live.id) == [(1, "item", 1)]


def test_a_key_is_stored_once_also_by_the_next_attempt(store, clock):
    first = run(store)
    store.write_updates(
        [reported(first, item(1, "1", "a"), item(2, "2", "a"), item(3, "3", "b"), item(4, "4"))]
    )
    end(store, first, Failure("boom"))
    clock.advance(3600)
    second = claim_one(store)
    store.write_updates([reported(second, item(1, "5", "b"), item(2, "6", "c"))])
    assert seen(store, first.id) == [(1, "item", 1), (2, "item", 3), (3, "item", 4), (4, "item", 6)]
    assert [event.attempt for event in store.read_stream(first.id).updates] == [1, 1, 1, 2]
    other = run(store)
    store.write_updates([reported(other, item(1, "7", "a"))])
    assert seen(store, other.id) == [(1, "item", 7)], "a key is a key of its job"


def test_what_is_sent_again_after_a_lost_reply_is_written_once(store):
    grant = run(store)
    batch = reported(grant, item(1), line(2, "one\n"), item(3))
    store.write_updates([batch])
    store.write_updates([batch])
    again = reported(grant, item(1), line(2, "one\n"), item(3), item(4, "4"), line(5, "two\n"))
    store.write_updates([again])
    assert seen(store, grant.id) == [(1, "item", 1), (2, "item", 1), (3, "item", 4)]
    (tail,) = store.logs(grant.id)
    assert tail.text == "one\ntwo\n"


def test_the_places_of_the_next_attempt_start_anew(store, clock):
    first = run(store)
    store.write_updates([reported(first, item(1), item(2), item(3))])
    end(store, first, Failure("boom"))
    clock.advance(3600)
    second = claim_one(store)
    store.write_updates([reported(second, item(1))])
    assert [number for number, _, _ in seen(store, first.id)] == [1, 2, 3, 4]


def test_only_the_newest_progress_is_kept_and_its_number_goes_on(store, clock):
    grant = run(store)
    assert store.progress(grant.id) is None
    store.write_updates([reported(grant, progress(1, 1), item(2), progress(3, 2))])
    assert [(number, kind) for number, kind, _ in seen(store, grant.id)] == [(1, "item"), (2, "progress")]
    clock.advance(5)
    store.write_updates([reported(grant, progress(4, 3))])
    assert [(number, kind) for number, kind, _ in seen(store, grant.id)] == [(1, "item"), (3, "progress")]
    found = store.progress(grant.id)
    assert (found.done, found.total, found.note, found.at) == (3, 10, "n", clock.now())
    assert str(found) == "3 of 10: n"
    store.write_updates([reported(grant, item(5))])
    assert [number for number, _, _ in seen(store, grant.id)] == [1, 3, 4]


def test_the_log_keeps_the_end_of_each_attempt(store, clock):
    first = run(store)
    store.write_updates([reported(first, line(1, "a" * 10))])
    store.write_updates([reported(first, line(2, "b" * (LOG_CAP - 5)), line(3, "c"))])
    (tail,) = store.logs(first.id)
    assert tail.text == "a" * 4 + "b" * (LOG_CAP - 5) + "c"
    assert tail.cut == 6
    store.write_updates([reported(first, Note(4, LOG, text="é" * (LOG_CAP + 3), cut=7))])
    (tail,) = store.logs(first.id)
    assert tail.text == "é" * LOG_CAP
    assert tail.cut == 6 + 7 + 3 + LOG_CAP
    end(store, first, Failure("boom"))
    clock.advance(3600)
    store.write_updates([reported(claim_one(store), line(1, "second\n"))])
    assert [(tail.attempt, tail.text[-7:]) for tail in store.logs(first.id)] == [
        (1, "é" * 7),
        (2, "second\n"),
    ]


def test_a_log_remembers_for_each_attempt_how_far_its_source_was_read(store, clock):
    grant = run(store)
    assert store.log_mark(grant.id, 1) is None
    store.write_updates([reported(grant, Note(1, LOG, '{"stdout":7}', text="a\n"), Note(2, LOG, text="b\n"))])
    assert store.log_mark(grant.id, 1) == '{"stdout":7}'
    store.write_updates([reported(grant, line(3, "c\n"))])
    assert store.log_mark(grant.id, 1) == '{"stdout":7}', "who says nothing of it leaves it"
    again = Note(2, LOG, '{"stdout":8}', text="b\n")
    store.write_updates([reported(grant, again, Note(4, LOG, '{"stdout":9}', text="d\n"))])
    assert store.log_mark(grant.id, 1) == '{"stdout":9}'
    end(store, grant, Failure("boom"))
    clock.advance(3600)
    second = claim_one(store)
    store.write_updates([reported(grant, Note(5, LOG, '{"stdout":10}', text="late\n"))])
    assert (store.log_mark(grant.id, 1), store.log_mark(second.id, 2)) == ('{"stdout":9}', None)
    assert store.log_mark(new_id(), 1) is None


def test_a_stall_is_an_event_and_history(store):
    grant = run(store)
    store.write_updates(
        [reported(grant, Note(1, "stalled", '{"seconds":600}', text="no progress for 600 s"))]
    )
    assert seen(store, grant.id) == [(1, "stalled", {"seconds": 600})]
    (entry,) = [entry for entry in store.history(grant.id) if entry.event == "stalled"]
    assert (entry.detail, entry.attempt, entry.actor) == ("no progress for 600 s", 1, "worker-1")


def test_a_pruned_job_takes_its_stream_along(store, clock, backend):
    grant = run(store)
    store.write_updates([reported(grant, item(1, key="k"), progress(2, 1), line(3, "x"))])
    end(store, grant, Success())
    put(store)  # the newest job of all may be kept
    clock.advance(10 * 86_400)
    while store.prune(3600.0).next:
        pass
    for table in ("job_update", "stream", "log_tail"):
        assert backend.query(f"SELECT count(*) FROM leasehold.{table}") == [(0,)], table


def test_a_reader_never_finds_a_smaller_number_later(backend):
    """Several writers under one lease (a retry whose first try is still under way) beside a reader."""
    store = backend.open()
    grant = run(store)
    notes = [item(place, str(place)) for place in range(1, 301)]
    stores = [backend.open() for _ in range(3)]

    def write(own: JobStore) -> None:
        for start in range(0, len(notes), 5):
            while own.write_updates([reported(grant, *notes[start : start + 5])]).locked:
                pass  # another has the job in hand

    threads = [threading.Thread(target=write, args=(own,)) for own in stores]
    for thread in threads:
        thread.start()
    reader, last, found = backend.open(), 0, []
    while any(thread.is_alive() for thread in threads) or len(found) < 300:
        events = reader.read_stream(grant.id, last).updates
        found += [(event.seq, event.data) for event in events]
        last = events[-1].seq if events else last
    for thread in threads:
        thread.join()
    assert found == [(number, number) for number in range(1, 301)]
    assert seen(store, grant.id) == [(number, "item", number) for number in range(1, 301)]


@pytest.mark.parametrize(("since", "left"), [(-(2**64), 1), (-1, 1), (2**63, 0), (2**64, 0)])
def test_a_place_that_no_event_can_have_is_before_all_of_them_or_behind(store, since, left):
    """It may come from a header that somebody has made up."""
    grant = run(store)
    store.write_updates([RunNotes(grant.id, grant.token, grant.attempt, (Note(1, "item", "1"),))])
    assert len(store.read_stream(grant.id, since).updates) == left
