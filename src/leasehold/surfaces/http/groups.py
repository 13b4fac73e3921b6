"""/v1/groups and /v1/stop: many jobs at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query

from leasehold.domain.groups import GroupResult, GroupStatus
from leasehold.domain.stop import StopReport, StopRequest
from leasehold.operations.json_records import as_models, model
from leasehold.surfaces.http import requests
from leasehold.surfaces.http.names import NAME
from leasehold.surfaces.http.route import RequestCaller, needs

WHOLE_GROUP = requests.StopGroup()
"""The body of a request without one. It is never changed."""


def add_to(router: APIRouter) -> None:
    @router.get(
        f"/v1/groups/{{name:{NAME}}}",
        dependencies=needs("read"),
        tags=["groups"],
        response_model=model(GroupStatus),
    )
    async def group_status(
        name: str,
        caller: RequestCaller,
        wait: requests.Wait = 0,
        since: Annotated[
            int, Query(ge=-1, le=2**53, description="`version` of an earlier answer; -1: none.")
        ] = -1,
        tasks: Annotated[list[str], Query(max_length=100, description="Only of these tasks.")] = [],  # noqa: B006 - FastAPI copies it
        partial: Annotated[bool, Query(description="Also what its runs have told.")] = False,
        noted: Annotated[
            int, Query(ge=-1, le=2**53, description="`noted` of an earlier answer; -1: none.")
        ] = -1,
    ) -> Any:
        """How far it is, what came out, what went wrong. With `wait` and `since`: as soon as it changes, or nothing of
        it is live. A group that nobody has used has version 0."""
        caller.check_all_queues()
        status = await caller.operations.agroup_status(
            name,
            wait=wait,
            since=None if since < 0 else since,
            tasks=tasks or None,
            partial=partial,
            noted=None if noted < 0 else noted,
        )
        # Without reading files: a group may have many results, and a caller who follows it reads few of them.
        results = tuple(
            one if one.result_ref is None else GroupResult(one.id, one.task, None, one.result_ref)
            for one in status.results
        )
        return as_models(GroupStatus, replace(status, results=results))

    @router.post(
        "/v1/groups/{name:path}/stop",
        dependencies=needs("operate"),
        tags=["groups"],
        response_model=model(StopReport),
    )
    async def stop_group(name: str, caller: RequestCaller, body: requests.StopGroup = WHOLE_GROUP) -> Any:
        """Stop all of its jobs, or those of some tasks."""
        caller.check_all_queues()
        request = StopRequest(group=name, actor=caller.actor, **dict(body))
        return as_models(StopReport, await caller.operations.astop(request))

    @router.post("/v1/stop", dependencies=needs("operate"), tags=["groups"], response_model=model(StopReport))
    async def stop_jobs(body: requests.StopJobs, caller: RequestCaller) -> Any:
        """Stop every job that matches all that is given."""
        if body.queue is None or body.group is not None:
            caller.check_all_queues()
        else:
            caller.check_queue(body.queue)
        request = StopRequest(actor=caller.actor, **dict(body))
        return as_models(StopReport, await caller.operations.astop(request))
