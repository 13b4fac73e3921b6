"""The job record, the new job that a producer stores, leases, questions, and the batch of a bulk enqueue."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Literal, NamedTuple

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import EncodedObject, Private, frozen
from leasehold.domain.limits import DefaultLimit
from leasehold.domain.policy import DEFAULT_POLICY, Policy
from leasehold.domain.states import Flag, State

UniqueFor = Literal["live", "ever"]
OnDuplicate = Literal["return", "replace", "raise"]
OnParentFailure = Literal["cancel", "run"]
"""What a waiting job does when a job it waits for ends without success."""

LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100
DEFAULT_LEASE = 30.0

PLAIN, TIED, AWAITED = 0, 1, 2
"""Values of `special`: what a job's end touches. A plain job: no other table; a tied job (lane, group, key,
slot, time limit, question, mirror): rows of other tables; an awaited job: also the jobs that wait for it."""


@dataclass(slots=True, kw_only=True)
class NewJob:
    """A job that a producer gives to the store. Times are durations from the store's now, or the user's instants.
    Never change a NewJob. It is not frozen, because that triples the time to make one, and many are made at once."""

    id: str
    task: str
    args: str = field(repr=False)
    """The arguments as an encoded JSON object."""
    queue: str = "default"
    priority: int = 0
    delay: float = 0.0
    at: datetime | None = None
    """The due time that the user gave; wins over `delay`."""
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
    """Seconds the whole job may take, counted from its enqueue."""
    start_by: float | None = None
    """Seconds within which the job must start, counted from its enqueue."""
    retry_of: str | None = None
    trace: str | None = None
    after: tuple[str, ...] = ()
    """Jobs that must end before this one may run: stored already, or earlier in the same enqueue."""
    on_parent_failure: OnParentFailure = "cancel"
    follow_up_of: str | None = None
    """The job whose handler enqueued this one."""
    slots: tuple[tuple[str, int], ...] = ()
    """Units that the job needs of each slot, by name."""
    rate: str | None = None
    full_names: tuple[tuple[str, str], ...] = ()
    """Names of this job that were too long to store: the stored form, and the full name."""
    limits: tuple[DefaultLimit, ...] = ()
    """Default limits of the job's slots and rate, for those that have no limit yet."""


class Enqueued(NamedTuple):
    """A job that was created, or an existing job with the same id, unique key or idempotency key."""

    id: str
    created: bool


@frozen(kw_only=True)
class Job:
    """The row of a job. The store reads and writes all of it; only `settle` and the operator's verbs change it."""

    id: str
    """The job's id, a UUID."""
    seq: Annotated[int, Private(0)]
    task: str
    """The name of its task."""
    queue: str
    """The queue it waits in."""
    gate: Annotated[int, Private(0)]
    limited: Annotated[bool, Private(False)] = False
    """The job holds units of slots while it runs."""
    priority: int
    """From -100 (last) to 100 (first)."""
    state: State
    """`pending`, `queued`, `running`, `waiting`, `paused`, `succeeded`, `failed`, `timed_out` or `cancelled`."""
    reason: str | None = None
    """Why the job is in its state, if a reason was given."""
    args: EncodedObject = field(repr=False)
    """The arguments, a JSON object. Sensitive ones are included."""
    policy: Annotated[Policy, Private(DEFAULT_POLICY)] = DEFAULT_POLICY
    created_at: datetime
    """When it was enqueued."""
    available_at: datetime
    """When the job is due, or was."""
    lane: str | None = None
    """Its lane."""
    lane_at: Annotated[datetime | None, Private()] = None
    halts_lane: Annotated[bool, Private(False)] = False
    worker: str | None = None
    """The worker that runs the job."""
    lease_expires_at: datetime | None = None
    """When the lease of that worker runs out, unless it is renewed."""
    lease_seconds: Annotated[float, Private(DEFAULT_LEASE)] = DEFAULT_LEASE
    lease_token: Annotated[int, Private(0)] = 0
    attempt: int = 0
    """The number of the present or last attempt; 0: the job has not run."""
    failures: int = 0
    """How many attempts have failed."""
    crashes: int = 0
    """How many leases were lost in a row without progress."""
    stop_requested: Flag | None = None
    """The stop requested of a running job: `finish`, `pause` or `cancel`."""
    execution_site: Annotated[str | None, Private()] = None
    """Where its command or container runs: host and folder."""
    execution_name: Annotated[str | None, Private()] = None
    """The name of its command or container there."""
    execution_started_at: Annotated[datetime | None, Private()] = None
    first_started_at: Annotated[datetime | None, Private()] = None
    """When its first attempt began."""
    started_at: datetime | None = None
    """When its present or last attempt began."""
    finished_at: datetime | None = None
    """When the job ended."""
    settled_by: Annotated[str | None, Private()] = None
    settled_token: Annotated[int | None, Private()] = None
    result: Annotated[str | None, Private()] = None
    """What the handler returned, as JSON, if the row holds it."""
    result_ref: str | None = None
    """The name of a result that is not in its row: that of a file, or `database:…`."""
    error: str | None = None
    """The last error."""
    unique_key: str | None = None
    """Its unique key."""
    unique_for: Annotated[UniqueFor, Private("live")] = "live"
    group: str | None = None
    """Its group."""
    tags: tuple[str, ...] = field(default=())
    """Its tags."""
    held: Annotated[bool, Private(False)] = False
    unmet: Annotated[int, Private(0)] = 0
    """Parents that have not ended yet."""
    special: Annotated[int, Private(PLAIN)] = PLAIN
    """Which other tables its end has to touch. The value only rises."""
    deadline_at: datetime | None = None
    """When the job times out."""
    start_by: datetime | None = None
    """When the job is cancelled if it has not started by then."""
    retry_of: str | None = None
    """The job that this one retries."""
    trace: Annotated[str | None, Private()] = None
    """The `traceparent` of its enqueue."""
    updated_at: datetime = field(compare=False)
    """When the job came into its state; ignored in comparisons."""

    @property
    def awaited(self) -> bool:
        """Whether other jobs wait for this one, or did: the transaction that ends it also updates them."""
        return self.special >= AWAITED

    @property
    def orphan(self) -> bool:
        """Whether the job runs without a worker: its execution may still run, and the job still holds its lane."""
        return self.state is State.RUNNING and self.worker is None


