"""/v1/groups and /v1/stop: the status of a group, and the stop of many jobs."""

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
"""The default body of a stop. Nothing changes it."""


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
            int, Query(ge=-1, le=2**53, description="`version` of an earlier response; -1: none.")
        ] = -1,
        tasks: Annotated[list[str], Query(max_length=100, description="Only jobs of these tasks.")] = [],  # noqa: B006 - FastAPI copies it
        partial: Annotated[
            bool, Query(description="With the progress and partial results of running jobs.")
        ] = False,
        noted: Annotated[
            int, Query(ge=-1, le=2**53, description="`noted` of an earlier response; -1: none.")
        ] = -1,
    ) -> Any:
        """The progress, results and errors of a group. With `wait` and `since`: as soon as it changes, or no job of it
        is live. A group without jobs so far has version 0."""
        caller.check_all_queues()
        status = await caller.operations.agroup_status(
            name,
            wait=wait,
            since=None if since < 0 else since,
            tasks=tasks or None,
            partial=partial,
            noted=None if noted < 0 else noted,
        )
        # Results in files are not read: a group may have many, and a caller who follows it needs few of them.
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
        """Stop all jobs of a group, or those of some tasks."""
        caller.check_all_queues()
        request = StopRequest(group=name, actor=caller.actor, **dict(body))
        return as_models(StopReport, await caller.operations.astop(request))

    @router.post("/v1/stop", dependencies=needs("operate"), tags=["groups"], response_model=model(StopReport))
    async def stop_jobs(body: requests.StopJobs, caller: RequestCaller) -> Any:
        """Stop every job that matches all given criteria."""
        if body.queue is None or body.group is not None:
            caller.check_all_queues()
        else:
            caller.check_queue(body.queue)
        request = StopRequest(actor=caller.actor, **dict(body))
        return as_models(StopReport, await caller.operations.astop(request))
