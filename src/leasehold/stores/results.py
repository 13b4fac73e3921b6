"""What workers and the operator's verbs exchange with a store: plain values, the same on every database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, NamedTuple

from leasehold.domain.capacity import Holder
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Enqueued, Job, Sighting
from leasehold.domain.outcome import Outcome
from leasehold.domain.search import FailedJob
from leasehold.domain.states import State
from leasehold.domain.stop import StoppedJob

Order = Literal["mixed", "turns", "strict"]
"""How a claim serves several queues."""


class Once(NamedTuple):
    """What a request has made, or did when it came first."""

    jobs: list[Enqueued]
    repeated: bool


class Ending(NamedTuple):
    """How the run under this token ended."""

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
    unstorable: list[str]
    """Accepted, but as failed: the database refused the result."""
    locked: list[str] = field(default_factory=list)
    """Still held, but their rows are locked: nothing was written. Only for a settle that does not wait."""
    freed: bool = False
    """Follow-ups were made, jobs that others wait for have ended, or slots are free again: there may be new work."""
    decided: Mapping[str, Job] = field(default_factory=dict, compare=False)
    """Jobs whose end was not a plain success, as they are now."""


@frozen
class Record:
    """Leases (id, token) of which nothing was written."""

    lost: list[tuple[str, int]]
    locked: list[tuple[str, int]]
    """Still held, but their rows are locked."""


@frozen
class Denied:
    """A claim by id that was not granted. With `look`, the lease has run out: come back with it after ttl/3."""

    id: str
    state: State | None
    why: str
    look: Sighting | None = None
    retry_in: float | None = None
    """Seconds after which it is worth asking again, by the store's clock; None: it is at rest, or waits for somebody's
    word."""


@frozen
class Full:
    """Every place of the task is taken, and by whom, the oldest first."""

    holders: tuple[Holder, ...]
    retry_after: float
    """Seconds; a hint."""


@frozen
class Stoppable:
    """One look for a stop: the jobs in its scope, newest first."""

    jobs: list[StoppedJob]
    next: str | None
    """Where the next look starts; None at the end."""


class Failed(NamedTuple):
    """One look for failures, newest first."""

    jobs: list[FailedJob]
    next: str | None
    """Where the next look starts; None at the end."""


@frozen
class Pruned:
    deleted: int
    """Jobs; in a dry run, how many would go."""
    next: str | None
    """Where the next batch starts; None when there is nothing more to look at."""
    counts: Mapping[tuple[str, State], int] = field(default_factory=dict)
    """The jobs by task and state."""
    groups: int = 0
    """That went with the last of their jobs."""


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
    """When it was due until now, in words; empty if it is new."""
    starts: bool
    """It has a tick now, because the fleet starts."""


class Fired(NamedTuple):
    """What one turn of a schedule has made."""

    jobs: list[str]
    replaced: str | None
    """The job of the tick before, which was cancelled for it."""
    overlapped: bool
    """No job was made: the one of the tick before still lives."""