class Grant(NamedTuple):
    """One lease: what a worker needs to run a claimed or adopted job. `id` and `token` identify exactly one grant."""

    seq: int
    id: str
    token: int
    attempt: int
    task: str
    queue: str
    args: str
    lease_seconds: float
    policy: str | None
    lane: str | None
    group: str | None
    seconds_left: float | None
    """Seconds until the job's deadline, by the database's clock at the grant. 0 or less: its time is over."""
    trace: str | None
    failures: int = 0
    crashes: int = 0
    special: int = 0
    """The value at the time of the grant; it may have risen since."""
    waited: float | None = None
    """Seconds from due to granted, by the database's clock. None: unknown, or an attempt that continues."""
    stop_requested: str | None = None
    execution_site: str | None = None
    execution_name: str | None = None
    execution_age: float | None = None
    """Seconds since the start of its execution was recorded, by the database's clock. None: no start was recorded."""
    tenant: str | None = None
    """The tenant that owns the job; None: the app's own store."""


@frozen
class Renewal:
    """The result of renewing one lease that is still held."""

    id: str
    stop_requested: Flag | None
    extended: bool = True
    """False: another transaction has the row locked. The lease is still held, but this renewal did not extend it."""
    dropped: bool = False
    """The job was dropped with its tenant: no other worker will have it."""


TOLERANCE = 1.0
"""Seconds by which two readings of one clock may differ."""


def has_run_out(expires_at: datetime, lease_seconds: float, now: datetime) -> bool:
    """Whether the lease is over; also if it ends later than its length allows (the clock was set back)."""
    left = (expires_at - now).total_seconds()
    return left <= 0 or left > lease_seconds + TOLERANCE


@frozen
class Sighting:
    """A reaper's first look at a lease whose renewal is overdue. The reaper may act once ttl/3 has passed on its own
    clock, neither token nor expiry has changed, and the lease has run out. A look changes nothing."""

    id: str
    token: int
    expires_at: datetime
    lease_seconds: float
    worker: str
    alone: bool
    seen_at: float
    """The time of the look, by the reaper's monotonic clock."""
    expires_in: float = 0.0
    """Seconds until the lease expires, by the database's clock at that look."""

    def ripe(self, monotonic: float) -> bool:
        return monotonic - self.seen_at >= self._patience

    @property
    def reapable_at(self) -> float:
        """When the lease has run out and this look is old enough, by the reaper's clock."""
        return self.seen_at + (self._patience if self.ahead else max(self._patience, self.expires_in))

    @property
    def ahead(self) -> bool:
        """Whether the lease expires later than its length allows: the clock was set back since it was renewed."""
        return self.expires_in > self.lease_seconds + TOLERANCE

    @property
    def _patience(self) -> float:
        """Seconds to wait on the reaper's clock; a whole lease if the database's clock cannot show its end."""
        return self.lease_seconds if self.ahead else self.lease_seconds / 3

    def matches(self, job: Job) -> bool:
        """Whether the lease is unchanged since this look."""
        seen = (self.id, self.token, self.expires_at)
        return (job.id, job.lease_token, job.lease_expires_at) == seen

    def has_expired(self, now: datetime) -> bool:
        """Return whether the lease has run out, by the database's clock at the second look."""
        return self.expires_at <= now or (
            self.ahead and has_run_out(self.expires_at, self.lease_seconds, now)
        )


# -- batches -----------------------------------------------------------------------------------------------------------

MOST_INSERTED = 5_000
"""Most jobs that one transaction inserts. While SQLite writes, no one else can, not even to renew a lease."""


def check_size(number: int, field: str, remedy: str) -> None:
    if number > MOST_INSERTED:
        problem = f"{number:,} jobs are more than one transaction makes ({MOST_INSERTED:,})"
        raise InvalidInput(field, problem, remedy)


class AlikeJobs(Sequence[NewJob]):
    """Jobs that differ only in their ids and arguments. The first job holds what they share; the rest come in pieces,
    so that a store can send one piece while the next is prepared."""

    ids: Sequence[str]
    first: NewJob

    @abstractmethod
    def pieces(self, size: int) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Yield ids and encoded arguments, `size` at a time. Raises at the first job that cannot be stored."""

    @abstractmethod
    def encode(self, number: int) -> None:
        """Check and encode the first `number` jobs now."""

    @abstractmethod
    def with_trace(self, trace: str) -> AlikeJobs:
        """Return the same jobs with this trace."""


def with_trace(jobs: Sequence[NewJob], trace: str) -> Sequence[NewJob]:
    """Set the trace of every job that has none; a trace given by the caller wins."""
    if isinstance(jobs, AlikeJobs):
        return jobs if jobs.first.trace is not None else jobs.with_trace(trace)
    return [job if job.trace is not None else replace(job, trace=trace) for job in jobs]


def any_grouped(jobs: Sequence[NewJob]) -> bool:
    """Return whether a job belongs to a group. AlikeJobs all have the group of the first job."""
    looked_at = [jobs.first] if isinstance(jobs, AlikeJobs) else jobs
    return any(job.group is not None for job in looked_at)
