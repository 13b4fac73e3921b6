"""What a reader is shown, and how a reader asks for it: plain values, the same in every surface."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from typing import Any, Literal, TypedDict

from leasehold.domain.checks.names import EVERY_TENANT
from leasehold.domain.frozen import frozen
from leasehold.domain.job import OnParentFailure
from leasehold.domain.schedules import Missed, Overlap, Source
from leasehold.domain.states import State

Scope = Literal["queue", "kind"]
Verdict = Literal["ok", "warn", "bad"]


@frozen
class Reaped:
    """A job whose lease was missed, who had it, and what has become of it."""

    id: str
    owner: str | None
    state: State
    orphan: bool
    """It runs on somewhere, without an owner, until it is adopted."""
    kind: str = field(default="", compare=False)
    queue: str = field(default="", compare=False)
    attempt: int = field(default=0, compare=False)
    tenant: str | None = field(default=None, compare=False)


@frozen
class PauseRecord:
    """A queue or task that is paused."""

    scope: Scope
    name: str
    paused_by: str | None
    reason: str | None
    paused_at: datetime
    until: datetime | None


@frozen(kw_only=True)
class ScheduleRow:
    """A schedule as it stands."""

    name: str
    kind: str
    args: str
    every: float | None
    cron: str | None
    tz: str
    missed: Missed
    overlap: Overlap
    at_start: bool
    source: Source
    next_at: datetime
    """The next tick, or one that is due and not dealt with yet."""
    last_at: datetime | None
    """The last tick that made a job."""
    last_job: str | None
    passed: int
    """Ticks that made none: missed, or while the job before still lived."""
    paused: bool
    paused_by: str | None
    reason: str | None
    changed_at: datetime
    hosts: int
    """Live workers that declare it in their code."""
    now: datetime
    """The store's own, when it was read."""
    tenant: str | None = None
    """Whose it is, for a worker that serves many."""

    @property
    def orphaned(self) -> bool:
        """It came from code that no live worker has any more: nobody makes its jobs."""
        return self.source == "code" and self.hosts == 0


@frozen
class Filter:
    """Which jobs. Empty means all."""

    states: tuple[State, ...] = ()
    queue: str | None = None
    kind: str | None = None
    lane: str | None = None
    group: str | None = None
    tag: str | None = None


ALL = Filter()


class Criteria(TypedDict, total=False):
    """The fields of `Filter` that are plain names, for calls that take them as keywords."""

    queue: str | None
    kind: str | None
    lane: str | None
    group: str | None
    tag: str | None


@frozen
class Summary:
    """A job as a list shows it: without payloads."""

    id: str
    seq: int
    kind: str
    queue: str
    gate: int
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
    lease_owner: str | None
    lease_expires_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    group_name: str | None
    tags: tuple[str, ...]
    error: str | None
    updated_at: datetime
    """When it came into its state."""


@frozen
class Page:
    """One page of jobs, newest first."""

    jobs: list[Summary]
    next: str | None
    """The cursor of the page that follows; None at the end."""


@frozen
class HistoryEntry:
    """One move of a job between states."""

    at: datetime
    event: str
    from_state: str
    to_state: str
    token: int
    attempt: int
    actor: str | None
    detail: str | None


@frozen
class AttemptRecord:
    """One run of a job, under one lease. A run that was adopted by another worker has a record for each holder."""

    number: int
    owner: str | None
    """The worker that held the lease."""
    started_at: datetime
    ended_at: datetime | None
    """None: it runs."""
    outcome: str
    """`running`, `succeeded`, or what ended it: `failed`, `timed_out`, `lost`, `crashed`, `breached`, `snoozed`,
    `asked`, `stopped`, `handed_back`, `detached`."""
    error: str | None
    """What went wrong in this run."""


@frozen
class StepRecord:
    """What a step has returned, as plain JSON, and which attempt has stored it."""

    name: str
    attempt: int
    saved_at: datetime
    result: Any


