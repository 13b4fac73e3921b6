"""The settings of `app.worker` as typed keywords, for functions that pass them on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import EllipsisType
from typing import TypedDict

from leasehold.domain.checks.durations import Duration
from leasehold.domain.retention import Keep
from leasehold.domain.tracing import Tracing
from leasehold.worker.settings import QueueOrder


class WorkerDetails(TypedDict, total=False):
    """The settings of `app.worker` that are seldom needed."""

    stop_grace: float
    poll: float
    sweep: float
    prunes: bool
    capture_logs: bool
    claims: bool
    health_file: str | Path | None
    tracing: Tracing | None
    name: str


class WorkerOptions(WorkerDetails, total=False):
    """The settings of `app.worker` and `worker_lifespan`, as typed keywords."""

    queues: str | Iterable[str]
    queue_order: QueueOrder
    concurrency: int
    threads: int
    max_executions: int
    shutdown_grace: Duration | EllipsisType | None
    drain_on_sigterm: bool
    retention: Keep
    audit_retention: Duration | None
    burst: bool
    listen_url: str | None
    tenants: str | Iterable[str]
