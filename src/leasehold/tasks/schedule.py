"""Schedules of tasks: checked where they are declared, and the job of one tick."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from typing_extensions import TypedDict

from leasehold.domain.checks.payload import encode
from leasehold.domain.checks.times import Duration
from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import NewJob
from leasehold.domain.schedules import TICK_ARGUMENT, Missed, Overlap, Schedule, checked_schedule
from leasehold.tasks.blueprint import Blueprint
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.settings import CallSettings


class ScheduleOptions(TypedDict, total=False):
    """When a schedule is due, and what happens to ticks that were missed or overlap: keywords of `@app.schedule` and
    `app.schedules.set`."""

    every: Duration | None
    """The time between two ticks, such as "15m"; at least one second."""
    cron: str | None
    """A cron expression, such as `"0 3 * * *"`, instead of `every`."""
    tz: str
    """The time zone of `cron`, such as "Europe/Berlin"."""
    missed: Missed
    """What happens to ticks that came while no worker ran: "one" job for all of them, "skip" them, or a job for "all"
    of them."""
    overlap: Overlap
    """What a tick does while the previous tick's job is live: "skip" it, "allow" both, or "replace" the old one."""


def schedule_for(
    definition: TaskDefinition,
    name: str | None,
    args: Mapping[str, Any] | None,
    when: ScheduleOptions,
    at_start: bool = False,
) -> Schedule:
    """Build the schedule, and raise at its declaration rather than at its first tick."""
    given = dict(args or {})
    for argument in definition.settings.sensitive:
        if argument in given:
            raise InvalidInput(
                "args",
                f"{argument!r} is sensitive, and what a schedule is given is shown in every list of schedules",
                "let the handler of the tick look it up",
            )
    schedule = checked_schedule(
        name or definition.name,
        definition.name,
        encode(given, "args"),
        every=when.get("every"),
        cron=when.get("cron"),
        tz=when.get("tz", "UTC"),
        missed=when.get("missed", "one"),
        overlap=when.get("overlap", "skip"),
        at_start=at_start,
    )
    some_tick = datetime.fromisoformat("2026-01-01T00:00:00Z")
    checked = json.loads(definition.encode_arguments(_with_tick(definition, given, some_tick)))
    if TICK_ARGUMENT not in given:
        checked.pop(TICK_ARGUMENT, None)
    return replace(schedule, args=encode(checked, "args"))


def tick_job(definition: TaskDefinition, schedule: Schedule, tick: datetime) -> NewJob:
    """Build the job of a tick with the task's settings. It is due at the tick, and has the schedule's name as a tag."""
    arguments = _with_tick(definition, json.loads(schedule.args), tick)
    (job,) = Blueprint(definition, definition.settings, CallSettings(at=tick)).make([arguments])
    return replace(job, tags=tuple(dict.fromkeys((*job.tags, schedule.name))))


def _with_tick(definition: TaskDefinition, given: Mapping[str, Any], tick: datetime) -> dict[str, Any]:
    if TICK_ARGUMENT in definition.parameters and TICK_ARGUMENT not in given:
        return {**given, TICK_ARGUMENT: tick.isoformat()}  # as text: without an annotation it is plain JSON
    return dict(given)
