"""Read models: the plain values that all surfaces show, and the filters that select them."""

from __future__ import annotations

from dataclasses import field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypedDict

from leasehold.domain.checks.texts import EVERY_TENANT
from leasehold.domain.frozen import EncodedObject, Private, frozen, shown
from leasehold.domain.job import Job, OnParentFailure
from leasehold.domain.schedules import Missed, Overlap, Source
from leasehold.domain.states import State

Scope = Literal["queue", "task"]
Verdict = Literal["ok", "warn", "bad"]


@frozen
class Reaped:
    """A job whose lease ran out: the worker that held the lease, and the new state of the job."""

    id: str
    worker: str | None
    state: State
    orphan: bool
    """The job still runs somewhere, without a worker, until it is adopted."""
    task: str = field(default="", compare=False)
    queue: str = field(default="", compare=False)
    attempt: int = field(default=0, compare=False)
    tenant: str | None = field(default=None, compare=False)


@frozen
class PauseRecord:
    """A paused queue or task."""

    scope: Scope
    name: str
    paused_by: str | None
    reason: str | None
    paused_at: datetime
    until: datetime | None


@frozen(kw_only=True)
class ScheduleRow:
    """A schedule and its present state."""

    name: str
    task: str
    args: EncodedObject
    every: float | None
    cron: str | None
    tz: str
    missed: Missed
    overlap: Overlap
    at_start: bool
    source: Source
    next_at: datetime
    """The next tick, or one that is due and not handled yet."""
    last_at: datetime | None
    """The last tick that made a job."""
    last_job: str | None
    passed: int
    """Ticks that made no job: they were missed, or the previous job was still live."""
    paused: bool
    paused_by: str | None
    reason: str | None
    changed_at: datetime
    hosts: int
    """Live workers that declare the schedule in their code."""
    now: Annotated[datetime, Private(datetime.fromtimestamp(0, UTC))]
    """The store's time when the row was read."""
    tenant: Annotated[str | None, Private()] = None
    """The tenant that owns the schedule, for a worker that serves several."""

    @shown
    def orphaned(self) -> bool:
        """Whether the declaration of the schedule is gone: no live worker has its code, so none makes its jobs."""
        return self.source == "code" and self.hosts == 0


@frozen
class Filter:
    """Criteria for listing jobs. An empty filter matches all jobs."""

    states: tuple[State, ...] = ()
    queue: str | None = None
    task: str | None = None
    lane: str | None = None
    group: str | None = None
    tag: str | None = None


ALL = Filter()


class Criteria(TypedDict, total=False):
    """The fields of `Filter` that are plain names, for calls that take them as keywords."""

    queue: str | None
    task: str | None
    lane: str | None
    group: str | None
    tag: str | None


@frozen
class Summary:
    """A job as a list shows it: without payloads."""

    id: str
    seq: Annotated[int, Private(0)]
    task: str
    queue: str
    gate: Annotated[int, Private(0)]
    priority: int
    state: State
    reason: str | None
    created_at: datetime
    available_at: datetime
    lane: str | None
    attempt: int
    failures: int
    crashes: int
    stop_requested: str | None
    worker: str | None
    lease_expires_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    group: str | None
    tags: tuple[str, ...]
    error: str | None
    updated_at: datetime
    """When the job came into its state."""


@frozen
class Page:
    """One page of jobs, newest first."""

    jobs: list[Summary]
    next: str | None
    """The cursor of the next page; None at the end."""


@frozen
class HistoryEntry:
    """One transition of a job."""

    at: datetime
    event: str
    from_state: str
    to_state: str
    token: Annotated[int, Private(0)]
    attempt: int
    actor: str | None
    detail: str | None


@frozen
class AttemptRecord:
    """One attempt of a job, under one lease. An attempt that another worker adopted has a record for each worker."""

    attempt: int
    worker: str | None
    """The worker that held the lease."""
    started_at: datetime
    ended_at: datetime | None
    """None: it is running."""
    outcome: str
    """`running`, `succeeded`, or what ended it: `failed`, `timed_out`, `lost`, `crashed`, `breached`, `snoozed`,
    `asked`, `stopped`, `handed_back`, `detached`."""
    error: str | None
    """What went wrong in this attempt."""


