"""What a caller is told of many things at once: pages of groups, budgets, leases and executions, the steps and
relatives of a job, and what a bulk verb has done."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from leasehold.domain.budgets import BudgetScope
from leasehold.domain.groups import GROUP_TOTAL_CAP, GroupState
from leasehold.domain.job import OnParentFailure
from leasehold.domain.policy import OnBreach
from leasehold.domain.records import Relation
from leasehold.domain.states import State
from leasehold.operations.arguments import BulkWord
from leasehold.surfaces.http.responses import ID, GroupStopped, Record

Next = Field(description="The cursor of the page that follows. A page may be short and yet have one.")


class GroupSummary(Record):
    """A group as a list shows it."""

    name: str
    state: GroupState
    held: bool = Field(description="Nothing comes into it until it is released.")
    reason: str | None
    version: int
    live: int
    total: int = Field(description=f"All of its jobs. At {GROUP_TOTAL_CAP:,} there may be more.")
    changed_by: str | None
    changed_at: datetime | None
    last_stop: GroupStopped | None


class GroupPage(Record):
    groups: list[GroupSummary]
    next: str | None = Next


class BudgetLine(Record):
    """One unit of a job, of its present run, or of a group."""

    scope: BudgetScope
    name: str = Field(description="The job's id, or the group's name.")
    unit: str
    limit: int | None = Field(description="null: as much as it likes.")
    spent: int
    left: int | None
    exhausted: bool = Field(validation_alias="over", description="More was spent than the limit.")


class BudgetRow(BudgetLine):
    exhausted: bool = Field(description="More was spent than the limit.")
    on_breach: OnBreach | None = Field(
        description="What becomes of the job then. Of a group, each of its jobs says that itself."
    )
    task: str | None
    queue: str | None


class BudgetPage(Record):
    budgets: list[BudgetRow]
    next: str | None = Next


class Lease(Record):
    """A job that runs, and the worker that holds it."""

    job_id: ID
    task: str
    queue: str
    group: str | None
    attempt: int
    worker: str | None
    started_at: datetime
    expires_at: datetime
    expires_in: float = Field(description="Seconds. Below 0: it was missed, and a worker will take it over.")
    stop_requested: str | None


class LeasePage(Record):
    leases: list[Lease]
    next: str | None = Next


class Execution(Record):
    """A command or a container that a job runs outside of its worker."""

    job_id: ID
    task: str
    queue: str
    attempt: int
    site: str
    name: str
    worker: str | None = Field(description="Who watches it; null: nobody, until it is adopted.")
    placed_at: datetime
    started_at: datetime | None
    stop_requested: str | None


class Step(Record):
    name: str
    attempt: int
    saved_at: datetime
    result: Any


class Relative(Record):
    """A job that is tied to another, and how."""

    relation: Relation
    id: ID
    task: str
    queue: str
    state: State
    on_failure: OnParentFailure | None = Field(
        description="What the one that waits does when the other ends without success."
    )
    met: bool | None = Field(description="The one that waits need no longer do so.")


class AuditEntry(Record):
    seq: int
    at: datetime
    actor: str | None
    verb: str
    target: str | None
    detail: dict[str, Any]
    outcome: Literal["done", "refused"]
    error: str | None


class AuditPage(Record):
    entries: list[AuditEntry]
    next: str | None


class BulkRefusal(Record):
    """Jobs that were refused alike."""

    code: str = Field(examples=["refused"])
    state: str | None
    detail: str = Field(description="What the first of them said.")
    jobs: int
    sample: list[ID]


class BulkReport(Record):
    verb: BulkWord
    dry_run: bool
    matched: int = Field(description="How many jobs were found; where `next` is given, there may be more.")
    changed: int
    moved_on: int = Field(description="Were in another state when their turn came.")
    refused: list[BulkRefusal]
    sample: list[ID] = Field(description="The first that were found.")
    next: str | None = Field(description="Where to go on, as `cursor`.")
