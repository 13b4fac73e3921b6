"""/v1/budgets, and the budgets of a job and of a group."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from leasehold.domain.budgets import BudgetOwner
from leasehold.surfaces.http import asked, told_many
from leasehold.surfaces.http.paging import add_link
from leasehold.surfaces.http.route import Who, needs


def add_to(router: APIRouter) -> None:
    @router.get("/v1/budgets", dependencies=needs("read"), tags=["budgets"])
    def list_budgets(
        who: Who,
        request: Request,
        response: Response,
        scope: Annotated[BudgetOwner | Literal[""], Query(description="Empty: of both.")] = "",
        limit: asked.Limit = 50,
        cursor: asked.PageCursor = "",
    ) -> told_many.BudgetPage:
        """What may be spent and what was: of groups by name, then of jobs that have spent something."""
        page = who.operations.list_budgets(scope or None, limit, cursor or None)
        add_link(request, response, page.next)
        rows = [told_many.BudgetRow.model_validate(row) for row in who.seen(page.budgets)]
        return told_many.BudgetPage(budgets=rows, next=page.next)

    @router.get("/v1/jobs/{id}/budget", dependencies=needs("read"), tags=["budgets"])
    def job_budget(id: str, who: Who) -> list[told_many.BudgetLine]:
        """What the job and its group may spend, and have spent."""
        lines = who.operations.budget(who.job(id).id)
        return [told_many.BudgetLine.model_validate(line) for line in lines]

    @router.post("/v1/jobs/{id}/budget/top-up", dependencies=needs("operate"), tags=["budgets"])
    def top_up_job(id: str, body: asked.TopUp, who: Who) -> list[told_many.BudgetLine]:
        """Raise its limits by these amounts. A job that went over them can then be resumed."""
        lines = who.operations.top_up(who.job(id).id, body.amounts, actor=who.actor)
        return [told_many.BudgetLine.model_validate(line) for line in lines]

    @router.get("/v1/groups/{name:path}/budget", dependencies=needs("read"), tags=["budgets"])
    def group_budget(name: str, who: Who) -> list[told_many.BudgetLine]:
        """What its jobs may spend together, and have spent."""
        who.check_all_queues()
        return [told_many.BudgetLine.model_validate(line) for line in who.operations.group_budget(name)]

    @router.put("/v1/groups/{name:path}/budget", dependencies=needs("operate"), tags=["budgets"])
    def set_group_budget(name: str, body: asked.GroupLimits, who: Who) -> list[told_many.BudgetLine]:
        """Set these limits; null takes one away, the others stay."""
        who.check_all_queues()
        lines = who.operations.set_group_budget(name, body.limits, actor=who.actor)
        return [told_many.BudgetLine.model_validate(line) for line in lines]
