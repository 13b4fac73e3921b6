"""Limits: the arithmetic of slots and rates, and what their texts mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.domain.errors import InvalidInput
from leasehold.domain.limits import (
    Need,
    Rate,
    RateUse,
    Room,
    SlotCount,
    brought_rate,
    default_rate,
    parse_rate,
    rate_template,
    read_need,
    slots_text,
)


@pytest.mark.parametrize(
    ("text", "spacing"),
    [
        ("60/min", 1.0),
        ("5/s", 0.2),
        ("100/h", 36.0),
        ("1000/d", 86.4),
        ("3/10s", 10 / 3),
        ("1/1h30m", 5400.0),
    ],
)
def test_a_rate_is_a_spacing(text, spacing):
    assert parse_rate(text) == (text, pytest.approx(spacing))


@pytest.mark.parametrize(
    "text", ["", "60", "/s", "often", "60/", "0/s", "-1/s", "1.5/s", "9/fortnight", "1/0s", 60]
)
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(InvalidInput, match="60/min"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["60/min", " 5 / s ", "3/10s"])
def test_a_limit_that_stands_where_the_key_belongs_is_refused_with_the_way_to_write_it(text):
    with pytest.raises(InvalidInput, match=r"its key is missing.*Rate\(\"openai\""):
        rate_template(text)
    assert rate_template("openai") == rate_template(Rate("openai", "60/min")) == "openai"
    assert rate_template("example.org/{path}") == "example.org/{path}"


def test_a_burst_whose_end_no_database_could_store_is_refused():
    assert default_rate(Rate("key", "1/d", burst=10_000)) == ("1/d", 86_400.0, 10_000)
    for ask in (
        lambda: default_rate(Rate("key", "1/36500d", burst=2)),
        lambda: brought_rate("key", "1/d", 10**6),
    ):
        with pytest.raises(InvalidInput, match="a hundred years"):
            ask()


def test_the_same_need_is_the_same_text():
    assert slots_text((("b", 1), ("a", 2))) == slots_text((("a", 2), ("b", 1))) == '{"a": 2, "b": 1}'
    assert slots_text(()) is None
    assert read_need('{"a": 2, "b": 1}', "key") == Need((("a", 2), ("b", 1)), "key")
    assert not read_need(None, None)


def test_a_room_gives_out_what_is_there_and_no_more():
    room = Room([SlotCount("a", 5, 1), SlotCount("b", 9, 0)], [RateUse("key", 1.0, 3, 0.0)])
    wide, rated = Need((("a", 2), ("b", 3))), Need((("b", 1),), "key")
    assert room.fits(wide) == 2
    room.take(wide, 1)
    assert (room.fits(wide), room.fits(rated)) == (1, 3)
    room.take(rated, 3)
    assert (room.fits(wide), room.fits(rated)) == (1, 0)
    assert room.taken == {"key": 3}
    assert room.opens_in(rated) == pytest.approx(1.0)
    assert room.opens_in(wide) is None


def test_a_name_without_a_row_admits_nobody():
    room = Room([], [])
    assert room.fits(Need((("a", 1),))) == room.fits(Need((), "key")) == 0
    assert room.opens_in(Need((), "key")) is None


def test_a_slot_that_was_lowered_under_its_use_is_full():
    assert SlotCount("a", 2, 5).free == 0


@given(
    spacing=st.floats(0.001, 100),
    burst=st.integers(1, 20),
    waits=st.lists(st.floats(0, 300), min_size=2, max_size=60),
    wanted=st.integers(1, 5),
)
def test_no_window_sees_more_starts_than_the_rate_and_its_burst(spacing, burst, waits, wanted):
    now, next_at, starts = 0.0, 0.0, []
    for wait in waits:
        now += wait
        taken = min(wanted, RateUse("key", spacing, burst, max(0.0, next_at - now)).tokens)
        starts += [now] * taken
        next_at = max(next_at, now) + taken * spacing
    for first in range(len(starts)):
        for last in range(first, len(starts)):
            allowed = (starts[last] - starts[first] + 2e-6) / spacing + burst
            assert last - first + 1 <= allowed + 1e-6


@given(
    spacing=st.floats(0.01, 100), burst=st.integers(1, 20), ahead=st.floats(0, 1000), units=st.integers(1, 20)
)
def test_a_rate_opens_when_it_says_and_not_before(spacing, burst, ahead, units):
    wait = RateUse("key", spacing, burst, ahead).opens_in(units)
    assert wait is not None
    if units <= burst:
        assert RateUse("key", spacing, burst, max(0.0, ahead - wait)).tokens >= units
    if wait > 1e-5 + spacing * 1e-6:
        assert RateUse("key", spacing, burst, ahead - wait / 2).tokens < units or wait / 2 < 1e-5
