"""/v1/workers, /v1/pauses, /v1/tasks and the probes."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from leasehold.app import Leasehold
from leasehold.domain.records import PauseRecord, WorkerCard
from leasehold.domain.task_cards import TaskCard
from leasehold.operations.json_records import as_models, json_type
from leasehold.surfaces.guard.calls import tasks_for
from leasehold.surfaces.http import responses
from leasehold.surfaces.http.route import OPEN, RequestCaller, needs


def add_to(router: APIRouter) -> None:
    @router.get(
        "/v1/workers",
        dependencies=needs("read"),
        tags=["workers"],
        response_model=json_type(list[WorkerCard]),
    )
    def list_workers(caller: RequestCaller) -> Any:
        """The live workers, each as it last reported."""
        caller.check_all_queues()
        return as_models(list[WorkerCard], caller.workers())

    @router.get(
        "/v1/pauses",
        dependencies=needs("read"),
        tags=["queues"],
        response_model=json_type(list[PauseRecord]),
    )
    def list_pauses(caller: RequestCaller) -> Any:
        """The queues and tasks that are paused, including those without jobs."""
        visible = [
            row
            for row in caller.operations.list_pauses()
            if not caller.access.queues or (row.scope == "queue" and caller.access.may_use_queue(row.name))
        ]
        return as_models(list[PauseRecord], visible)

    @router.get(
        "/v1/tasks", dependencies=needs("read"), tags=["queues"], response_model=json_type(list[TaskCard])
    )
    def list_tasks(caller: RequestCaller) -> Any:
        """The tasks that can be enqueued here, with the schemas of their arguments."""
        return as_models(list[TaskCard], tasks_for(caller))


def add_probes(router: APIRouter, app: Leasehold, *, needs_worker: bool) -> None:
    @router.get("/livez", dependencies=OPEN, tags=["probes"])
    def livez() -> responses.Live:
        """This process answers. It does not check the database: a restart of the process would not repair that."""
        return responses.Live()

    @router.get(
        "/readyz",
        dependencies=OPEN,
        tags=["probes"],
        responses={503: {"model": responses.Ready, "description": "It is not ready"}},
    )
    def readyz(response: Response) -> responses.Ready:
        """The database answers and its schema fits; if this process runs a worker, a worker is live too."""
        findings = app.__internals__.operations.check_health()
        wanted = [one for one in findings if needs_worker or one.check != "workers"]
        ready = all(one.verdict == "ok" for one in wanted)
        if not ready:
            response.status_code = 503
        return responses.Ready(
            status="ok" if ready else "bad", checks={one.check: one.verdict for one in wanted}
        )
