"""A job as the model keeps it: plain values, written from semantics.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from leasehold.domain.job import Sighting
from leasehold.domain.policy import Policy

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

LIVE = {"pending", "queued", "running", "waiting"}
FINAL = {"succeeded", "cancelled"}
ENDED = FINAL | {"failed", "timed_out"}
HOLDS_KEY = {"pending", "queued", "running", "waiting", "paused"}
STATES = (
    "pending",
    "queued",
    "running",
    "waiting",
    "paused",
    "failed",
    "timed_out",
    "succeeded",
    "cancelled",
)

PROTOCOL = (
    "state",
    "task",
    "queue",
    "priority",
    "available_at",
    "lane",
    "lane_at",
    "halts_lane",
    "worker",
    "lease_expires_at",
    "lease_seconds",
    "lease_token",
    "attempt",
    "failures",
    "crashes",
    "stop_requested",
    "execution_site",
    "execution_name",
    "execution_started_at",
    "first_started_at",
    "started_at",
    "finished_at",
    "settled_by",
    "settled_token",
    "result",
    "error",
    "unique_key",
    "unique_for",
    "group",
    "held",
    "unmet",
    "awaited",
    "retry_of",
    "created_at",
)
"""The columns that are compared."""


@dataclass
class ModelJob:
    id: str
    seq: int
    task: str
    queue: str
    priority: int
    args: str
    policy: Policy
    state: str
    created_at: datetime
    available_at: datetime
    lease_seconds: float
    lane: str | None = None
    place: datetime | None = None
    """In the lane: the due time at enqueue."""
    first_in_lane: bool = False
    """It has started and the lane has not gone on without it."""
    halts_lane: bool = False
    worker: str | None = None
    lease_expires_at: datetime | None = None
    lease_token: int = 0
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    stop_requested: str | None = None
    execution_site: str | None = None
    execution_name: str | None = None
    execution_started_at: datetime | None = None
    first_started_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    settled_by: str | None = None
    settled_token: int | None = None
    """Whose settle has ended the job, if it was one."""
    settlements: dict[int, str] = field(default_factory=dict)
    """Who settled the run under which token."""
    result: str | None = None
    error: str | None = None
    unique_key: str | None = None
    unique_for: str = "live"
    group: str | None = None
    held: bool = False
    waits_for: dict[str, str] = field(default_factory=dict)
    """Parents that have not been judged yet, and what it does if they end without success."""
    parents: dict[str, str] = field(default_factory=dict)
    """All that it was enqueued with."""
    awaited: bool = False
    unmet: int = 0
    retry_of: str | None = None

    @property
    def lane_at(self) -> datetime | None:
        """As the column tells it: what has started stands before everything that has not."""
        return EPOCH if self.first_in_lane else self.place

    @property
    def orphan(self) -> bool:
        return self.state == "running" and self.worker is None

    @property
    def blocks(self) -> bool:
        return self.state in {"running", "waiting", "paused"} or self.halts_lane

    @property
    def holds_key(self) -> bool:
        return self.unique_key is not None and (self.unique_for == "ever" or self.state in HOLDS_KEY)

    def row(self) -> dict[str, Any]:
        row = {name: getattr(self, name) for name in PROTOCOL}
        if self.state in ENDED:
            row["lane_at"] = EPOCH if self.halts_lane else None
        if self.state not in {"pending", "paused", "timed_out"}:
            row["unmet"] = 0
        return row

    def grant(self) -> tuple[Any, ...]:
        flag, name = self.stop_requested, self.execution_name
        return (self.id, self.lease_token, self.attempt, flag, name, self.lane)


@dataclass
class ModelQuestion:
    text: str
    answer: str | None = None
    open: bool = True


def ripe(sighting: Sighting, monotonic: float) -> bool:
    """The second look comes a third of the lease after the first, on the looker's clock."""
    return monotonic - sighting.seen_at >= sighting.lease_seconds / 3
