"""Turns calls into jobs to store: one job, many of one task, or a model job for plain SQL to copy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, overload

from leasehold.domain.checks.ids import LOWEST_ID, checked_id, make_ids
from leasehold.domain.checks.numbers import priority_number
from leasehold.domain.checks.texts import checked_name, checked_trace, fill_template, is_template
from leasehold.domain.checks.times import Duration, checked_instant, seconds
from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import AlikeJobs, NewJob
from leasehold.domain.limits import DefaultLimit, checked_slots, default_rate, rate_template
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.settings import CallSettings, TaskSettings

BATCH_FROM = 50
"""From this many calls on, `make` returns a Batch, which keeps the shared fields once."""


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
    checked here, so that the store can keep every job that it gets."""

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
        full_names: dict[str, str] = {}
        return NewJob(
            id=job_id,
            args=text,
            lane=None if self._lane is None else fill_template(self._lane, known, "lane", full_names),
            unique_key=None
            if self._unique is None
            else fill_template(self._unique, known, "unique", full_names),
            **self._filled(known, full_names),
            **self._common,
            full_names=tuple(sorted(full_names.items())),
        )

    def _filled(self, known: Mapping[str, Any], full_names: dict[str, str]) -> dict[str, Any]:
        filled: dict[str, Any] = {}
        if self._tags is not None:
            filled["tags"] = tuple(fill_template(tag, known, "tags", full_names) for tag in self._tags)
        if self._rate is None and self._slots is None:
            return filled
        limits = self._limits
        if self._slots is not None:
            units: dict[str, int] = {}
            for name, count in self._slots:
                # Two templates may give the same slot: then the job needs the sum of both.
                name = fill_template(name, known, "slots", full_names)
                units[name] = units.get(name, 0) + count
            filled["slots"] = tuple(sorted(units.items()))
            limits = tuple(replace(one, name=fill_template(one.name, known, "slots")) for one in limits)
        if self._rate is not None:
            filled["rate"] = key = fill_template(self._rate, known, "rate", full_names)
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


# -- batches -----------------------------------------------------------------------------------------------------------


class Batch(AlikeJobs):
    """Checks and encodes arguments only when they are needed, so that a store can send one piece while the next is
    prepared. Iterating over it yields the jobs themselves, all of them checked."""

    def __init__(
        self,
        common: Mapping[str, Any],
        ids: Sequence[str],
        calls: Sequence[Mapping[str, Any]],
        encode: Callable[[Mapping[str, Any]], str],
    ) -> None:
        self.ids = ids
        self._common = common
        self._calls = calls
        self._encode = encode
        self._args: list[str] = []
        self._jobs: list[NewJob] | None = None
        self.first = NewJob(id=ids[0], args=self._args_of(0, 1)[0], **common)

    def pieces(self, size: int) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Yield ids and encoded arguments, `size` at a time. Raises at the first job that cannot be stored."""
        for start in range(0, len(self), size):
            yield self.ids[start : start + size], self._args_of(start, start + size)

    def encode(self, number: int) -> None:
        """Check and encode the first `number` jobs now."""
        self._args_of(0, number)

    def with_trace(self, trace: str) -> Batch:
        return Batch({**self._common, "trace": trace}, self.ids, self._calls, self._encode)

    def _args_of(self, start: int, stop: int) -> list[str]:
        known = len(self._args)
        self._args += [self._encode(call) for call in self._calls[known:stop]]
        return self._args[start:stop]

    def _made(self) -> list[NewJob]:
        if self._jobs is None:
            every = zip(self.ids, self._args_of(0, len(self)), strict=True)
            self._jobs = [NewJob(id=job_id, args=args, **self._common) for job_id, args in every]
        return self._jobs

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[NewJob]:
        return iter(self._made())

    @overload
    def __getitem__(self, index: int) -> NewJob: ...

    @overload
    def __getitem__(self, index: slice) -> list[NewJob]: ...

    def __getitem__(self, index: int | slice) -> NewJob | list[NewJob]:
        return self._made()[index]


# -- tasks that plain SQL can enqueue ----------------------------------------------------------------------------------

_BESIDE = ("lane", "unique", "tags", "slots", "rate", "deadline", "start_by", "mirror")
"""Settings that need rows in other tables; most are built from the arguments."""


def job_by_sql(definition: TaskDefinition) -> NewJob:
    """Build a model job of this task for SQL to copy. Raises InvalidInput for settings that SQL cannot apply."""
    settings = definition.settings
    for name in _BESIDE:
        if getattr(settings, name):
            raise InvalidInput(
                name,
                f"task {definition.name!r} has one, and a plain INSERT cannot apply it",
                "let a task without it enqueue this one, or enqueue it from Python",
            )
    if not settings.queueing:
        raise InvalidInput("queueing", f"is off for task {definition.name!r}", "use run-now")
    return NewJob(
        id=LOWEST_ID,
        task=definition.name,
        args="{}",
        queue=settings.queue,
        priority=priority_number(settings.priority),
        lease_seconds=seconds(settings.lease, "lease", positive=True),
        policy=replace(settings.policy(), sensitive=definition.sensitive),
    )