@frozen
class StepRecord:
    """A step: its result, as plain JSON, and the attempt that stored it."""

    name: str
    attempt: int
    saved_at: datetime
    result: Any


@frozen
class ExecutionRow:
    """A command or container that a job runs outside its worker."""

    job_id: str
    task: str
    queue: str
    attempt: int
    site: str
    """Where the execution runs: only a worker there can see it."""
    name: str
    """The name of the execution at its site."""
    worker: str | None
    """The worker that watches it. None until a worker of its site adopts it."""
    placed_at: datetime
    started_at: datetime | None
    """None: no worker has recorded its start."""
    stop_requested: str | None
    """`finish`, `pause` or `cancel`."""


@frozen
class WorkerProblem:
    """Something that keeps a worker from its work."""

    tenant: str | None
    """The tenant whose jobs it concerns. None: all jobs that the worker serves."""
    text: str


@frozen
class WorkerCard:
    """A worker's last report. The times are the store's."""

    name: str
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    sites: Annotated[tuple[str, ...], Private(())] = ()
    tenants: tuple[str, ...] = ()
    """Tenants that the worker serves. Empty: only the app's own store; with "all": every tenant and the app's own."""
    concurrency: int = 0
    running: int = 0
    draining: bool = False
    version: str = ""
    started_at: datetime | None = None
    seen_at: datetime | None = None
    problems: tuple[WorkerProblem, ...] = ()
    """What keeps it from its work, as it reported last."""

    def serves(self, tenant: str | None) -> bool:
        """Return whether the worker serves the tenant; None: the app's own store."""
        if EVERY_TENANT in self.tenants:
            return True
        return tenant in self.tenants if tenant is not None else not self.tenants


@frozen
class TenantRow:
    """A tenant in the directory of the app's own store."""

    name: str
    ready: bool
    """False: the tenant is being created or dropped."""
    version: int
    """Grows when the tenant may have work."""
    changed_at: datetime
    created_at: datetime


@frozen
class LaneHolder:
    """The job that runs in a lane, or that blocks it."""

    lane: str
    job_id: str
    state: State
    task: str
    error: str | None
    reason: str | None
    worker: str | None


@frozen
class QueueCount:
    """How many jobs of a task are in one state; only live jobs and those that need attention."""

    queue: str
    task: str
    state: State
    jobs: int


COUNT_CAP = 10_000


@frozen
class QueueRow:
    """One task in one queue."""

    queue: str
    task: str
    workers: int
    """Live workers that serve the queue and have the task."""
    queue_pause: PauseRecord | None
    task_pause: PauseRecord | None
    counts: dict[State, int]
    """Live and halted jobs by state. When a state has COUNT_CAP jobs in all, there may be more."""


@frozen
class Finding:
    """One result of the doctor: `warn` costs something, `bad` breaks a promise."""

    check: str
    verdict: Verdict
    detail: str
    remedy: str = ""


Relation = Literal["waits_for", "awaited_by", "follow_up_of", "follow_up"]


@frozen
class Relative:
    """A linked job, and how it is linked."""

    relation: Relation
    id: str
    task: str
    queue: str
    state: State
    on_failure: OnParentFailure | None = None
    """What the waiting job does when the other ends without success."""
    met: bool | None = None
    """Whether the waiting job no longer has to wait."""


@frozen
class ParentResult:
    """What a succeeded job returned, for the jobs that waited for it. `result` is encoded JSON."""

    id: str
    task: str
    result: str | None
    result_ref: str | None = None
    """The file that holds the result instead."""


@frozen
class SlotHolder:
    """A running job that holds units of a slot. Without a worker, its execution goes on until one adopts it."""

    job_id: str
    units: int
    task: str
    worker: str | None


@frozen
class SlotRow:
    """A slot and its present use."""

    name: str
    limit: int
    used: int
    holders: list[SlotHolder]
    """Its holders, oldest attempt first; a long list is cut."""


