"""A job as its row tells it, and what is needed to make one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from leasehold.domain.frozen import frozen
from leasehold.domain.limits import DefaultLimit
from leasehold.domain.policy import DEFAULT_POLICY, Policy
from leasehold.domain.states import Flag, State

UniqueFor = Literal["live", "ever"]
OnDuplicate = Literal["return", "replace", "raise"]
OnParentFailure = Literal["cancel", "run"]
"""What a job that waits for others does when one of them ends without success."""

LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100
DEFAULT_LEASE = 30.0

PLAIN, TIED, AWAITED = 0, 1, 2
"""How special a job is. A plain one ends without a look at any other table; a tied one (lane, group, key, slot, time
limit, question, mirror) takes rows of other tables along; an awaited one is judged for those who wait for it."""


@dataclass(slots=True, kw_only=True)
class NewJob:
    """What a producer hands to the store. Times are durations from the store's own now, or the user's instants. Nobody
    changes one; it is not frozen only because that would triple the time to make it, and many are made at once."""

    id: str
    kind: str
    args: str = field(repr=False)
    """Encoded JSON object."""
    queue: str = "default"
    priority: int = 0
    delay: float = 0.0
    at: datetime | None = None
    """The user's own due time; wins over `delay`."""
    hold: bool = False
    lane: str | None = None
    unique_key: str | None = None
    unique_for: UniqueFor = "live"
    on_duplicate: OnDuplicate = "return"
    lease_seconds: float = DEFAULT_LEASE
    policy: Policy = DEFAULT_POLICY
    group: str | None = None
    tags: tuple[str, ...] = ()
    deadline: float | None = None
    """Seconds the whole job may take from its enqueue on."""
    start_by: float | None = None
    """Seconds from its enqueue on within which it must have started."""
    retry_of: str | None = None
    trace: str | None = None
    after: tuple[str, ...] = ()
    """Jobs that must end before this one may run: there already, or earlier in the same enqueue."""
    on_parent_failure: OnParentFailure = "cancel"
    follow_up_of: str | None = None
    """The job whose handler has asked for this one."""
    slots: tuple[tuple[str, int], ...] = ()
    """Units that it needs of each slot, by name."""
    rate: str | None = None
    long_names: tuple[tuple[str, str], ...] = ()
    """Names of its own that were too long to be kept as they are: as kept, and whole."""
    limits: tuple[DefaultLimit, ...] = ()
    """What its slots and its rate are limited to, if nobody has said so yet."""


@frozen(kw_only=True)
class Job:
    """The row. The store gives and takes all of it; only `settle` and the operator's verbs make a new one."""

    id: str
    """The job's id, a UUID."""
    seq: int
    kind: str
    """The name of its task."""
    queue: str
    """The queue it waits in."""
    gate: int
    limited: bool = False
    """It holds units of slots while it runs."""
    priority: int
    """From -100 (last) to 100 (first)."""
    state: State
    """`pending`, `queued`, `running`, `waiting`, `paused`, `succeeded`, `failed`, `timed_out` or `cancelled`."""
    reason: str | None = None
    """Why it is in its state, where somebody or something has given a reason."""
    args: str = field(repr=False)
    """Its arguments, a JSON object. Sensitive ones are in it."""
    policy: Policy = DEFAULT_POLICY
    created_at: datetime
    """When it was enqueued."""
    available_at: datetime
    """When it is due, or was."""
    lane: str | None = None
    """Its lane."""
    lane_at: datetime | None = None
    halts_lane: bool = False
    lease_owner: str | None = None
    """The worker that runs it."""
    lease_expires_at: datetime | None = None
    """When the lease of that worker runs out, unless it is renewed."""
    lease_seconds: float = DEFAULT_LEASE
    lease_token: int = 0
    attempt: int = 0
    """The number of its present or last run; 0: it has not run."""
    failures: int = 0
    """How many runs have failed."""
    crashes: int = 0
    """How many leases were lost in a row without progress."""
    stop_requested: Flag | None = None
    """What a running job is asked to do: `finish`, `pause` or `cancel`."""
    execution_site: str | None = None
    """Where its command or container runs: host and folder."""
    execution_name: str | None = None
    """What its command or container is called there."""
    execution_started_at: datetime | None = None
    first_started_at: datetime | None = None
    """When its first run began."""
    started_at: datetime | None = None
    """When its present or last run began."""
    finished_at: datetime | None = None
    """When it came to its end."""
    settled_by: str | None = None
    settled_token: int | None = None
    result: str | None = None
    """What it returned, as JSON, if that is kept in the row."""
    result_ref: str | None = None
    """The name of the file that holds its result, if that is kept as a file."""
    error: str | None = None
    """What went wrong last."""
    unique_key: str | None = None
    """Its unique key."""
    unique_for: UniqueFor = "live"
    group_name: str | None = None
    """Its group."""
    tags: tuple[str, ...] = field(default=())
    """Its tags."""
    held: bool = False
    unmet: int = 0
    """Parents that have not ended yet."""
    special: int = PLAIN
    """What its end has to touch besides its own place. It only rises."""
    deadline_at: datetime | None = None
    """When its time is over."""
    start_by: datetime | None = None
    """When it is cancelled unless it has started before."""
    retry_of: str | None = None
    """The job that this one was made from by a retry."""
    trace: str | None = None
    """The `traceparent` of its enqueue."""
    updated_at: datetime = field(compare=False)
    """When it came into its state; it plays no part in comparisons."""

    @property
    def awaited(self) -> bool:
        """Others wait for it, or did: its end is judged for them in the same transaction."""
        return self.special >= AWAITED

    @property
    def orphan(self) -> bool:
        """Running with no owner: its execution may live on, and it still holds its lane."""
        return self.state is State.RUNNING and self.lease_owner is None


