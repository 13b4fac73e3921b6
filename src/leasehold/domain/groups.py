"""Groups of jobs: their status, results, errors and stops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, cast, get_args

from leasehold.domain.checks.texts import Names
from leasehold.domain.checks.times import Duration
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen, shown
from leasehold.domain.states import LIVE, State
from leasehold.domain.stop import StopMode
from leasehold.domain.stream import Progress, Update

GroupState = Literal["active", "stopped", "held"]
"""`stopped`: someone has stopped the group; the next job reopens it. `held`: it refuses new jobs until released."""


@frozen
class GroupStop:
    """A stop of a group, or of a part of it, with its actor, time and reason."""

    scope: Mapping[str, object]
    """The scope as the caller gave it: `{"group": …, "tasks": …}`."""
    mode: StopMode
    reason: str | None
    actor: str | None
    at: datetime


@frozen
class GroupRow:
    """The stored row of a group."""

    name: str
    state: GroupState
    reason: str | None
    """Why the group was stopped or held."""
    version: int
    changed_by: str | None = None
    """The actor who last stopped, held or released the group."""
    changed_at: datetime | None = None
    last_stop: GroupStop | None = None
    """The last stop of the group or of a part of it; a stop of a part leaves `state` unchanged."""


@frozen(kw_only=True)
class GroupSummary:
    """A group as a list shows it."""

    name: str
    state: GroupState
    reason: str | None
    """Why the group was stopped or held."""
    version: int
    live: int
    """Jobs that can still move by themselves: pending, queued, running, waiting."""
    total: int
    """The number of its jobs, counted up to GROUP_TOTAL_CAP."""
    changed_by: str | None
    changed_at: datetime | None
    last_stop: GroupStop | None

    @shown
    def held(self) -> bool:
        """Whether the group refuses new jobs until it is released."""
        return self.state == "held"


GROUP_TOTAL_CAP = 1000


@frozen
class GroupPage:
    """One page of groups, by name."""

    groups: list[GroupSummary]
    next: str | None
    """The cursor of the next page; None at the end."""


def checked_group_state(state: object) -> GroupState | None:
    if state is None:
        return None
    if state not in get_args(GroupState):
        raise InvalidInput("state", f"{state!r} is not a state of a group", "use active, stopped or held")
    return cast(GroupState, state)


@frozen(kw_only=True)
class StatusRequest:
    """What a caller wants to know about a group, as `group.status` explains it."""

    group: str
    wait: Duration = 0
    since: int | None = None
    tasks: Names = None
    partial: bool = False
    noted: int | None = None


@frozen
class GroupAttempt:
    """A running job of the group, with its progress and partial results."""

    id: str
    task: str
    attempt: int
    progress: Progress | None
    emitted: tuple[Update, ...]
    """Its latest partial results, in order; all running jobs together have at most `cap`."""


@dataclass(frozen=True)
class GroupResult:
    """What a job of the group returned, as plain JSON."""

    id: str
    task: str
    result: Any
    result_ref: str | None = None


class FiledResult(GroupResult):
    """A result that is not in its row. Reading `result` loads it, because a caller that follows a group reads few
    results. It raises ResultMissing if it is gone."""

    _read: Callable[[], Any]

    def __init__(self, id: str, task: str, result_ref: str, read: Callable[[], Any]) -> None:
        for name, value in (("id", id), ("task", task), ("result_ref", result_ref), ("_read", read)):
            object.__setattr__(self, name, value)

    @cached_property
    def result(self) -> Any:
        return self._read()

    def __repr__(self) -> str:
        return f"FiledResult(id={self.id!r}, task={self.task!r}, result_ref={self.result_ref!r})"


@frozen
class GroupError:
    """A job of the group that has failed or timed out."""

    id: str
    task: str
    state: State
    error: str | None


@frozen(kw_only=True)
class GroupStatus:
    """The status of a group at one moment. Pass `version` as `since` to wait for the next change."""

    name: str
    state: GroupState
    reason: str | None
    """Why the group was stopped or held."""
    version: int
    """Grows with every job that comes in or ends, every question, every stop. 0: there is no such group."""
    changed_by: str | None
    """The actor who last stopped, held or released the group."""
    changed_at: datetime | None
    last_stop: GroupStop | None
    """The last stop of the group or of a part of it; a stop of a part leaves `state` unchanged."""
    changed: bool
    """False: the wait timed out before anything changed."""
    total: int
    succeeded: int
    live: int
    """Jobs that can still move by themselves: pending, queued, running, waiting."""
    progress: float
    """The share of all jobs that succeeded, from 0 to 1."""
    counts: Mapping[str, Mapping[State, int]]
    """How many jobs of each task are in each state."""
    results: tuple[GroupResult, ...]
    """Results of the jobs that succeeded, the latest first."""
    errors: tuple[GroupError, ...]
    """Errors of the jobs that failed or timed out, the latest first. They do not make other jobs fail."""
    cap: int
    """Most results and errors that are listed; `counts` has the full numbers."""
    questions: int
    """Open questions of the group's jobs."""
    running: tuple[GroupAttempt, ...] = ()
    """With `partial=True`: the running jobs, at most `cap`, with their progress and partial results."""
    noted: int = 0
    """With `partial=True`: grows with every report of a running job. Pass it as `noted` to wait for more."""

    def __str__(self) -> str:
        state = "" if self.state == "active" else f", {self.state}"
        return f"{self.name}: {self.succeeded} of {self.total} succeeded, {self.live} to go{state}"


def status_of(
    name: str,
    row: GroupRow | None,
    counts: Mapping[str, Mapping[State, int]],
    results: tuple[GroupResult, ...],
    errors: tuple[GroupError, ...],
    *,
    cap: int,
    questions: int,
) -> GroupStatus:
    """Build the status. `row` is the group's stored row; None: there is no such group."""
    row = row or GroupRow(name, "active", None, 0)
    by_state: dict[State, int] = {}
    for states in counts.values():
        for found, number in states.items():
            by_state[found] = by_state.get(found, 0) + number
    total, succeeded = sum(by_state.values()), by_state.get(State.SUCCEEDED, 0)
    return GroupStatus(
        name=name,
        state=row.state,
        reason=row.reason,
        version=row.version,
        changed_by=row.changed_by,
        changed_at=row.changed_at,
        last_stop=row.last_stop,
        changed=True,
        total=total,
        succeeded=succeeded,
        live=sum(by_state.get(found, 0) for found in LIVE),
        progress=succeeded / total if total else 0.0,
        counts=counts,
        results=results,
        errors=errors,
        cap=cap,
        questions=questions,
    )
