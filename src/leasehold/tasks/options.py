"""Typed keywords of tasks and calls, for editors and type checkers. `settings.py` explains and checks them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from typing_extensions import TypedDict

from leasehold.domain.checks.durations import Duration
from leasehold.domain.checks.numbers import Priority
from leasehold.domain.checks.sizes import Size
from leasehold.domain.job import OnDuplicate, OnParentFailure, UniqueFor
from leasehold.domain.limits import Rate, Slot
from leasehold.domain.policy import BudgetFor, KeepResult, OnBreach, OnDrain, OnFailure, OnLost, OnStall
from leasehold.domain.retention import Keep
from leasehold.domain.task_cards import Expose
from leasehold.tasks.run_in import RunIn
from leasehold.tasks.settings import Retry


class _Options(TypedDict, total=False):
    """The keywords that a task and a call share."""

    queue: str
    priority: Priority
    lane: str | None
    on_failure: OnFailure
    retry: Retry
    timeout: Duration | None
    deadline: Duration | None
    start_by: Duration | None
    lease: Duration
    heartbeat: Duration | None
    on_lost: OnLost
    count_lost: bool
    on_drain: OnDrain
    budget: Mapping[str, int] | None
    on_breach: OnBreach
    budget_for: BudgetFor
    stall_after: Duration | None
    on_stall: OnStall
    unique: str | None
    unique_for: UniqueFor
    on_duplicate: OnDuplicate
    tags: tuple[str, ...]
    slots: Mapping[str, int | Slot] | None
    rate: str | Rate | None
    max_running: int | None
    result: KeepResult


class TaskOptions(_Options, total=False):
    """The keywords of `@app.task`, for editors and type checkers; `TaskSettings` explains them."""

    queueing: bool
    mirror: bool
    expose: Expose
    retention: Keep
    sensitive: tuple[str, ...]
    run_in: RunIn
    memory: Size | None
    cpu_time: Duration | None


class CallOptions(_Options, total=False):
    """The keywords of `.using()`, for editors and type checkers; `TaskSettings` and `CallSettings` explain them."""

    after: Iterable[Any]
    on_parent_failure: OnParentFailure
    immediately: bool
    key: str | None
    delay: Duration
    at: datetime | None
    hold: bool
    group: str | None
    trace: str | None
    tx: Any
    tenant: str | None
    """The tenant that gets the job. None: the app's own store."""
