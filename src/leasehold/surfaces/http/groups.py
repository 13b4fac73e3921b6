"""/v1/groups and /v1/stop: many jobs at once."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from leasehold.domain.stop import StopRequest
from leasehold.surfaces.http import asked, told
from leasehold.surfaces.http.names import NAME
from leasehold.surfaces.http.route import Who, needs

WHOLE_GROUP = asked.GroupStop()
"""The body of a request without one. It is never changed."""


def add_to(router: APIRouter) -> None:
    @router.get(f"/v1/groups/{{name:{NAME}}}", dependencies=needs("read"), tags=["groups"])
    async def group_status(
        name: str,
        who: Who,
        wait: asked.Wait = 0,
        since: Annotated[
            int, Query(ge=-1, le=2**53, description="`version` of an earlier answer; -1: none.")
        ] = -1,
        kinds: Annotated[list[str], Query(max_length=100, description="Only of these tasks.")] = [],  # noqa: B006 - FastAPI copies it
        partial: Annotated[bool, Query(description="Also what its runs have told.")] = False,
        noted: Annotated[
            int, Query(ge=-1, le=2**53, description="`noted` of an earlier answer; -1: none.")
        ] = -1,
    ) -> told.Group:
        """How far it is, what came out, what went wrong. With `wait` and `since`: as soon as it changes, or nothing of
        it is live. A group that nobody has used has version 0."""
        who.check_all_queues()
        status = await who.operations.agroup_status(
            name,
            wait=wait,
            since=None if since < 0 else since,
            kinds=kinds or None,
            partial=partial,
            noted=None if noted < 0 else noted,
        )
        return told.Group.of(status)

    @router.post("/v1/groups/{name:path}/stop", dependencies=needs("operate"), tags=["groups"])
    async def stop_group(name: str, who: Who, body: asked.GroupStop = WHOLE_GROUP) -> told.StopReport:
        """Stop all of its jobs, or those of some tasks."""
        who.check_all_queues()
        request = StopRequest(
            group=name,
            kinds=body.kinds,
            mode=body.mode,
            reason=body.reason,
            wait=body.wait,
            dry_run=body.dry_run,
            hold=body.hold,
            actor=who.actor,
        )
        return told.StopReport.model_validate(await who.operations.astop(request))

    @router.post("/v1/stop", dependencies=needs("operate"), tags=["groups"])
    async def stop_jobs(body: asked.Stop, who: Who) -> told.StopReport:
        """Stop every job that matches all that is given."""
        if body.queue is None or body.group is not None:
            who.check_all_queues()
        else:
            who.check_queue(body.queue)
        request = StopRequest(
            group=body.group,
            queue=body.queue,
            kinds=body.kinds,
            lane=body.lane,
            tags=body.tags,
            everything=body.everything,
            mode=body.mode,
            reason=body.reason,
            wait=body.wait,
            dry_run=body.dry_run,
            hold=body.hold,
            actor=who.actor,
        )
        return told.StopReport.model_validate(await who.operations.astop(request))
