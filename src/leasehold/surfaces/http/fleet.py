"""/v1/workers, /v1/pauses and /v1/tasks, each with a filter of its own, and the probes."""

from __future__ import annotations

from fastapi import APIRouter, Response

from leasehold.app import Leasehold
from leasehold.surfaces.guard.calls import tasks_for
from leasehold.surfaces.http import responses
from leasehold.surfaces.http.route import OPEN, RequestCaller, needs


def add_to(router: APIRouter) -> None:
    @router.get("/v1/workers", dependencies=needs("read"), tags=["workers"])
    def list_workers(caller: RequestCaller) -> list[responses.Worker]:
        """Who works here, as each worker last said of itself."""
        caller.check_all_queues()
        return [responses.Worker.model_validate(card) for card in caller.workers()]

    @router.get("/v1/pauses", dependencies=needs("read"), tags=["queues"])
    def list_pauses(caller: RequestCaller) -> list[responses.PauseOf]:
        """The queues and tasks that are paused now, including those without jobs."""
        return [
            responses.PauseOf.model_validate(row)
            for row in caller.operations.list_pauses()
            if not caller.access.queues or (row.scope == "queue" and caller.access.may_use_queue(row.name))
        ]

    @router.get("/v1/tasks", dependencies=needs("read"), tags=["queues"])
    def list_tasks(caller: RequestCaller) -> list[responses.Task]:
        """The tasks that can be enqueued here, with the schemas of their arguments."""
        return [responses.Task.model_validate(card) for card in tasks_for(caller)]


def add_probes(router: APIRouter, app: Leasehold, *, needs_worker: bool) -> None:
    @router.get("/livez", dependencies=OPEN, tags=["probes"])
    def livez() -> responses.Live:
        """This process answers. Asks the database nothing: a restart would not bring that back."""
        return responses.Live()

    @router.get(
        "/readyz",
        dependencies=OPEN,
        tags=["probes"],
        responses={503: {"model": responses.Ready, "description": "It is not ready"}},
    )
    def readyz(response: Response) -> responses.Ready:
        """The database answers and its schema fits; where a worker runs in this process, somebody works too."""
        findings = app.__internals__.operations.check_health()
        wanted = [one for one in findings if needs_worker or one.check != "workers"]
        ready = all(one.verdict == "ok" for one in wanted)
        if not ready:
            response.status_code = 503
        return responses.Ready(
            status="ok" if ready else "bad", checks={one.check: one.verdict for one in wanted}
        )
