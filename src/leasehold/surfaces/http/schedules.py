"""/v1/schedules: what is due by itself."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from leasehold.surfaces.http import asked, told
from leasehold.surfaces.http.names import NAME
from leasehold.surfaces.http.paging import add_location
from leasehold.surfaces.http.route import Who, needs


def add_to(router: APIRouter) -> None:
    @router.get("/v1/schedules", dependencies=needs("read"), tags=["schedules"])
    def list_schedules(who: Who) -> list[told.Schedule]:
        """Every schedule: its next and last tick, its last job, and whether it is paused or orphaned."""
        who.check_all_queues()
        return [told.Schedule.model_validate(row) for row in who.operations.list_schedules()]

    @router.get(f"/v1/schedules/{{name:{NAME}}}", dependencies=needs("read"), tags=["schedules"])
    def get_schedule(name: str, who: Who) -> told.Schedule:
        """One schedule."""
        who.check_all_queues()
        return told.Schedule.model_validate(who.operations.get_schedule(name))

    @router.post("/v1/schedules/{name:path}/pause", dependencies=needs("operate"), tags=["schedules"])
    def pause_schedule(name: str, who: Who, body: asked.Why = asked.Why()) -> told.Schedule:  # noqa: B008 - never changed
        """No ticks until it is resumed; those of the pause are not made up for."""
        who.check_all_queues()
        row = who.operations.pause_schedule(name, body.reason, actor=who.actor)
        return told.Schedule.model_validate(row)

    @router.post("/v1/schedules/{name:path}/resume", dependencies=needs("operate"), tags=["schedules"])
    def resume_schedule(name: str, who: Who) -> told.Changed:
        """Ticks again, from now on."""
        who.check_all_queues()
        return told.Changed(changed=who.operations.resume_schedule(name, actor=who.actor))

    @router.post(
        "/v1/schedules/{name:path}/run", status_code=201, dependencies=needs("operate"), tags=["schedules"]
    )
    def run_schedule(name: str, who: Who, request: Request, response: Response) -> told.Created:
        """Make a job of it now, besides its ticks."""
        who.check_all_queues()
        made = who.view.schedules.run(name, actor=who.actor)
        add_location(request, response, "/v1/schedules/", made.id)
        return told.Created.model_validate(made)