class Grant(NamedTuple):
    """One lease: what a worker needs to run a claimed or adopted job. `id` and `token` name exactly one grant."""

    seq: int
    id: str
    token: int
    attempt: int
    kind: str
    queue: str
    args: str
    lease_seconds: float
    policy: str | None
    lane: str | None
    group_name: str | None
    seconds_left: float | None
    """Until the job's deadline, by the database's clock when it answered. 0 or less: its time is over."""
    trace: str | None
    failures: int = 0
    crashes: int = 0
    special: int = 0
    """What it was when it was granted; it may have risen since."""
    waited: float | None = None
    """Seconds from when it was due until it was granted, by the database's clock. None: nobody knows, or it is a run
    that goes on."""
    stop_requested: str | None = None
    execution_site: str | None = None
    execution_name: str | None = None
    execution_age: float | None = None
    """Seconds since its start was marked, by the database's clock when it answered. None: no start was marked."""
    tenant: str | None = None
    """Whose job it is; None: the app's own."""


@frozen
class Renewal:
    """What a beat learned about one lease that is still held."""

    id: str
    stop_requested: Flag | None
    extended: bool = True
    """False: somebody has its row locked. It is still held, but its time was not extended by this beat."""


TOLERANCE = 1.0
"""Seconds by which two readings of one clock may differ."""


def has_run_out(expires_at: datetime, lease_seconds: float, now: datetime) -> bool:
    """Also if it expires further ahead than it is long: the clock was set back, and its end may never come."""
    left = (expires_at - now).total_seconds()
    return left <= 0 or left > lease_seconds + TOLERANCE


@frozen
class Sighting:
    """A reaper's first look at a lease whose renewal is overdue. It may be acted on once ttl/3 has passed on the
    looker's own clock, neither token nor expiry has moved, and the lease has run out. A look does the owner no harm."""

    id: str
    token: int
    expires_at: datetime
    lease_seconds: float
    owner: str
    alone: bool
    seen_at: float
    """The looker's monotonic clock."""
    expires_in: float = 0.0
    """Seconds, by the database's clock at that look."""

    def ripe(self, monotonic: float) -> bool:
        return monotonic - self.seen_at >= self._patience

    @property
    def reapable_at(self) -> float:
        """On the looker's clock: when the lease has run out and this look is old enough."""
        return self.seen_at + (self._patience if self.ahead else max(self._patience, self.expires_in))

    @property
    def ahead(self) -> bool:
        """It expires further ahead than it is long: the clock was set back since it was renewed."""
        return self.expires_in > self.lease_seconds + TOLERANCE

    @property
    def _patience(self) -> float:
        """Where the database's clock cannot tell that a whole lease has passed, the looker's own has to."""
        return self.lease_seconds if self.ahead else self.lease_seconds / 3

    def matches(self, job: Job) -> bool:
        """Whether the lease has not moved since this look."""
        seen = (self.id, self.token, self.expires_at)
        return (job.id, job.lease_token, job.lease_expires_at) == seen

    def missed(self, now: datetime) -> bool:
        """By the database's clock, at the second look."""
        return self.expires_at <= now or (
            self.ahead and has_run_out(self.expires_at, self.lease_seconds, now)
        )


@frozen
class Question:
    """What a job asks. `answer` is encoded JSON; a secret one is shown to nobody but the job itself."""

    key: str
    text: str
    schema: str | None
    answer: str | None
    asked_at: datetime
    closed_at: datetime | None
    secret: bool = False
    expires_at: datetime | None = None
    expired: bool = False
    """Its time-out has passed without an answer."""
    answered: bool = False

    @property
    def status(self) -> str:
        """`open`, `answered`, `expired`, or `closed` by the end of its job."""
        if self.answered:
            return "answered"
        if self.expired:
            return "expired"
        return "open" if self.closed_at is None else "closed"
