"""When schedules are due: over change nights, after outages, by every policy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from leasehold.domain.errors import InvalidInput
from leasehold.domain.schedules import MOST_TICKS, Schedule, checked_schedule, turn

DAY = timedelta(days=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def made(**changes: object) -> Schedule:
    return Schedule(**{"name": "s", "task": "k", **changes})


def berlin() -> Schedule:
    return made(cron="30 2 * * *", tz="Europe/Berlin")


@pytest.mark.parametrize(
    ("from_", "ticks"),
    [
        ("2026-03-27T12:00", ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]),
        ("2026-10-24T12:00", ["2026-10-25T00:30", "2026-10-26T01:30", "2026-10-27T01:30"]),
    ],
    ids=["the night without a 02:30", "the night with two"],
)
def test_a_daily_schedule_runs_once_on_change_nights(from_, ticks):
    first = berlin().next_after(at(from_))
    assert berlin().upcoming(first, 3) == [at(tick) for tick in ticks]


def test_an_interval_goes_on_evenly_over_a_change_night():
    schedule = made(every=3600.0, tz="Europe/Berlin")
    assert schedule.upcoming(at("2026-10-25T00:00"), 4) == [at(f"2026-10-25T0{hour}:00") for hour in range(4)]


@pytest.mark.parametrize("when", [{"every": 3600.0}, {"cron": "0 * * * *"}])
def test_one_makes_one_job_for_all_that_were_missed(when):
    found = turn(made(missed="one", **when), at("2026-01-01T01:00"), at("2026-01-01T05:30"))
    assert found.ticks == [at("2026-01-01T05:00")]
    assert (found.passed, found.next_at) == (4, at("2026-01-01T06:00"))


@pytest.mark.parametrize("when", [{"every": 3600.0}, {"cron": "0 * * * *"}])
def test_all_makes_each_of_them(when):
    found = turn(made(missed="all", **when), at("2026-01-01T01:00"), at("2026-01-01T03:00"))
    assert found.ticks == [at(f"2026-01-01T0{hour}:00") for hour in (1, 2, 3)]
    assert (found.passed, found.next_at) == (0, at("2026-01-01T04:00"))


def test_all_makes_up_for_a_long_outage_in_pieces():
    schedule = made(missed="all", every=60.0)
    first, now = at("2026-01-01T00:00"), at("2026-01-02T00:00")
    found = turn(schedule, first, now)
    assert len(found.ticks) == MOST_TICKS
    assert found.next_at == found.ticks[-1] + timedelta(minutes=1)
    ticks = list(found.ticks)
    while found.next_at <= now:
        found = turn(schedule, found.next_at, now)
        ticks += found.ticks
    assert ticks == schedule.upcoming(first, 1441), "none twice, none left out"


@pytest.mark.parametrize("when", [{"every": 3600.0}, {"cron": "0 * * * *"}])
def test_skip_makes_none_of_those_that_were_missed(when):
    schedule = made(missed="skip", **when)
    late = turn(schedule, at("2026-01-01T01:00"), at("2026-01-01T03:30"))
    assert (late.ticks, late.passed, late.next_at) == ([], 3, at("2026-01-01T04:00"))
    in_time = turn(schedule, at("2026-01-01T01:00"), at("2026-01-01T03:00:05"))
    assert (in_time.ticks, in_time.passed) == ([at("2026-01-01T03:00")], 2)


def test_a_year_of_missed_minutes_is_not_walked_through():
    found = turn(made(cron="* * * * *"), at("2025-01-01T00:00"), at("2026-01-01T00:00:30"))
    assert found.ticks == [at("2026-01-01T00:00")]
    assert found.next_at == at("2026-01-01T00:01")
    assert found.passed >= MOST_TICKS


@pytest.mark.parametrize("cron", ["30 2 * * *", "15 2,3 * * *", "*/20 * * * *", "0 * * * *"])
@pytest.mark.parametrize("night", ["2026-03-29T00:00", "2026-10-25T00:00"])
def test_a_long_outage_that_ends_on_a_change_night_counts_no_tick_twice(cron, night):
    schedule = made(cron=cron, tz="Europe/Berlin", missed="one")
    for minute in range(0, 180, 10):
        now = at(night) + timedelta(minutes=minute)
        found = turn(schedule, schedule.next_after(now - 200 * DAY), now)
        assert len(found.ticks) == 1
        assert found.ticks[0] <= now < found.next_at, "none is left that is due"
        assert found.ticks[0] == max(
            tick for tick in schedule.upcoming(schedule.next_after(now - 2 * DAY), 150) if tick <= now
        )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.5, "1.5s"),
        (90, "90s"),
        (5400, "90m"),
        (7200, "2h"),
        (86_400, "1d"),
        (14 * 86_400, "14d"),
        (1e6, "1000000s"),
    ],
)
def test_an_interval_is_told_in_words(seconds, text):
    assert made(every=float(seconds)).when == f"every {text}"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"every": None, "cron": None}, "every"),
        ({"every": "1h", "cron": "* * * * *"}, "every"),
        ({"every": "often"}, "every"),
        ({"every": 0.5}, "every"),
        ({"every": -1}, "every"),
        ({"every": None, "cron": "61 * * * *"}, "cron"),
        ({"every": None, "cron": "0 0 30 2 *"}, "cron"),
        ({"every": None, "cron": ""}, "cron"),
        ({"tz": "Europe/Atlantis"}, "tz"),
        ({"tz": "../etc/passwd"}, "tz"),
        ({"missed": "some"}, "missed"),
        ({"overlap": "maybe"}, "overlap"),
        ({"name": ""}, "schedule"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_named(changes, field):
    given = {"name": "s", "every": "1h", "cron": None, "tz": "UTC", "missed": "one", "overlap": "skip"}
    requested = {**given, **changes}
    with pytest.raises(InvalidInput) as caught:
        checked_schedule(requested.pop("name"), "k", "{}", **requested)
    assert caught.value.field == field
    assert caught.value.remedy
