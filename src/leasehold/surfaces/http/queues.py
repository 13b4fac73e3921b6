"""/v1/queues, /v1/kinds and /v1/lanes: whole scopes, closed and opened."""

from __future__ import annotations

from fastapi import APIRouter

from leasehold.domain.closing import Closing
from leasehold.surfaces.guard.callers import Caller
from leasehold.surfaces.guard.calls import kinds_for
from leasehold.surfaces.http import asked, told
from leasehold.surfaces.http.jobs import job_of
from leasehold.surfaces.http.route import Who, needs


def add_to(router: APIRouter) -> None:
    @router.get("/v1/queues", dependencies=needs("read"), tags=["queues"])
    def list_queues(who: Who) -> list[told.Queue]:
        """Every queue and task that is known, with its live workers, its pause and what is in it."""
        rows = who.operations.list_queues()
        return [told.Queue.model_validate(row) for row in rows if who.access.may_use_queue(row.queue)]

    @router.get("/v1/pauses", dependencies=needs("read"), tags=["queues"])
    def list_pauses(who: Who) -> list[told.PauseOf]:
        """The queues and tasks that are paused now, including those without jobs."""
        return [
            told.PauseOf.model_validate(row)
            for row in who.operations.list_pauses()
            if not who.access.queues or (row.scope == "queue" and who.access.may_use_queue(row.name))
        ]

    @router.post("/v1/queues/{name}/pause", dependencies=needs("operate"), tags=["queues"])
    def pause_queue(name: str, who: Who, body: asked.Closing = asked.Closing()) -> told.Pause:  # noqa: B008 - never changed
        """No job of it starts until it is resumed; running ones go on."""
        who.check_queue(name)
        return told.Pause.model_validate(who.operations.pause_scope("queue", name, closing_of(body, who)))

    @router.post("/v1/queues/{name}/resume", dependencies=needs("operate"), tags=["queues"])
    def resume_queue(name: str, who: Who) -> told.Changed:
        """Start jobs of this queue again."""
        who.check_queue(name)
        return told.Changed(changed=who.operations.resume_scope("queue", name, actor=who.actor))

    @router.get("/v1/kinds", dependencies=needs("read"), tags=["queues"])
    def list_kinds(who: Who) -> list[told.Kind]:
        """The tasks that can be enqueued here, with the schemas of their arguments."""
        return [told.Kind.model_validate(card) for card in kinds_for(who)]

    @router.post("/v1/kinds/{name}/pause", dependencies=needs("operate"), tags=["queues"])
    def pause_kind(name: str, who: Who, body: asked.Closing = asked.Closing()) -> told.Pause:  # noqa: B008 - never changed
        """No job of this task starts until it is resumed; running ones go on."""
        who.check_all_queues()
        return told.Pause.model_validate(who.operations.pause_scope("kind", name, closing_of(body, who)))

    @router.post("/v1/kinds/{name}/resume", dependencies=needs("operate"), tags=["queues"])
    def resume_kind(name: str, who: Who) -> told.Changed:
        """Start jobs of this task again."""
        who.check_all_queues()
        return told.Changed(changed=who.operations.resume_scope("kind", name, actor=who.actor))

    @router.get("/v1/lanes", dependencies=needs("read"), tags=["queues"])
    def list_lanes(who: Who) -> list[told.Lane]:
        """Lanes that are held or halted, each with the job that runs in it or halts it."""
        who.check_all_queues()
        return [told.Lane.model_validate(row) for row in who.operations.list_lanes()]

    @router.post("/v1/lanes/{name:path}/resume", dependencies=needs("operate"), tags=["queues"])
    def resume_lane(name: str, who: Who) -> told.Job | None:
        """Resume the job that halts the lane; null: nothing halts it."""
        who.check_all_queues()
        job = who.view.lanes.resume(name, actor=who.actor)
        return None if job is None else job_of(job)


def closing_of(body: asked.Closing, who: Caller) -> Closing:
    return Closing(for_=body.for_, until=body.until, reason=body.reason, actor=who.actor)
