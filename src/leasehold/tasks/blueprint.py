"""Turns calls into jobs to store: binds, checks and encodes their arguments."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.ids import checked_id, make_ids
from leasehold.domain.checks.instants import checked_instant
from leasehold.domain.checks.names import checked_name
from leasehold.domain.checks.numbers import priority_number
from leasehold.domain.checks.templates import fill_template, is_template
from leasehold.domain.checks.texts import checked_trace
from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import NewJob
from leasehold.domain.limits import DefaultLimit, checked_slots, default_rate, rate_template
from leasehold.tasks.batch import Batch
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.settings import CallSettings, TaskSettings

BATCH_FROM = 50
"""From this many calls on, a batch is made, which keeps the shared fields once."""


def new_ids(count: int) -> list[str]:
    """Make ids when they are needed, never in advance: after a fork both processes would use the same reserve."""
    return make_ids(time.time_ns() // 1_000_000, os.urandom(10 * count))


class HasId(Protocol):
    """A job, or a follow-up that will become one."""

    @property
    def id(self) -> str: ...


After = str | HasId


class Blueprint:
    """How calls of one task with the same settings become jobs: the shared fields are computed once. Everything is
    checked here, so that the store can keep whatever reaches it."""

    def __init__(
        self, definition: TaskDefinition, settings: TaskSettings, call: CallSettings, *, at_once: bool = False
    ) -> None:
        if not settings.queueing and not at_once:
            raise InvalidInput(
                "queueing",
                f"is off for task {definition.name!r}",
                "call app.run_now: it starts or is refused",
            )
        self._definition = definition
        self._lane = settings.lane
        self._unique = settings.unique
        self._rate = rate_template(settings.rate)
        self._default_rate = default_rate(settings.rate)
        slots, self._limits = checked_slots(settings.slots)
        tags = tuple(settings.tags)
        self._tags = tags if any(map(is_template, tags)) else None
        self._slots = slots if any(is_template(name) for name, _ in slots) else None
        policy = settings.policy_of_call(definition.settings)
        self._common: dict[str, Any] = {
            "task": definition.name,
            "queue": settings.queue,
            "priority": priority_number(settings.priority),
            "delay": seconds(call.delay, "delay"),
            "at": None if call.at is None else checked_instant(call.at, "at"),
            "hold": call.hold,
            "unique_for": settings.unique_for,
            "on_duplicate": settings.on_duplicate,
            "lease_seconds": seconds(settings.lease, "lease", positive=True),
            "policy": replace(policy, sensitive=definition.sensitive) if definition.sensitive else policy,
            "group": None if call.group is None else checked_name(call.group, "group"),
            "tags": tags,
            "deadline": _seconds(settings.deadline, "deadline"),
            "start_by": _seconds(settings.start_by, "start_by"),
            "trace": checked_trace(call.trace),
            "after": call.after,
            "on_parent_failure": call.on_parent_failure,
        }
        if self._tags is not None:
            del self._common["tags"]
        if slots and self._slots is None:
            self._common["slots"] = slots
        if self._rate is None and self._slots is None and self._limits:
            self._common["limits"] = self._limits
        named = (self._lane, self._unique, self._rate, self._tags, self._slots)
        self._is_named = any(part is not None for part in named)

    def make(self, calls: Sequence[Mapping[str, Any]]) -> Sequence[NewJob]:
        """Make a job for each of these arguments."""
        ids = new_ids(len(calls))
        if not self._is_named:
            encoded = self._definition.encode_arguments
            if len(calls) >= BATCH_FROM:
                return Batch(self._common, ids, calls, encoded)
            return [
                NewJob(id=job_id, args=encoded(arguments), **self._common)
                for job_id, arguments in zip(ids, calls, strict=True)
            ]
        return [self._make_named(job_id, arguments) for job_id, arguments in zip(ids, calls, strict=True)]

    def _make_named(self, job_id: str, arguments: Mapping[str, Any]) -> NewJob:
        """Make a job whose lane, key, rate, tags or slots are built from its arguments."""
        text, known = self._definition.encode_named(arguments)
        long: dict[str, str] = {}
        return NewJob(
            id=job_id,
            args=text,
            lane=None if self._lane is None else fill_template(self._lane, known, "lane", long),
            unique_key=None if self._unique is None else fill_template(self._unique, known, "unique", long),
            **self._filled(known, long),
            **self._common,
            long_names=tuple(sorted(long.items())),
        )

    def _filled(self, known: Mapping[str, Any], long: dict[str, str]) -> dict[str, Any]:
        filled: dict[str, Any] = {}
        if self._tags is not None:
            filled["tags"] = tuple(fill_template(tag, known, "tags", long) for tag in self._tags)
        if self._rate is None and self._slots is None:
            return filled
        limits = self._limits
        if self._slots is not None:
            units: dict[str, int] = {}
            for name, count in self._slots:
                # Two templates may give the same slot: then the job needs the sum of both.
                name = fill_template(name, known, "slots", long)
                units[name] = units.get(name, 0) + count
            filled["slots"] = tuple(sorted(units.items()))
            limits = tuple(replace(one, name=fill_template(one.name, known, "slots")) for one in limits)
        if self._rate is not None:
            filled["rate"] = key = fill_template(self._rate, known, "rate", long)
            if self._default_rate is not None:
                text, spacing, burst = self._default_rate
                limits = (*limits, DefaultLimit(key, text=text, spacing=spacing, burst=burst))
        return {**filled, "limits": limits}


def _seconds(duration: Duration | None, field: str) -> float | None:
    return None if duration is None else seconds(duration, field, positive=True)


def checked_parents(after: Iterable[After]) -> tuple[str, ...]:
    """Return ids in their canonical spelling, each once."""
    if isinstance(after, str) or not isinstance(after, Iterable):
        raise InvalidInput("after", f"{after!r} is one job", "give a list: after=[job]")
    return tuple(dict.fromkeys(checked_id(getattr(one, "id", one), "after") for one in after))
