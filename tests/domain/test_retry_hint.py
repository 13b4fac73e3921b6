"""When it may be worth to ask again."""

from __future__ import annotations

from datetime import timedelta

from leasehold.domain.errors import RunningJob
from leasehold.domain.limits import LONGEST_HINT, SHORTEST_HINT, retry_hint
from leasehold.testing import START


def held(age: float, lease_left: float | None = 1000.0) -> RunningJob:
    until = None if lease_left is None else START + timedelta(seconds=lease_left)
    return RunningJob("x", "w", START - timedelta(seconds=age), until)


def test_the_hint_grows_with_the_age_of_the_runs_and_shrinks_with_their_number():
    assert retry_hint([held(10)], START) == 10.0
    assert retry_hint([held(20)], START) == 20.0
    assert retry_hint([held(10)] * 4, START) == 4.0


def test_a_hint_is_neither_a_busy_wait_nor_a_long_one():
    assert retry_hint([held(0)], START) == SHORTEST_HINT
    assert retry_hint([held(86_400)], START) == LONGEST_HINT


def test_it_goes_no_further_than_the_end_of_a_lease_whose_owner_may_be_dead():
    assert retry_hint([held(40, lease_left=1000), held(40, lease_left=7)], START) == 7.0


def test_an_orphan_has_no_lease_to_wait_for():
    assert retry_hint([held(30, lease_left=None)], START) == 30.0
