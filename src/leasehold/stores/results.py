"""Plain values that workers and the operator's verbs exchange with a store, the same on every database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, NamedTuple

from leasehold.domain.errors import RunningJob
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Enqueued, Job, Sighting
from leasehold.domain.outcome import Outcome
from leasehold.domain.search import FailedJob
from leasehold.domain.states import State
from leasehold.domain.stop import StoppedJob

Order = Literal["mixed", "turns", "strict"]
"""How a claim serves several queues."""


class Once(NamedTuple):
    """The jobs that a request made, now or when it came first."""

    jobs: list[Enqueued]
    repeated: bool


class Ending(NamedTuple):
    """How the attempt under this token ended."""

    id: str
    token: int
    outcome: Outcome
    seq: int | None = None
    """As in the grant; without it the store has to look it up."""
    special: int = 0
    """As in the grant; the store finds out whether it has changed since."""


@frozen
class Settled:
    accepted: list[str]
    fenced: list[str]
    """The lease was lost before: nothing was written."""
    not_serializable: list[str]
    """Accepted, but as failed: the database refused the result."""
    locked: list[str] = field(default_factory=list)
    """Still held, but their rows are locked: nothing was written. Only for a settle that does not wait."""
    freed: bool = False
    """Follow-ups were made, jobs that others wait for have ended, or slots are free again: there may be new work."""
    decided: Mapping[str, Job] = field(default_factory=dict, compare=False)
    """Jobs whose end was not a plain success, as they are now."""
    unanswered: list[str] = field(default_factory=list)
    """Their tenant is in trouble: these endings may be stored or not. Only a store of many tenants says so; one store
    raises."""


@frozen
class Unwritten:
    """Leases (id, token) of which nothing was written."""

    lost: list[tuple[str, int]]
    locked: list[tuple[str, int]]
    """Still held, but their rows are locked."""


@frozen
class ClaimDenied:
    """A claim by id that was not granted. With a `sighting`, the lease has run out: claim again with it after ttl/3."""

    id: str
    state: State | None
    why: str
    sighting: Sighting | None = None
    retry_in: float | None = None
    """Seconds after which to try again, by the store's clock. None: the job is at rest, or waits until someone acts on
    it."""


@frozen
class Full:
    """The task has no room for another running job. `holders`: the running jobs, oldest first."""

    holders: tuple[RunningJob, ...]
    retry_after: float
    """Seconds; a hint."""


@frozen
class Stoppable:
    """One page of the jobs in a stop's scope, newest first."""

    jobs: list[StoppedJob]
    next: str | None
    """Where the next look starts; None at the end."""


class FailedPage(NamedTuple):
    """One page of failed jobs, newest first."""

    jobs: list[FailedJob]
    next: str | None
    """Where the next look starts; None at the end."""


@frozen
class Pruned:
    deleted: int
    """The number of jobs; in a dry run, of jobs that would be deleted."""
    next: str | None
    """Where the next batch starts; None when there is nothing more to look at."""
    counts: Mapping[tuple[str, State], int] = field(default_factory=dict)
    """The jobs by task and state."""
    groups: int = 0
    """The number of groups deleted with the last of their jobs."""


@frozen
class Acquired:
    """The result of `acquire`, for a slot or a rate."""

    what: Literal["slot", "rate"]
    granted: bool
    wait: float | None = None
    """Seconds until another try may succeed; None: unknown."""


class Registered(NamedTuple):
    """What became of a schedule that a worker declares."""

    name: str
    change: Literal["new", "changed", "same"]
    before: str
    """The times at which it was due until now, as text; empty if it is new."""
    starts: bool
    """It has a tick now, because its workers start."""


class Fired(NamedTuple):
    """The result of one tick of a schedule."""

    jobs: list[str]
    replaced: str | None
    """The job of the tick before, which was cancelled for the new one."""
    overlapped: bool
    """No job was made: the job of the tick before has not ended."""
