"""Failures are told in groups: those of one task that say the same."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain import search
from leasehold.domain.errors import InvalidInput
from leasehold.domain.outcome import DeadlinePassed, Failure
from leasehold.domain.records import Filter
from leasehold.domain.states import State
from leasehold.operations import search as operations_on_failures
from leasehold.operations.operations import Operations
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.contract.lives import end, in_state, run


@pytest.fixture
def operations(store: JobStore) -> Operations:
    return Operations(lambda: store)


def fail(store: JobStore, error: str, **fields: object) -> str:
    return end(store, run(store, **fields), Failure(error, final=True)).id


def test_failures_that_say_the_same_are_one_group(
    store: JobStore, operations: Operations, clock: ManualClock
):
    begin = operations.now()
    for number in range(3):
        last = fail(store, f"timeout after {number} s for job {number:08}-0000-7000-8000-000000000000\nstack")
        clock.advance(60)
    other = fail(store, "KeyError: 'x'")
    elsewhere = fail(store, "KeyError: 'y'", task="other")
    end(store, run(store), DeadlinePassed("too long"))
    found = operations.list_failures()
    assert (found.looked, found.cut, found.left_out) == (6, False, 0)
    first, *rest = found.groups
    assert (first.task, first.fingerprint, first.count) == (
        "work",
        "timeout after <number> s for job <id>",
        3,
    )
    assert (first.sample_id, first.sample) == (
        last,
        "timeout after 2 s for job 00000002-0000-7000-8000-000000000000",
    )
    moment = timedelta(milliseconds=1)
    assert abs(first.oldest - begin) < moment
    assert abs(first.newest - begin - timedelta(seconds=120)) < moment
    assert {(group.task, group.fingerprint, group.count) for group in rest} == {
        ("work", "KeyError: <text>", 1),
        ("other", "KeyError: <text>", 1),
        ("work", "too long", 1),
    }
    assert {group.sample_id for group in rest} >= {other, elsewhere}


def test_the_largest_group_comes_first_then_the_newest(
    store: JobStore, operations: Operations, clock: ManualClock
):
    for error in ("a", "b", "b", "c", "d"):
        fail(store, error)
        clock.advance(1)
    assert [group.sample for group in operations.list_failures().groups] == ["b", "d", "c", "a"]


def test_only_what_the_filter_finds_counts_and_only_failures(
    store: JobStore, operations: Operations, clock: ManualClock
):
    for state in State:
        in_state(store, clock, state)
    fail(store, "broken", group="g", tags=("x",), queue="q", task="k")
    assert operations.list_failures().looked == 3
    for filter, looked in [
        (Filter(group="g"), 1),
        (Filter(tag="x"), 1),
        (Filter(queue="q"), 1),
        (Filter(task="k"), 1),
        (Filter(queue="none"), 0),
        (Filter((State.TIMED_OUT,)), 1),
        (Filter((State.FAILED, State.RUNNING)), 2),
        (Filter((State.RUNNING,)), 0),
        (Filter((State.TIMED_OUT,), group="g"), 0),
    ]:
        found = operations.list_failures(filter=filter)
        assert (found.looked, sum(group.count for group in found.groups)) == (looked, looked), filter


def test_it_looks_at_the_newest_and_says_if_there_are_more(store: JobStore, operations: Operations):
    for error in ("a", "b", "b"):
        fail(store, error)
    found = operations.list_failures(2)
    assert ([group.sample for group in found.groups], found.looked, found.cut) == (["b"], 2, True)
    assert not operations.list_failures(3).cut


def test_a_filter_that_finds_few_is_followed_only_so_far(
    store: JobStore, operations: Operations, monkeypatch: pytest.MonkeyPatch
):
    for queue in ("q", *["other"] * 5):
        fail(store, "a", queue=queue)
    monkeypatch.setattr("leasehold.stores.verbs.inspect.WINDOW", 2)
    found = operations.list_failures(filter=Filter(queue="q"))
    assert (found.looked, found.cut) == (1, False)
    monkeypatch.setattr(operations_on_failures, "MOST_READS", 2)
    found = operations.list_failures(filter=Filter(queue="q"))
    assert (found.looked, found.cut) == (0, True)


def test_a_list_has_so_many_groups_and_counts_the_others(
    store: JobStore, operations: Operations, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(operations_on_failures, "MOST_GROUPS", 2)
    for error in ("a", "b", "c"):
        fail(store, error)
    found = operations.list_failures()
    assert (len(found.groups), found.left_out) == (2, 1)


@pytest.mark.parametrize("limit", [0, search.MOST_FAILURES + 1, True])
def test_a_limit_out_of_range_is_refused(operations: Operations, limit: int):
    with pytest.raises(InvalidInput, match="limit"):
        operations.list_failures(limit)
