"""Search finds jobs by what stands in them: bounded, in order, and never by what nobody may see."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold.domain.errors import InvalidInput
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.policy import Policy
from leasehold.domain.records import Filter
from leasehold.domain.search import MOST_LOOKED, SLACK, Search, SearchPage
from leasehold.domain.states import State
from leasehold.operations.operations import Operations
from leasehold.stores.store import JobStore
from leasehold.stores.verbs import inspect as verbs
from leasehold.testing import ManualClock
from tests.backends import Backend, new_job, put
from tests.contract.lives import end, in_state, run


@pytest.fixture
def operations(store: JobStore) -> Operations:
    return Operations(lambda: store)


def args(**values: Any) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def ids(found: SearchPage) -> list[str]:
    return [job.id for job in found.jobs]


def all_pages(operations: Operations, search: Search, limit: int) -> list[list[str]]:
    pages, cursor = [], None
    while True:
        found = operations.search_jobs(search, limit, cursor)
        pages.append(ids(found))
        cursor = found.next
        if cursor is None:
            return pages


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("acme", "orders of ACME"),
        ("ORDERS", "orders of ACME"),
        ("müller", "Frau MÜLLER"),
        ("MÜLLER", "Frau Müller"),
        ('say "hi"', 'they SAY "hi"'),
        ("C:\\temp", "C:\\Temp\\x"),
        ("a\nb", "a\nb"),
        ("50%", "at 50% now"),
        ("a_b", "xa_bx"),
        ("日本", "in 日本語"),
        ("it's", "it's"),
    ],
)
def test_a_text_is_found_in_arguments_and_errors_whatever_its_case(
    store: JobStore, operations: Operations, text: str, stored: str
):
    named = put(store, args=args(target=stored))
    broken = end(store, run(store), Failure(f"ValueError: {stored}", final=True))
    tried = end(store, run(store), Failure(f"ValueError: {stored}"))
    put(store, args=args(target="something else"))
    end(store, run(store), Failure("another", final=True))
    found = operations.search_jobs(Search(text=text))
    assert ids(found) == [tried.id, broken.id, named.id]
    assert (found.next, found.looked) == (None, 5)


@pytest.mark.parametrize("text", ["%", "_", "a%c", "a_c", "\\", "*", "?", "'; DROP TABLE job; --"])
def test_no_character_of_a_text_stands_for_others(store: JobStore, operations: Operations, text: str):
    put(store, args=args(target="abc"))
    assert operations.search_jobs(Search(text=text)).jobs == []


def test_a_piece_of_the_json_is_found_as_it_is_stored(store: JobStore, operations: Operations):
    job = put(store, args=args(target="x", n=17))
    assert ids(operations.search_jobs(Search(text='"target":"x","n":17'))) == [job.id]


def test_a_success_has_no_error_to_be_found_by(store: JobStore, operations: Operations, clock: ManualClock):
    grant = run(store, policy=Policy(backoff=0.0))
    end(store, grant, Failure("flaky network"))
    clock.advance(600)
    (again,) = store.claim("worker-1", ["default"], 1)
    assert ids(operations.search_jobs(Search(text="flaky"))) == [grant.id]
    end(store, again, Success("1"))
    assert operations.search_jobs(Search(text="flaky")).jobs == []


# -- what nobody may see -------------------------------------------------------------------------------------------
def test_sensitive_arguments_are_never_found(store: JobStore, operations: Operations):
    policy = Policy(sensitive=("api_key",))
    hidden = put(store, args=args(api_key="sk-SECRET", target="acme"), policy=policy)
    plain = put(store, args=args(api_key="sk-SECRET", target="acme"))
    assert ids(operations.search_jobs(Search(text="secret"))) == [plain.id]
    assert ids(operations.search_jobs(Search(text='key":"sk'))) == [plain.id]
    assert ids(operations.search_jobs(Search(text="sk-secret"), limit=1)) == [plain.id]
    assert ids(operations.search_jobs(Search(text="ACME"))) == [plain.id, hidden.id]
    assert ids(operations.search_jobs(Search(text="api_key"))) == [plain.id, hidden.id]
    assert ids(operations.search_jobs(Search(text='"target":"acme"'))) == [plain.id, hidden.id]


def test_the_error_of_a_job_with_sensitive_arguments_is_found(store: JobStore, operations: Operations):
    grant = run(store, args=args(api_key="sk-SECRET"), policy=Policy(sensitive=("api_key",)))
    end(store, grant, Failure("Zeitüberschreitung", final=True))
    assert ids(operations.search_jobs(Search(text="ZEITÜBER"))) == [grant.id]


def test_what_is_not_found_for_its_secrecy_leaves_no_gap_in_the_pages(
    store: JobStore, operations: Operations
):
    shown = []
    for number in range(6):
        sensitive = ("target",) if number % 2 else ()
        job = put(store, args=args(target="acme"), policy=Policy(sensitive=sensitive))
        shown += [] if sensitive else [job.id]
    pages = all_pages(operations, Search(text="acme"), 1)
    assert [job for page in pages for job in page] == shown[::-1]


# -- bounds --------------------------------------------------------------------------------------------------------
def test_a_page_looks_at_so_many_jobs_and_says_so(
    store: JobStore, operations: Operations, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(verbs, "SEARCH_ROUND", 10)
    assert verbs.SEARCH_ROUNDS == MOST_LOOKED // 2000
    oldest = put(store, args=args(target="needle"))
    store.enqueue([new_job() for _ in range(120)])
    first = operations.search_jobs(Search(text="needle"))
    assert (first.jobs, first.looked) == ([], 50)
    second = operations.search_jobs(Search(text="needle"), cursor=first.next)
    assert (second.jobs, second.looked) == ([], 50)
    third = operations.search_jobs(Search(text="needle"), cursor=second.next)
    assert (ids(third), third.looked, third.next) == ([oldest.id], 21, None)


@pytest.mark.parametrize("limit", [1, 2, 3, 500])
@pytest.mark.parametrize("rounds", [3, 2000])
def test_every_match_is_on_one_page(
    store: JobStore, operations: Operations, monkeypatch: pytest.MonkeyPatch, limit: int, rounds: int
):
    monkeypatch.setattr(verbs, "SEARCH_ROUND", rounds)
    made = [put(store, args=args(target="needle" if n % 3 == 0 else "hay")).id for n in range(20)]
    pages = all_pages(operations, Search(text="needle"), limit)
    assert [job for page in pages for job in page] == made[::3][::-1]
    assert max(map(len, pages)) <= limit


def test_only_jobs_that_the_filter_finds_are_looked_into(
    store: JobStore, operations: Operations, clock: ManualClock
):
    fields = {"args": args(target="needle")}
    failed = in_state(store, clock, State.FAILED, **fields)
    grouped = put(store, group="g", tags=("x",), lane="l", queue="q", **fields)
    put(store, **fields)
    for filter, expected in [
        (Filter((State.FAILED,)), [failed.id]),
        (Filter((State.FAILED, State.QUEUED), group="g"), [grouped.id]),
        (Filter(group="g"), [grouped.id]),
        (Filter(tag="x"), [grouped.id]),
        (Filter(lane="l"), [grouped.id]),
        (Filter(queue="q"), [grouped.id]),
        (Filter((State.SUCCEEDED,)), []),
    ]:
        found = operations.search_jobs(Search(filter, text="needle"))
        assert (ids(found), found.looked) == (expected, len(expected)), filter


def test_without_a_text_it_is_a_page_of_the_list(store: JobStore, operations: Operations):
    for _ in range(5):
        put(store, queue="q")
    put(store)
    filter = Filter(queue="q")
    found, page = operations.search_jobs(Search(filter), 3), operations.list_jobs(filter, 3)
    assert (found.jobs, found.next, found.looked) == (page.jobs, page.next, 3)
    again = operations.search_jobs(Search(filter, text=""), 3, found.next)
    assert again.jobs == operations.list_jobs(filter, 3, page.next).jobs


# -- times ---------------------------------------------------------------------------------------------------------
def test_since_and_until_bound_the_time_of_creation(
    store: JobStore, operations: Operations, clock: ManualClock
):
    made, times = [], []
    for number in range(40):
        job = put(store, args=args(target="needle"), queue=f"q{number % 2}")
        made.append(job.id)
        times.append(job.created_at)
        clock.advance(7)
    for text in (None, "needle"):
        for low, high in [(0, 40), (5, 9), (0, 1), (39, 40), (20, 20), (25, 5)]:
            since, until = times[low], times[high] if high < 40 else operations.now()
            search = Search(text=text, since=since, until=until)
            assert ids(operations.search_jobs(search)) == made[low:high][::-1]
        search = Search(Filter(queue="q1"), text, times[10], times[20])
        assert [job for page in all_pages(operations, search, 2) for job in page] == made[11:20:2][::-1]
    moment = timedelta(microseconds=1)
    assert ids(operations.search_jobs(Search(since=times[38] + moment))) == [made[39]]
    assert ids(operations.search_jobs(Search(until=times[1] + moment))) == made[1::-1]
    assert ids(operations.search_jobs(Search(since=operations.now()))) == []
    assert len(ids(operations.search_jobs(Search(until=operations.now() + timedelta(days=3000))))) == 40


def test_times_of_an_empty_store_find_nothing(operations: Operations):
    assert operations.search_jobs(Search(since=operations.now(), text="x")) == SearchPage([], None, 0)
    assert operations.search_jobs(Search(until=operations.now())) == SearchPage([], None, 0)


def test_jobs_that_were_created_a_little_out_of_order_are_found(
    store: JobStore, operations: Operations, clock: ManualClock, backend: Backend
):
    jobs = []
    for _ in range(30):
        jobs.append(put(store))
        clock.advance(3)
    late, early = jobs[10], jobs[20]
    slack = SLACK - timedelta(seconds=1)
    for job, other in ((late, late.created_at + slack), (early, early.created_at - slack)):
        value: Any = other if backend.name == "postgres" else int(other.timestamp() * 1e6)
        backend.query("UPDATE leasehold.job SET created_at = ? WHERE id = ?", value, job.id)
    created = {job.id: store.get(job.id).created_at for job in jobs}
    for at in sorted(created.values()):
        after = [job.id for job in jobs if created[job.id] >= at][::-1]
        assert ids(operations.search_jobs(Search(since=at))) == after
        assert ids(operations.search_jobs(Search(until=at))) == [
            job.id for job in reversed(jobs) if job.id not in after
        ]


# -- ids -----------------------------------------------------------------------------------------------------------
def test_jobs_are_found_by_the_beginning_of_their_id(store: JobStore, operations: Operations):
    one = put(store, id="019a0000-0000-7000-8000-0000000000a1", args=args(target="x"), group="g")
    two = put(store, id="019a0000-0001-7000-8000-0000000000a2", args=args(target="y"))
    other = put(store, id="029a0000-0001-7000-8000-0000000000a3", args=args(target="x"))
    for prefix, expected in [
        ("019a00", [two, one]),
        ("019A0000-0000", [one]),
        (two.id, [two]),
        ("029a00", [other]),
        ("039a00", []),
        ("no id at all", []),
    ]:
        assert ids(operations.search_jobs(Search(id_prefix=prefix))) == [job.id for job in expected]
    assert ids(operations.search_jobs(Search(text="x", id_prefix="019a00"))) == [one.id]
    assert ids(operations.search_jobs(Search(Filter(group="g"), id_prefix="019a00"))) == [one.id]
    assert ids(operations.search_jobs(Search(Filter((State.FAILED,)), id_prefix="019a00"))) == []
    pages = all_pages(operations, Search(id_prefix="019a00"), 1)
    assert [job for page in pages for job in page] == [two.id, one.id]


def test_a_prefix_that_very_many_have_is_a_condition(
    store: JobStore, operations: Operations, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(verbs, "WINDOW", 3)
    made = [put(store, id=f"019a0000-0000-7000-8000-{n:012}").id for n in range(10)]
    put(store)
    pages = all_pages(operations, Search(id_prefix="019a00"), 50)
    assert [job for page in pages for job in page] == made[::-1]


# -- what is refused -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("search", "field"),
    [
        (Search(text="x" * 1001), "text"),
        (Search(text="a\0b"), "text"),
        (Search(text=5), "text"),
        (Search(id_prefix="019"), "id_prefix"),
        (Search(since=datetime(2026, 1, 1)), "since"),  # noqa: DTZ001
        (Search(until="2026"), "until"),
        (Search(until=datetime(1960, 1, 1, tzinfo=UTC)), "until"),
        (Search(Filter(queue=5)), "queue"),
    ],
)
def test_a_search_that_cannot_be_meant_is_refused_by_its_field(
    operations: Operations, search: Search, field: str
):
    with pytest.raises(InvalidInput) as refused:
        operations.search_jobs(search)
    assert refused.value.field == field


def test_a_page_or_a_cursor_that_cannot_be_meant_is_refused(operations: Operations):
    for limit in (0, 501, True):
        with pytest.raises(InvalidInput, match="limit"):
            operations.search_jobs(Search(), limit)
    with pytest.raises(InvalidInput, match="cursor"):
        operations.search_jobs(Search(), cursor="nonsense")