@frozen
class RateRow:
    """A rate limit and its present state."""

    key: str
    limit: str
    """The limit as it was given: "60/min"."""
    burst: int
    next_in: float | None
    """Seconds until a job may start; 0: now; None: it is closed until someone opens it."""
    closed: bool
    closed_until: datetime | None
    closed_by: str | None
    closed_reason: str | None


@frozen
class SlotNeed:
    """What a job needs of a slot, and the present use of that slot."""

    name: str
    need: int
    limit: int
    used: int
    holders: list[SlotHolder]

    @property
    def full(self) -> bool:
        return self.limit - self.used < self.need


@frozen
class GateLimits:
    """The limits that apply to jobs behind a gate."""

    slots: list[SlotNeed]
    rate: RateRow | None


# -- leases as a list shows them ---------------------------------------------------------------------------------------


@frozen
class LeaseRow:
    """A running job and the worker that holds its lease."""

    job_id: str
    task: str
    queue: str
    group: str | None
    attempt: int
    worker: str | None
    started_at: datetime
    expires_at: datetime
    expires_in: float
    """Seconds until it expires, by the database's clock. Below 0: it has expired, and a worker will take the job."""
    stop_requested: str | None
    """`finish`, `pause` or `cancel`."""


@frozen
class LeasePage:
    """One page of leases."""

    leases: list[LeaseRow]
    next: str | None
    """The cursor of the next page; None at the end."""


# -- registered tasks, as callers outside the process see them ---------------------------------------------------------

Expose = Literal[True, False, "task", "call"]


@frozen(kw_only=True)
class TaskCard:
    """A registered task. `arguments` and `result` are JSON Schema; an empty schema accepts anything."""

    name: str
    queue: str
    description: str
    arguments: dict[str, Any]
    result: dict[str, Any]
    tags: tuple[str, ...]
    expose: Annotated[Expose, Private(True)]


# -- why a job runs or does not run ------------------------------------------------------------------------------------

Cause = Literal[
    "resting",
    "budget",
    "group_held",
    "running",
    "awaiting_adoption",
    "no_site",
    "pending",
    "parent",
    "waiting",
    "not_due",
    "queue_paused",
    "task_paused",
    "lane_blocked",
    "lane_order",
    "slot_full",
    "rate_closed",
    "rate_spent",
    "no_worker",
    "no_handler",
    "worker_trouble",
    "busy",
    "position",
    "nothing",
]


@frozen
class Hold:
    """One cause that holds a job back. `cause` is for programs, `detail` and `remedy` are for people."""

    cause: Cause
    detail: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.detail}; {self.remedy}" if self.remedy else self.detail


class Explanation(list[Hold]):
    """All causes in order. `str` gives one line for each."""

    def __str__(self) -> str:
        return "\n".join(f"{number}. {hold}" for number, hold in enumerate(self, 1))


# -- why `run_by_id` cannot run a job now ------------------------------------------------------------------------------

RETRY_SOON = 5.0
"""Seconds to wait when no time is known: the job waits for a lane, a slot, a rate, a pause or another job."""
RETRY_ELSEWHERE = 30.0
"""Seconds to wait for a task not registered here: as long as a worker leaves such a job to others."""


@frozen
class NotRun:
    """`run_by_id` left the job unchanged. `retry_in`: seconds after which to try again. None: the job is at rest,
    waits for a person, or does not exist, so a message that carried its id can be acknowledged."""

    job_id: str
    state: State | None
    """None: there is no such job."""
    why: str
    retry_in: float | None


def claimable_in(job: Job, now: datetime) -> float | None:
    """Seconds after which a claim of this job may succeed. None: not before someone acts on the job."""
    match job.state:
        case State.QUEUED:
            return (job.available_at - now).total_seconds() if job.available_at > now else RETRY_SOON
        case State.RUNNING:
            left = 0.0 if job.lease_expires_at is None else (job.lease_expires_at - now).total_seconds()
            return left if left > 0 else RETRY_SOON
        case State.PENDING:
            return RETRY_SOON if job.unmet and not job.held else None
        case _:
            return None
