"""Schedules: the ticks that make jobs of a task, and what happens to missed ticks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from leasehold.domain.checks.texts import check_choice, checked_name
from leasehold.domain.checks.times import Duration, duration_text, seconds
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen

Missed = Literal["one", "skip", "all"]
"""What happens to ticks that were missed because no worker ran: one job for all of them, none, or one for each."""
Overlap = Literal["skip", "allow", "replace"]
"""What happens to a tick while the previous tick's job is live: no job, a second job, or a job that replaces it."""
Source = Literal["code", "set"]
"""Where a schedule comes from: `@app.schedule` in code, or set at run time."""

MISSED_AFTER = 60.0
"""With `missed="skip"`, a tick that is later than this many seconds was missed."""
MOST_TICKS = 100
"""Most missed ticks that one transaction makes up for; the next transaction follows at once."""
SHORTEST = 1.0
TICK_ARGUMENT = "tick"
"""A task's argument of this name gets the time of the tick."""


@frozen(kw_only=True)
class Schedule:
    """A schedule: a task, and when it is due."""

    name: str
    """The name of the schedule in lists and verbs; by default, the task's name."""
    task: str
    args: str = "{}"
    """The arguments of its jobs. A task's argument called `tick` gets the time of the tick."""
    every: float | None = None
    cron: str | None = None
    tz: str = "UTC"
    missed: Missed = "one"
    overlap: Overlap = "skip"
    at_start: bool = False
    """Whether there is also a tick when the first worker starts."""

    @property
    def when(self) -> str:
        """When it is due, in words."""
        if self.every is not None:
            return f"every {duration_text(self.every)}"
        return f"{self.cron} ({self.tz})"

    def same_ticks(self, other: Schedule) -> bool:
        """Whether both are due at the same times, whatever else differs."""
        return (self.every, self.cron, self.tz) == (other.every, other.cron, other.tz)

    def next_after(self, instant: datetime) -> datetime:
        """The first tick after this instant. Ticks by interval count from the instant."""
        return next(self.ticks_after(instant))

    def upcoming(self, next_at: datetime, count: int) -> list[datetime]:
        """The next tick and the ticks that follow it, `count` in all."""
        found = [next_at]
        ticks = self.ticks_after(next_at)
        while len(found) < count:
            found.append(next(ticks))
        return found

    def ticks_after(self, instant: datetime) -> Iterator[datetime]:
        """All ticks after this instant, without end."""
        if self.every is not None:
            step = timedelta(seconds=self.every)
            while True:
                instant += step
                yield instant
        for tick in CronSim(self.cron or "", instant.astimezone(_zone(self.tz))):
            yield tick.astimezone(UTC)


def cron_in_words(cron: str) -> str:
    """Explain the expression in words, such as `At 03:00 every day`. Empty if it cannot be explained."""
    try:
        return str(CronSim(cron, datetime(2026, 1, 1, tzinfo=UTC)).explain())
    except (CronSimError, ValueError, KeyError, IndexError):
        return ""


class Turn(NamedTuple):
    """The decision on a schedule that is due."""

    ticks: list[datetime]
    """The ticks that make one job each."""
    passed: int
    """How many ticks make no job."""
    next_at: datetime


def turn(schedule: Schedule, next_at: datetime, now: datetime) -> Turn:
    """Decide which due ticks make jobs. `next_at`, which is due, is the first tick not handled yet."""
    if schedule.missed == "all":
        due = [tick for tick in schedule.upcoming(next_at, MOST_TICKS + 1) if tick <= now]
        due = due[:MOST_TICKS]
        return Turn(due, 0, schedule.next_after(due[-1]))
    last, count = _last_due(schedule, next_at, now)
    fires = schedule.missed == "one" or (now - last).total_seconds() <= MISSED_AFTER
    return Turn([last] if fires else [], count - fires, schedule.next_after(last))


def _last_due(schedule: Schedule, next_at: datetime, now: datetime) -> tuple[datetime, int]:
    """Return the last tick that is due, and how many are. After a long outage there may be millions, so it skips over
    ticks where it can."""
    if schedule.every is not None:
        more = int((now - next_at).total_seconds() // schedule.every)
        return next_at + more * timedelta(seconds=schedule.every), more + 1
    count, last = 1, next_at
    for tick in schedule.upcoming(next_at, MOST_TICKS + 1)[1:]:
        if tick > now:
            return last, count
        count, last = count + 1, tick
    # Start one second after now: reverse ticks come before the given instant, never at it.
    start = (now + timedelta(seconds=1)).astimezone(_zone(schedule.tz))
    found = next(CronSim(schedule.cron or "", start, reverse=True)).astimezone(UTC)
    last = max(last, found)
    # When clocks go back, reverse ticks leave out the first pass of the repeated hour.
    for tick in schedule.ticks_after(last):
        if tick > now:
            break
        last = tick
    return last, count


def checked_schedule(
    name: str,
    task: str,
    args: str,
    *,
    every: Duration | None,
    cron: str | None,
    tz: str,
    missed: Missed,
    overlap: Overlap,
    at_start: bool = False,
) -> Schedule:
    """Return the schedule, or raise an error that names what is wrong with it."""
    if (every is None) == (cron is None):
        raise InvalidInput(
            "every", "exactly one of every and cron is needed", 'use every="15m" or cron="0 3 * * *"'
        )
    check_choice("missed", missed, Missed)
    check_choice("overlap", overlap, Overlap)
    step = None if every is None else seconds(every, "every", positive=True)
    if step is not None and step < SHORTEST:
        raise InvalidInput("every", f"{step:g} s is too often", f"give {SHORTEST:g} second or more")
    _zone(tz)
    if cron is not None:
        _check_cron(cron)
    return Schedule(
        name=checked_name(name, "schedule"),
        task=task,
        args=args,
        every=step,
        cron=cron,
        tz=tz,
        missed=missed,
        overlap=overlap,
        at_start=bool(at_start),
    )


def _check_cron(cron: object) -> None:
    remedy = 'use five fields, such as "0 3 * * *" for three in the morning'
    try:
        next(CronSim(str(cron), datetime(2026, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        raise InvalidInput("cron", f"{cron!r} cannot be read ({error})", remedy) from None
    except StopIteration:
        raise InvalidInput("cron", f"{cron!r} names a day that never comes", remedy) from None


def _zone(tz: object) -> ZoneInfo:
    try:
        return ZoneInfo(str(tz))
    except (KeyError, ValueError, OSError):
        raise InvalidInput(
            "tz",
            f"{tz!r} is not a time zone that is known here",
            'use a name such as "Europe/Berlin"; a machine without time zones needs `pip install tzdata`',
        ) from None
