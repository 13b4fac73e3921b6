from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain.checks.times import seconds
from leasehold.domain.errors import InvalidInput


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5.0),
        (0.25, 0.25),
        ("90", 90.0),
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("1w", 604_800.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        (" 10M ", 600.0),
        (timedelta(minutes=2), 120.0),
    ],
)
def test_a_duration_is_seconds_or_text(value, expected):
    assert seconds(value, "delay") == expected


@pytest.mark.parametrize(
    "value", ["", "soon", "10x", "m", "1h 30m", "-5", -1, float("nan"), float("inf"), True, None, "1e9w"]
)
def test_what_is_no_duration_is_refused_naming_the_field(value):
    with pytest.raises(InvalidInput) as caught:
        seconds(value, "delay")
    assert caught.value.field == "delay"


def test_zero_is_refused_where_it_makes_no_sense():
    assert seconds(0, "delay") == 0
    with pytest.raises(InvalidInput):
        seconds(0, "lease", positive=True)
