"""A group as those who wait for it see it: how far it is, what came out, what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, cast, get_args

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.states import LIVE, State
from leasehold.domain.stop import StopMode
from leasehold.domain.stream import Event, Progress

GroupState = Literal["active", "stopped", "held"]
"""`stopped` tells that somebody has stopped it; the next job reopens it. `held` refuses new jobs until released."""


@frozen
class GroupStop:
    """A stop that has met a group, or a part of it: who, when and why."""

    scope: Mapping[str, object]
    """What it was about, as it was given: `{"group": …, "kinds": …}`."""
    mode: StopMode
    reason: str | None
    actor: str | None
    at: datetime


@frozen
class GroupRow:
    """What is kept of a group itself."""

    name: str
    state: GroupState
    reason: str | None
    """Why it was stopped or held."""
    version: int
    changed_by: str | None = None
    """Who last stopped, held or released it."""
    changed_at: datetime | None = None
    last_stop: GroupStop | None = None
    """Also one of a part of it, which leaves its state as it was."""


@frozen(kw_only=True)
class GroupSummary:
    """A group as a list shows it."""

    name: str
    state: GroupState
    reason: str | None
    """Why it was stopped or held."""
    version: int
    live: int
    """Jobs that can still move by themselves: pending, queued, running, waiting."""
    total: int
    """All of its jobs. At GROUP_TOTAL_CAP there may be more."""
    changed_by: str | None
    changed_at: datetime | None
    last_stop: GroupStop | None

    @property
    def held(self) -> bool:
        """Nothing comes into it until it is released."""
        return self.state == "held"


GROUP_TOTAL_CAP = 1000


@frozen
class GroupPage:
    """One page of groups, by name."""

    groups: list[GroupSummary]
    next: str | None
    """The cursor of the page that follows; None at the end."""


def checked_group_state(state: object) -> GroupState | None:
    if state is None:
        return None
    if state not in get_args(GroupState):
        raise InvalidInput("state", f"{state!r} is not a state of a group", "use active, stopped or held")
    return cast(GroupState, state)


@frozen
class GroupRun:
    """A running job of the group, and what it has reported so far."""

    id: str
    kind: str
    attempt: int
    progress: Progress | None
    emitted: tuple[Event, ...]
    """Its latest partial results, in order; all runs together have at most `cap` of them."""


@dataclass(frozen=True)
class GroupResult:
    """What a job of the group has returned, as plain JSON."""

    id: str
    kind: str
    result: Any
    result_ref: str | None = None


class FiledResult(GroupResult):
    """One whose result is a file: read when `result` is first looked at, for whoever follows a group looks at few of
    them. That raises ResultMissing if the file is gone."""

    _read: Callable[[], Any]

    def __init__(self, id: str, kind: str, result_ref: str, read: Callable[[], Any]) -> None:
        for name, value in (("id", id), ("kind", kind), ("result_ref", result_ref), ("_read", read)):
            object.__setattr__(self, name, value)

    @cached_property
    def result(self) -> Any:
        return self._read()

    def __repr__(self) -> str:
        return f"FiledResult(id={self.id!r}, kind={self.kind!r}, result_ref={self.result_ref!r})"


@frozen
class GroupError:
    """A job of the group that has failed or timed out."""

    id: str
    kind: str
    state: State
    error: str | None


@frozen(kw_only=True)
class GroupStatus:
    """A group at one moment. Give `version` back as `since` to wait for what comes after it."""

    name: str
    state: GroupState
    reason: str | None
    """Why it was stopped or held."""
    version: int
    """Moves with every job that comes in or ends, every question, every stop. 0: there is no such group."""
    changed_by: str | None
    """Who last stopped, held or released it."""
    changed_at: datetime | None
    last_stop: GroupStop | None
    """Also one of a part of it, which leaves its state as it was."""
    changed: bool
    """False: the wait was over before anything happened."""
    total: int
    succeeded: int
    live: int
    """Jobs that can still move by themselves: pending, queued, running, waiting."""
    progress: float
    """Succeeded of all, from 0 to 1."""
    counts: Mapping[str, Mapping[State, int]]
    """How many jobs of each kind are in each state."""
    results: tuple[GroupResult, ...]
    """Of the jobs that have succeeded, the latest first."""
    errors: tuple[GroupError, ...]
    """Of those that have failed or timed out, the latest first. They fail nobody else."""
    cap: int
    """At most so many results and errors are listed; `counts` has how many there are."""
    questions: int
    """Open ones, that somebody has to answer."""
    runs: tuple[GroupRun, ...] = ()
    """With `partial=True`: those that run, at most `cap`, with their progress and partial results."""
    noted: int = 0
    """With `partial=True`: moves with what the runs report. Give it back as `noted` to wait for more."""

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
    """`row` is the group's own. None: nobody has heard of it."""
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
