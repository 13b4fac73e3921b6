"""/v1/audit: who has changed what, and who was refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from fastapi import APIRouter, Request, Response

from leasehold.surfaces.http import asked
from leasehold.surfaces.http.paging import add_link
from leasehold.surfaces.http.route import Who, needs
from leasehold.surfaces.http.told import Told


class AuditEntry(Told):
    seq: int
    at: datetime
    actor: str | None
    verb: str
    target: str | None
    detail: dict[str, Any]
    outcome: Literal["done", "refused"]
    error: str | None


class AuditPage(Told):
    entries: list[AuditEntry]
    next: str | None


def add_to(router: APIRouter) -> None:
    @router.get("/v1/audit", dependencies=needs("admin"), tags=["audit"])
    def list_audit(
        who: Who,
        request: Request,
        response: Response,
        actor: asked.Named = "",
        verb: asked.Named = "",
        target: asked.Named = "",
        limit: asked.Limit = 50,
        cursor: asked.SeqCursor = "",
    ) -> AuditPage:
        """One page of what was done by hand, and refused, newest first."""
        who.check_all_queues()
        page = who.operations.list_audit(
            actor=actor or None,
            verb=verb or None,
            target=target or None,
            limit=limit,
            cursor=cursor or None,
        )
        add_link(request, response, page.next)
        return AuditPage.model_validate(page)
