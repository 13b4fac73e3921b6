"""From a call to a stored job: bind, check, encode, then one transaction."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from leasehold.domain.durations import Duration, seconds
from leasehold.domain.errors import InvalidInput
from leasehold.domain.ids import checked_id, make_id
from leasehold.domain.job import NewJob, OnParentFailure
from leasehold.domain.payload import encode
from leasehold.engine.registry import (
    TaskDefinition,
    TaskSettings,
    checked_name,
    fill_template,
    priority_number,
)


def new_id() -> str:
    return make_id(time.time_ns() // 1_000_000, os.urandom(10))


class HasId(Protocol):
    """A job, or a follow-up that will be one."""

    @property
    def id(self) -> str: ...


After = str | HasId


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """What only a single call may say, beside the task's own settings."""

    delay: Duration = 0
    at: datetime | None = None
    hold: bool = False
    group: str | None = None
    trace: str | None = None
    after: tuple[str, ...] = ()
    """Ids of jobs that must end before this one may run."""
    on_failure: OnParentFailure = "cancel"
    """What it does when one of them ends without success. (`halt` and `skip` are the task's own `on_failure`.)"""
    now: bool = False
    """As a follow-up: stored at once, not with the success."""
    key: str | None = None
    """Names such a follow-up, so that a second run of its parent meets it."""


def make_job(
    definition: TaskDefinition,
    settings: TaskSettings,
    call: CallSettings,
    arguments: Mapping[str, Any],
) -> NewJob:
    """Everything is checked here, so that what reaches the store can be stored."""
    checked = definition.check(arguments)
    if call.at is not None and getattr(call.at, "tzinfo", None) is None:
        raise InvalidInput("at", f"{call.at!r} has no time zone", "give an aware datetime")
    return NewJob(
        id=new_id(),
        kind=definition.name,
        args=encode(checked, definition.name),
        queue=settings.queue,
        priority=priority_number(settings.priority),
        delay=seconds(call.delay, "delay"),
        at=call.at,
        hold=call.hold,
        lane=_filled(settings.lane, checked, "lane", definition),
        unique_key=_filled(settings.unique, checked, "unique", definition),
        unique_for=settings.unique_for,
        on_duplicate=settings.on_duplicate,
        lease_seconds=seconds(settings.lease, "lease", positive=True),
        policy=settings.policy(),
        group=None if call.group is None else checked_name(call.group, "group"),
        tags=tuple(settings.tags),
        deadline=None if settings.deadline is None else seconds(settings.deadline, "deadline", positive=True),
        start_by=None if settings.start_by is None else seconds(settings.start_by, "start_by", positive=True),
        trace=call.trace,
        after=call.after,
        on_parent_failure=call.on_failure,
    )


def checked_parents(after: Iterable[After]) -> tuple[str, ...]:
    """Ids in their one spelling, each once."""
    if isinstance(after, str) or not isinstance(after, Iterable):
        raise InvalidInput("after", f"{after!r} is one job", "give a list: after=[job]")
    return tuple(dict.fromkeys(checked_id(getattr(one, "id", one), "after") for one in after))


def _filled(
    template: str | None, arguments: Mapping[str, Any], field: str, definition: TaskDefinition
) -> str | None:
    if template is None:
        return None
    return fill_template(template, definition.with_defaults(arguments), field)
