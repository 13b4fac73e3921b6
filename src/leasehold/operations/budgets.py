"""Verbs and reads of the budgets of jobs and groups."""

from __future__ import annotations

from leasehold.domain.budgets import BudgetLine, BudgetPage, Spending
from leasehold.operations.arguments import (
    Actor,
    Amounts,
    GroupName,
    JobId,
    Limit,
    Limits,
    OfOwner,
    PageCursor,
)
from leasehold.operations.verb import Backend, read, verb


@verb(
    "budget.top_up",
    scope="operate",
    guard="job",
    http="POST /v1/jobs/{id}/budget/top-up",
    title="top_up_job",
    examples={"amounts": {"tokens": 50_000}},
)
def top_up(backend: Backend, job_id: JobId, amounts: Amounts, *, actor: Actor = None) -> list[BudgetLine]:
    """Raise the limits of a job's budget. A job that went over its budget can then be resumed."""
    return backend.store.top_up(job_id, amounts, actor)


@verb(
    "budget.set",
    scope="operate",
    guard="all queues",
    http="PUT /v1/groups/{name:path}/budget",
    title="set_group_budget",
    examples={"limits": {"tokens": 1_000_000, "pages": None}},
)
def set_group_budget(
    backend: Backend, group: GroupName, limits: Limits, *, actor: Actor = None
) -> list[BudgetLine]:
    """Set limits of a group's budget; limits of other units stay."""
    return backend.store.set_group_budget(group, limits)


@read("budget.job", guard="job", http="GET /v1/jobs/{id}/budget")
def budget(backend: Backend, job_id: JobId) -> list[BudgetLine]:
    """List what a job and its group may spend, and have spent."""
    return backend.store.budget(job_id)


@read("budget.group", guard="all queues", http="GET /v1/groups/{name:path}/budget")
def group_budget(backend: Backend, group: GroupName) -> list[BudgetLine]:
    """List what the jobs of a group may spend together, and have spent."""
    return backend.store.group_budget(group)


@read("budgets.list", guard="rows", http="GET /v1/budgets")
def list_budgets(
    backend: Backend, scope: OfOwner = None, limit: Limit = 50, cursor: PageCursor = None
) -> BudgetPage:
    """List what groups and jobs may spend, and have spent. A job is listed once it has spent something."""
    return backend.store.list_budgets(scope, limit, cursor)


@read("spending.list", guard="job", http="GET /v1/jobs/{id}/spending")
def spending(backend: Backend, job_id: JobId) -> list[Spending]:
    """List the amounts that a job spent. Each has its key, and the lease under which it was spent."""
    return backend.store.spending(job_id)
