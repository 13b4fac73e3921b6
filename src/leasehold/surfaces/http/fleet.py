"""/v1/workers, /v1/pauses and /v1/kinds, each with a filter of its own, and the probes."""

from __future__ import annotations

from fastapi import APIRouter, Response

from leasehold.app import Leasehold
from leasehold.surfaces.guard.calls import kinds_for
from leasehold.surfaces.http import told
from leasehold.surfaces.http.route import OPEN, Who, needs


def add_to(router: APIRouter) -> None:
    @router.get("/v1/workers", dependencies=needs("read"), tags=["workers"])
    def list_workers(who: Who) -> list[told.Worker]:
        """Who works here, as each worker last said of itself."""
        who.check_all_queues()
        return [told.Worker.model_validate(card) for card in who.workers()]

    @router.get("/v1/pauses", dependencies=needs("read"), tags=["queues"])
    def list_pauses(who: Who) -> list[told.PauseOf]:
        """The queues and tasks that are paused now, including those without jobs."""
        return [
            told.PauseOf.model_validate(row)
            for row in who.operations.list_pauses()
            if not who.access.queues or (row.scope == "queue" and who.access.may_use_queue(row.name))
        ]

    @router.get("/v1/kinds", dependencies=needs("read"), tags=["queues"])
    def list_kinds(who: Who) -> list[told.Kind]:
        """The tasks that can be enqueued here, with the schemas of their arguments."""
        return [told.Kind.model_validate(card) for card in kinds_for(who)]


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
