from __future__ import annotations

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.domain.checks.ids import checked_id, make_id
from leasehold.domain.policy import DEFAULT_POLICY, Policy, backoff_delay


@given(st.integers(1, 200), st.floats(0, 1))
def test_backoff_doubles_and_stays_between_half_and_all_of_it(tries, jitter):
    full = min(300.0, 2.0 * 2 ** (tries - 1))
    assert full / 2 <= backoff_delay(DEFAULT_POLICY, tries, jitter) <= full


def test_no_backoff_means_at_once():
    assert backoff_delay(Policy(backoff=0), 5, 1.0) == 0


def test_a_plain_policy_takes_no_room_in_the_row():
    assert DEFAULT_POLICY.dump() is None
    assert Policy.load(None) == DEFAULT_POLICY


@given(
    st.builds(
        Policy,
        max_attempts=st.integers(1, 9),
        on_lost=st.sampled_from(["retry", "fail", "adopt"]),
        count_lost=st.booleans(),
        backoff=st.floats(0, 100),
    )
)
def test_a_policy_comes_back_as_it_was(policy):
    assert Policy.load(policy.dump()) == policy


def test_a_policy_of_a_newer_version_is_read_as_far_as_it_is_known():
    assert Policy.load('{"max_attempts": 5, "mood": "good"}') == Policy(max_attempts=5)


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_ids_are_version_7_and_in_time_order(milliseconds, chance):
    made = make_id(milliseconds, chance)
    assert checked_id(made) == made
    assert made[14] == "7"
    assert made[19] in "89ab"
    if milliseconds:
        assert make_id(milliseconds - 1, b"\xff" * 10) < made


@pytest.mark.parametrize(
    "text", ["{bad", "[]", "7", "null", '{"nonsense": 1}', '{"max_attempts": "x", "on_lost": "dance"}']
)
def test_a_policy_that_cannot_be_read_is_the_plain_one(text):
    assert Policy.load(text) == DEFAULT_POLICY


@pytest.mark.parametrize("name", [field.name for field in fields(Policy)])
def test_every_field_is_read_and_looked_at_before(name):
    good: dict[str, object] = {
        "sensitive": ["key"],
        "budget": {"tokens": 5},
        "max_crashes": 2,
        "on_drain": "pause",
        "on_stall": "stop",
        "result": "file",
    }
    words = {"on_lost": "fail", "on_failure": "skip", "on_breach": "allow", "budget_for": "attempt"}
    default = getattr(DEFAULT_POLICY, name)
    value = good.get(name, words.get(name, not default if isinstance(default, bool) else 7))
    read = getattr(Policy.load(json.dumps({name: value})), name)
    assert (list(read) if isinstance(read, tuple) else read) == value
    assert getattr(Policy.load(json.dumps({name: [["no"]]})), name) == default
