"""Schedules page: the list of schedules, their next ticks, and the details of one."""

from __future__ import annotations

import functools
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from leasehold.domain.errors import InvalidInput, ScheduleNotFound
from leasehold.domain.frozen import frozen
from leasehold.domain.records import ScheduleRow
from leasehold.domain.schedules import Schedule, cron_in_words
from leasehold.operations import schedules
from leasehold.surfaces.dashboard.page import Action, DashboardPage, Done, action_of
from leasehold.surfaces.dashboard.page_request import Form, PageRequest
from leasehold.surfaces.dashboard.render import Badge, mark, span, tree_of_text

RUNS = 10
OF_EACH = 3
"""Ticks of one schedule among the next ticks of all: a frequent schedule must leave room for others."""
MISSED = {
    "one": "one job makes up for all of them",
    "skip": "they are skipped",
    "all": "each of them gets its job",
}
OVERLAP = {
    "skip": "the tick makes no job",
    "allow": "the tick makes a second job",
    "replace": "the job is cancelled, and the tick makes another",
}


@frozen
class Tick:
    at: datetime
    local: str
    """The time in the schedule's own zone."""
    short: str


@frozen
class Line:
    row: ScheduleRow
    look: Badge
    words: str
    """When it is due, in words."""
    ticks: tuple[Tick, ...]
    """The next ticks; none while it is paused or orphaned."""
    trouble: str = ""
    """Why the next ticks are unknown."""


def read(page_request: PageRequest) -> dict[str, Any]:
    page_request.caller.check_all_queues()
    now = page_request.operations.now()
    lines = [line_of(row, now) for row in page_request.operations.call(schedules.list_schedules)]
    lines.sort(key=lambda line: (line.row.paused or line.row.orphaned, line.row.next_at, line.row.name))
    name = page_request.request.query_params.get("name")
    chosen = next((line for line in lines if line.row.name == name), None)
    if name and chosen is None:
        raise ScheduleNotFound(name)
    coming = sorted(
        ((tick, line) for line in lines for tick in line.ticks[:OF_EACH]), key=lambda one: one[0].at
    )
    return {
        "now": now,
        "mark": mark,
        "lines": lines,
        "chosen": chosen,
        "args": tree_of_text(chosen.row.args) if chosen else None,
        "coming": coming[:RUNS],
        "of_each": OF_EACH,
        "paused": sum(line.row.paused for line in lines),
        "orphaned": sum(line.row.orphaned for line in lines),
        "missed": MISSED,
        "overlap": OVERLAP,
    }


def line_of(row: ScheduleRow, now: datetime) -> Line:
    words = when_in_words(row)
    if row.orphaned:
        note = "its code is gone: no live worker declares it, so it makes no jobs"
        return Line(row, Badge("warn", "orphaned", note), words, ())
    if row.paused:
        return Line(row, Badge("paused", "paused", "no ticks until it is resumed"), words, ())
    try:
        ticks = upcoming(row.every, row.cron, row.tz, row.next_at)
    except (InvalidInput, StopIteration, OverflowError) as error:
        return Line(row, Badge("ok", "on"), words, (), str(error) or "its next ticks are unknown")
    if (now - row.next_at).total_seconds() > 60:
        return Line(
            row, Badge("warn", "late", "a tick is due, and no worker has handled it yet"), words, ticks
        )
    return Line(row, Badge("ok", "on"), words, ticks)


@functools.lru_cache(maxsize=2048)
def upcoming(every: float | None, cron: str | None, tz: str, next_at: datetime) -> tuple[Tick, ...]:
    """The next ticks, cached because a stream needs the same ones every second. Raises InvalidInput for a time zone
    that is unknown here."""
    schedule = Schedule(name="", task="", every=every, cron=cron, tz=tz)
    ticks = schedule.upcoming(next_at, RUNS)
    zone = ZoneInfo(tz)
    return tuple(_tick(at, at.astimezone(zone)) for at in ticks)


def _tick(at: datetime, local: datetime) -> Tick:
    return Tick(at, f"{local:%a %Y-%m-%d %H:%M:%S %Z}", f"{local:%a} {local.day} {local:%b, %H:%M %Z}")


def when_in_words(row: ScheduleRow) -> str:
    if row.every is not None:
        return f"Every {span(row.every)}"
    return _cron_in_words(row.cron or "")


_cron_in_words = functools.lru_cache(maxsize=1024)(cron_in_words)


# -- verbs ---------------------------------------------------------------------------------------------------------
def _pause(page_request: PageRequest, form: Form) -> Done:
    page_request.caller.check_all_queues()
    name = form.text("name")
    page_request.operations.call(
        schedules.pause_schedule, name, form.maybe("reason"), actor=page_request.caller.actor
    )
    return Done(f"The schedule {name} is paused.")


def _resume(page_request: PageRequest, form: Form) -> Done:
    page_request.caller.check_all_queues()
    name = form.text("name")
    resumed = page_request.operations.call(schedules.resume_schedule, name, actor=page_request.caller.actor)
    return Done(f"The schedule {name} is resumed." if resumed else f"The schedule {name} was not paused.")


def _run(page_request: PageRequest, form: Form) -> Done:
    page_request.caller.check_all_queues()
    name = form.text("name")
    job = page_request.caller.view.__internals__.run_schedule(name, page_request.caller.actor)
    return Done(f"Created job {job.id}. The schedule itself is unchanged.")


def _delete(page_request: PageRequest, form: Form) -> Done:
    page_request.caller.check_all_queues()
    name = form.text("name")
    page_request.operations.call(schedules.delete_schedule, name, actor=page_request.caller.actor)
    return Done(f"The schedule {name} is deleted. Its jobs stay.", page_request.url("schedules"))


PAGE = DashboardPage("schedules", "schedules", "schedules.html", read)
ACTIONS: tuple[Action, ...] = (
    action_of(schedules.pause_schedule, _pause),
    action_of(schedules.resume_schedule, _resume),
    Action("schedule.run", "operate", _run),
    action_of(schedules.delete_schedule, _delete),
)
