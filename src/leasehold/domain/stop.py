"""Stops: which jobs a stop concerns, what it does to each, and what it reports.

    mode        pending, queued, waiting, paused      running                                 the call
    graceful    cancelled at once                     flagged `finish`: ends, not retried     waits for them
    immediate   cancelled at once                     flagged `cancel`                        returns
    full        cancelled at once                     flagged `cancel`                        waits for them

Jobs that have ended, with or without success, stay unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, field
from datetime import datetime
from typing import Literal, NamedTuple, TypedDict, get_args

from leasehold.domain import operate
from leasehold.domain.checks.texts import (
    Names,
    checked_actor,
    checked_name,
    checked_names,
    checked_reason,
    storable_name,
)
from leasehold.domain.checks.times import Duration, seconds
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job, NewJob
from leasehold.domain.outcome import Move
from leasehold.domain.states import State

StopMode = Literal["graceful", "immediate", "full"]
STOPPABLE = (State.PENDING, State.QUEUED, State.RUNNING, State.WAITING, State.PAUSED)


@frozen(kw_only=True)
class StopScope:
    """Which jobs a stop concerns. A job must match every criterion, and have all of the tags."""

    group: str | None = None
    queue: str | None = None
    tasks: tuple[str, ...] | None = None
    lane: str | None = None
    tags: tuple[str, ...] = ()
    everything: bool = False

    @property
    def whole_group(self) -> bool:
        return self.group is not None and self == StopScope(group=self.group)

    def covers(self, job: NewJob) -> bool:
        return (
            (self.group is None or job.group == self.group)
            and (self.queue is None or job.queue == self.queue)
            and (self.tasks is None or job.task in self.tasks)
            and (self.lane is None or job.lane == self.lane)
            and set(self.tags) <= set(job.tags)
        )

    def as_dict(self) -> dict[str, object]:
        """Return only the criteria that were given, as JSON has them."""
        given = {name: value for name, value in asdict(self).items() if value not in (None, (), False)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}

    def dump(self) -> str:
        return json.dumps(self.as_dict(), sort_keys=True)

    @classmethod
    def load(cls, text: str) -> StopScope:
        values = json.loads(text)
        lists = {name: tuple(values[name]) for name in ("tasks", "tags") if name in values}
        return cls(**(values | lists))


class StopManner(TypedDict, total=False):
    """How to stop: the keywords of `group.stop`. `StopRequest` explains them."""

    mode: StopMode
    reason: str | None
    wait: Duration
    dry_run: bool
    hold: bool
    actor: str | None


class StopOptions(StopManner, total=False):
    """What to stop, and how: the keywords of `app.stop`."""

    group: str | None
    queue: str | None
    tasks: Names
    lane: str | None
    tags: Names
    everything: bool


@frozen(kw_only=True)
class StopRequest:
    """A stop as the caller requested it. Building one checks it, and raises on a wrong value."""

    group: str | None = None
    queue: str | None = None
    tasks: Names = None
    lane: str | None = None
    tags: Names = None
    everything: bool = False
    """Confirms a stop of everything."""
    mode: StopMode = "graceful"
    reason: str | None = None
    wait: Duration = 30
    """How long to wait for running jobs; not used in the mode immediate."""
    dry_run: bool = False
    """Report what would happen; change nothing."""
    hold: bool = False
    """Refuse new jobs until the group is released."""
    actor: str | None = None
    scope: StopScope = field(init=False)
    longest: float = field(init=False)
    """`wait` in seconds."""

    def __post_init__(self) -> None:
        scope = StopScope(
            group=None if self.group is None else checked_name(self.group, "group"),
            queue=None if self.queue is None else checked_name(self.queue, "queue"),
            tasks=checked_names(self.tasks, "tasks"),
            lane=None if self.lane is None else storable_name(self.lane, "lane"),
            tags=checked_names(self.tags, "tags") or (),
            everything=self.everything,
        )
        object.__setattr__(self, "scope", checked_scope(scope, hold=self.hold))
        object.__setattr__(self, "longest", seconds(self.wait, "wait"))
        checked_mode(self.mode)
        checked_reason(self.reason)
        checked_actor(self.actor)


class StopMark(NamedTuple):
    """A stop that has reached a running job: follow-ups of the job in this scope must not run."""

    scope: StopScope
    reason: str | None
    actor: str | None


class StoppedJob(NamedTuple):
    """A job that a stop concerns, and the state it was in."""

    id: str
    task: str
    state: State


@frozen(kw_only=True)
class StopReport:
    """What a stop has done, or with `dry_run` would do."""

    scope: Mapping[str, object]
    mode: StopMode
    reason: str | None
    cancelled_counts: Mapping[str, Mapping[State, int]]
    """Jobs by task and by the state each was in. `running` appears in the modes immediate and full: these jobs were
    flagged to stop at once."""
    flagged: Mapping[str, int]
    """Running jobs by task that were flagged to stop, or with graceful to finish without another try."""
    still_running: Sequence[str]
    """The flagged jobs that had not ended when the call returned."""
    unaffected_tasks: Sequence[str]
    """Known tasks that the stop does not concern."""
    held: bool
    """The group takes no new jobs until it is released."""
    dry_run: bool

    @property
    def cancelled(self) -> int:
        """How many jobs were cancelled at once."""
        return sum(number for states in self.cancelled_counts.values() for number in states.values())

    def __str__(self) -> str:
        done = "would be cancelled" if self.dry_run else "cancelled"
        left = f", {len(self.still_running)} still running" if self.still_running else ""
        return f"{self.cancelled} {done}, {sum(self.flagged.values())} requested to stop{left}"


def checked_scope(scope: StopScope, *, hold: bool) -> StopScope:
    """Check that a stop of everything is confirmed, and that only a group is held."""
    if scope.tasks is not None and not scope.tasks:
        raise InvalidInput("tasks", "is empty", "name at least one task, or leave it out")
    criteria = scope.as_dict()
    if not criteria:
        raise InvalidInput(
            "stop", "has no scope", "give group, queue, tasks, lane or tags, or everything=True"
        )
    if scope.everything and len(criteria) > 1:
        raise InvalidInput("everything", "cannot be given together with a narrower scope", "give one of them")
    if hold and not scope.whole_group:
        raise InvalidInput(
            "hold",
            "is only for whole groups",
            "stop the group without other criteria, or pause the queue or the task instead",
        )
    return scope


def check_tasks(scope: StopScope, registered: Collection[str], stored: Collection[str]) -> None:
    """Refuse an unknown task: it is likely a typing error, and a stop of nothing would hide it. The store knows the
    tasks that other programs have enqueued."""
    for task in scope.tasks or ():
        if task not in registered and task not in stored:
            listed = ", ".join(sorted(registered or stored)[:20]) or "none"
            raise InvalidInput("tasks", f"no task is named {task!r}", f"known: {listed}")


def checked_mode(mode: object) -> StopMode:
    known: tuple[StopMode, ...] = get_args(StopMode)
    for one in known:
        if mode == one:
            return one
    raise InvalidInput("mode", f"{mode!r} is not known", "use " + ", ".join(map(repr, known)))


def decide(job: Job, mode: StopMode, *, now: datetime, actor: str | None, reason: str | None) -> Move | None:
    """Decide what the stop does to a job in its scope. None: the job has already ended."""
    if job.state not in STOPPABLE:
        return None
    if job.state is State.RUNNING and mode == "graceful":
        return operate.finish(job, now=now, actor=actor, reason=reason)
    return operate.cancel(job, now=now, actor=actor, reason=reason)


def cancels(mode: StopMode, state: State) -> bool:
    """Return whether a job found in this state counts as cancelled."""
    return state is not State.RUNNING or mode != "graceful"
