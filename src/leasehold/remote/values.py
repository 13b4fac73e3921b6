"""What a server tells, where the value of the Python API has more to it: with the same names, without what the API
keeps to itself."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from leasehold.domain.frozen import frozen
from leasehold.types import Progress, State


@frozen(kw_only=True)
class Summary:
    """A job as a list shows it: without payloads."""

    id: str
    task: str
    queue: str
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
    """When it came into its state."""


@frozen
class Page:
    """One page of jobs, newest first."""

    jobs: list[Summary]
    next: str | None
    """The cursor of the page that follows; None at the end."""


@frozen(kw_only=True)
class JobRow(Summary):
    """Everything that is told of one job."""

    args: dict[str, Any]
    progress: Progress | None = None


@frozen
class HistoryEntry:
    """One move of a job between states."""

    at: datetime
    event: str
    from_state: str
    to_state: str
    attempt: int
    actor: str | None
    detail: str | None


@frozen(kw_only=True)
class Question:
    """What a job asks. `schema` and `answer` are encoded JSON; a secret answer is shown to nobody but the job."""

    key: str
    text: str
    schema: str | None
    answer: str | None
    status: str
    """`open`, `answered`, `expired`, or `closed` by the end of its job."""
    secret: bool
    asked_at: datetime
    expires_at: datetime | None


@frozen(kw_only=True)
class ScheduleRow:
    """A schedule as it stands. `args` is encoded JSON."""

    name: str
    task: str
    args: str
    every: float | None
    cron: str | None
    tz: str
    missed: str
    overlap: str
    source: str
    next_at: datetime
    last_at: datetime | None
    last_job: str | None
    passed: int
    """Ticks that made no job: missed, or while the job before still lived."""
    paused: bool
    paused_by: str | None
    reason: str | None
    orphaned: bool
    """It came from code that no live worker has any more: nobody makes its jobs."""


@frozen
class TaskCard:
    """A task that the server knows."""

    name: str
    queue: str
    description: str
    arguments: dict[str, Any]
    """JSON Schema of its arguments."""


@frozen
class Made:
    """A job that was stored, or the one that was there already."""

    id: str
    created: bool
