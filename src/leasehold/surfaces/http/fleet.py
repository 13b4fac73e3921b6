"""/v1/workers, what they hold and what they watch, and the probes."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from leasehold.app import Leasehold
from leasehold.surfaces.http import asked, told, told_many
from leasehold.surfaces.http.paging import add_link
from leasehold.surfaces.http.route import OPEN, Who, needs


def add_to(router: APIRouter) -> None:
    @router.get("/v1/workers", dependencies=needs("read"), tags=["workers"])
    def list_workers(who: Who) -> list[told.Worker]:
        """Who works here, as each worker last said of itself."""
        who.check_all_queues()
        return [told.Worker.model_validate(card) for card in who.workers()]

    @router.get("/v1/leases", dependencies=needs("read"), tags=["workers"])
    def list_leases(
        who: Who,
        request: Request,
        response: Response,
        worker: asked.Named = "",
        limit: asked.Limit = 50,
        cursor: asked.PageCursor = "",
    ) -> told_many.LeasePage:
        """Who runs what, in the order in which the jobs came: since when, and when the lease runs out."""
        page = who.operations.list_leases(worker or None, limit, cursor or None)
        add_link(request, response, page.next)
        rows = [told_many.Lease.model_validate(row) for row in who.seen(page.leases)]
        return told_many.LeasePage(leases=rows, next=page.next)

    @router.get("/v1/executions", dependencies=needs("read"), tags=["workers"])
    def list_executions(who: Who, limit: asked.Limit = 500) -> list[told_many.Execution]:
        """Commands and containers that live, the oldest first, with who watches them."""
        rows = who.seen(who.operations.list_executions(limit))
        return [told_many.Execution.model_validate(row) for row in rows]


def add_probes(router: APIRouter, app: Leasehold, *, needs_worker: bool) -> None:
    @router.get("/livez", dependencies=OPEN, tags=["probes"])
    def livez() -> told.Live:
        """This process answers. Asks the database nothing: a restart would not bring that back."""
        return told.Live()

    @router.get(
        "/readyz",
        dependencies=OPEN,
        tags=["probes"],
        responses={503: {"model": told.Ready, "description": "It is not ready"}},
    )
    def readyz(response: Response) -> told.Ready:
        """The database answers and its schema fits; where a worker runs in this process, somebody works too."""
        findings = app.__internals__.operations.check_health()
        wanted = [one for one in findings if needs_worker or one.check != "workers"]
        ready = all(one.verdict == "ok" for one in wanted)
        if not ready:
            response.status_code = 503
        return told.Ready(status="ok" if ready else "bad", checks={one.check: one.verdict for one in wanted})