@frozen
class ExecutionRow:
    """What a job runs outside of its worker: a command, a container."""

    job_id: str
    kind: str
    queue: str
    attempt: int
    site: str
    """Where it lives: only a worker there can see it."""
    name: str
    """What it is called there."""
    owner: str | None
    """The worker that watches it. None: it is an orphan, until a worker of its site adopts it."""
    placed_at: datetime
    started_at: datetime | None
    """None: nobody has said that it was started."""
    stop_requested: str | None
    """`finish`, `pause` or `cancel`."""


@frozen
class WorkerCard:
    """A worker, as it last reported. The times are the store's."""

    owner: str
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    sites: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    """Whom it serves: nobody but the app's own store; these tenants; or, with "all", every one and the app's own."""
    concurrency: int = 0
    running: int = 0
    draining: bool = False
    version: str = ""
    started_at: datetime | None = None
    seen_at: datetime | None = None

    def serves(self, tenant: str | None) -> bool:
        """None: the app's own store."""
        if EVERY_TENANT in self.tenants:
            return True
        return tenant in self.tenants if tenant is not None else not self.tenants


@frozen
class TenantRow:
    """A tenant, as the app's own store knows it."""

    name: str
    ready: bool
    """False: it is being made, or dropped."""
    told: int
    """Goes up when there may be work in it."""
    told_at: datetime
    created_at: datetime


@frozen
class LaneHolder:
    """The job that runs in a lane, or that it stands still behind."""

    lane: str
    id: str
    state: State
    kind: str
    error: str | None
    reason: str | None
    lease_owner: str | None


@frozen
class QueueCount:
    """How many jobs of a task are in one state; only what is not over yet, or wants attention."""

    queue: str
    kind: str
    state: State
    jobs: int


COUNT_CAP = 10_000


@frozen
class QueueRow:
    """One task in one queue."""

    queue: str
    kind: str
    workers: int
    """Live ones that serve the queue and know the task."""
    queue_pause: PauseRecord | None
    kind_pause: PauseRecord | None
    counts: dict[State, int]
    """Live and halted jobs by state. At COUNT_CAP jobs of one state in all, there may be more."""


@frozen
class Finding:
    """What the doctor found: `warn` costs something, `bad` breaks a promise."""

    check: str
    verdict: Verdict
    detail: str
    remedy: str = ""


Relation = Literal["waits_for", "awaited_by", "follow_up_of", "follow_up"]


@frozen
class Relative:
    """A job that is tied to another, and how."""

    relation: Relation
    id: str
    kind: str
    queue: str
    state: State
    on_failure: OnParentFailure | None = None
    """What the one that waits does when the other ends without success."""
    met: bool | None = None
    """The one that waits need no longer do so."""


@frozen
class ParentResult:
    """What a job that has succeeded gave back, for those that waited for it. `result` is encoded JSON."""

    id: str
    kind: str
    result: str | None
    result_ref: str | None = None
    """The file that it is in instead."""


@frozen
class SlotHolder:
    """A running job that holds units of a slot. Without an owner it is an orphan."""

    job_id: str
    units: int
    kind: str
    owner: str | None


@frozen
class SlotRow:
    """A slot as it stands."""

    name: str
    limit: int
    used: int
    holders: list[SlotHolder]
    """The first of them, oldest run first."""


@frozen
class RateRow:
    """A rate limit as it stands."""

    key: str
    limit: str
    """As it was given: "60/min"."""
    burst: int
    next_in: float | None
    """Seconds until a job may start; 0: now; None: it is closed until somebody opens it."""
    closed: bool
    closed_until: datetime | None
    closed_by: str | None
    closed_reason: str | None


@frozen
class SlotNeed:
    """What a job needs of a slot, beside what is there."""

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
    """The limits that jobs behind a gate have to pass."""

    slots: list[SlotNeed]
    rate: RateRow | None


@frozen
class OpenQuestion:
    """A question as the inbox shows it. `schema` is encoded JSON."""

    job_id: str
    kind: str
    queue: str
    group_name: str | None
    state: State
    key: str
    text: str
    schema: str | None
    secret: bool
    asked_at: datetime
    expires_at: datetime | None
