"""/v1/jobs: make them, look at them, steer them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from leasehold.domain.states import State
from leasehold.domain.views import Filter, Page
from leasehold.surfaces.guard.callers import Caller
from leasehold.surfaces.guard.calls import AskedCall, enqueue_for, enqueue_once_for
from leasehold.surfaces.http import asked, told, told_many
from leasehold.surfaces.http.paging import add_link, add_location
from leasehold.surfaces.http.route import Who, needs
from leasehold.types import Job as Handle

IdempotencyKey = Annotated[
    str,
    Header(
        max_length=200,
        description="The same key with the same body within a day makes no second job, and gives the first answer.",
    ),
]


def add_to(router: APIRouter) -> None:
    @router.post(
        "/v1/jobs",
        status_code=201,
        dependencies=needs("enqueue"),
        tags=["jobs"],
        response_model=told.Created,
        responses={200: {"model": told.Created, "description": "It was there already"}},
    )
    def create_job(
        body: asked.NewJob,
        who: Who,
        request: Request,
        response: Response,
        idempotency_key: IdempotencyKey = "",
    ) -> Any:
        """Store a job; it is durable when this answers."""
        ((made,), repeated) = _store(who, [body], idempotency_key)
        add_location(request, response, "/v1/jobs", made.id)
        return _created(response, made, repeated)

    @router.post(
        "/v1/jobs/batch",
        status_code=201,
        dependencies=needs("enqueue"),
        tags=["jobs"],
        response_model=told.CreatedBatch,
        responses={200: {"model": told.CreatedBatch, "description": "A repeat: all were there already"}},
    )
    def create_jobs(
        body: asked.Batch, who: Who, response: Response, idempotency_key: IdempotencyKey = ""
    ) -> Any:
        """Store many jobs, all or none."""
        made, repeated = _store(who, body.jobs, idempotency_key)
        if repeated:
            response.status_code = 200
            response.headers["Idempotent-Replayed"] = "true"
        return told.CreatedBatch(jobs=[told.Created.model_validate(one) for one in made])

    @router.get("/v1/jobs", dependencies=needs("read"), tags=["jobs"])
    def list_jobs(
        who: Who,
        request: Request,
        response: Response,
        state: Annotated[list[State], Query(max_length=20, description="May be repeated.")] = [],  # noqa: B006 - FastAPI copies it
        queue: asked.Named = "",
        kind: asked.Named = "",
        lane: asked.Named = "",
        group: asked.Named = "",
        tag: asked.Named = "",
        limit: asked.Limit = 50,
        cursor: asked.Cursor = "",
    ) -> told.JobPage:
        """One page of jobs, newest first, of those that match all that is given."""
        filter = Filter(tuple(state), queue or None, kind or None, lane or None, group or None, tag or None)
        page = who.operations.list_jobs(filter, limit, cursor or None)
        add_link(request, response, page.next)
        return told.JobPage.model_validate(Page(who.seen(page.jobs), page.next))

    @router.get("/v1/count", dependencies=needs("read"), tags=["jobs"])
    def count_jobs(who: Who) -> dict[State, int]:
        """Jobs by state, each counted up to 10,000."""
        who.check_all_queues()
        return who.operations.count()

    @router.get("/v1/jobs/{id}/explain", dependencies=needs("read"), tags=["jobs"])
    def explain_job(id: str, who: Who) -> list[told.Hold]:
        """Why it is not running: every cause in order, with what would change it."""
        return [told.Hold.model_validate(hold) for hold in who.explain(id)]

    @router.get("/v1/jobs/{id}/attempts", dependencies=needs("read"), tags=["jobs"])
    def list_attempts(id: str, who: Who) -> list[told.Attempt]:
        """Its runs, oldest first."""
        return [told.Attempt.model_validate(one) for one in who.operations.attempts(who.job(id).id)]

    @router.get("/v1/jobs/{id}/history", dependencies=needs("read"), tags=["jobs"])
    def list_history(id: str, who: Who) -> list[told.HistoryEntry]:
        """Its moves between states, oldest first: what, when, by whom."""
        return [told.HistoryEntry.model_validate(one) for one in who.operations.history(who.job(id).id)]

    @router.get("/v1/jobs/{id}/steps", dependencies=needs("read"), tags=["jobs"])
    def list_steps(id: str, who: Who) -> list[told_many.Step]:
        """What its steps have returned, in the order in which they were stored."""
        return [told_many.Step.model_validate(one) for one in who.operations.steps(who.job(id).id)]

    @router.get("/v1/jobs/{id}/relatives", dependencies=needs("read"), tags=["jobs"])
    def list_relatives(id: str, who: Who, limit: asked.Limit = 500) -> list[told_many.Relative]:
        """What it waits for, who waits for it, whose follow-up it is, which follow-ups it has."""
        rows = who.seen(who.operations.relatives(who.job(id).id, limit))
        return [told_many.Relative.model_validate(row) for row in rows]

    @router.get("/v1/jobs/{id}/events", dependencies=needs("read"), tags=["jobs"])
    def list_events(id: str, who: Who, since: asked.Since = 0, limit: asked.Limit = 500) -> told.Events:
        """What it has reported after a sequence number, in order: progress and partial results."""
        return told.Events.model_validate(who.operations.read_stream(who.job(id).id, since, limit))

    @router.get("/v1/jobs/{id}/log", dependencies=needs("read"), tags=["jobs"])
    def read_log(
        id: str,
        who: Who,
        attempt: Annotated[int, Query(ge=0, le=2**31 - 1, description="0: the newest that has logged.")] = 0,
    ) -> told.Log:
        """The last lines that an attempt has logged."""
        return told.Log.model_validate(who.job(id).log(attempt or None))

    _add_verbs(router)


def _add_verbs(router: APIRouter) -> None:
    def verb(name: str, act: Callable[..., Handle[object]], text: str) -> None:
        def steer(id: str, who: Who, body: asked.Why = asked.Why()) -> told.Job:  # noqa: B008 - never changed
            return job_of(act(who.job(id), body.reason, actor=who.actor))

        steer.__doc__ = text
        path = f"/v1/jobs/{{id}}/{name}"
        router.post(path, dependencies=needs("operate"), tags=["jobs"], name=f"{name}_job")(steer)

    verb("cancel", Handle.cancel, "Cancel it: at once, or as soon as its worker gets the request.")
    verb("pause", Handle.pause, "Pause it; a running job is asked to stop, and can be resumed.")
    verb("interrupt", Handle.interrupt, "Pause it if it runs, else cancel it.")
    verb("resolve", Handle.resolve, "Leave a failed job as it is, and let its lane go on.")

    @router.post("/v1/jobs/{id}/abandon", dependencies=needs("admin"), tags=["jobs"])
    def abandon_job(id: str, who: Who, body: asked.Why = asked.Why()) -> told.Job:  # noqa: B008 - never changed
        """Give up on an orphan whose machine is gone for good. If it still runs, the next attempt runs beside
        it."""
        who.operations.abandon(who.job(id).id, reason=body.reason, actor=who.actor)
        return job_of(who.job(id))

    @router.post("/v1/jobs/{id}/release", dependencies=needs("operate"), tags=["jobs"])
    def release_job(id: str, who: Who) -> told.Job:
        """Lift the hold that it was enqueued with."""
        return job_of(who.job(id).release(actor=who.actor))

    @router.post("/v1/jobs/{id}/resume", dependencies=needs("operate"), tags=["jobs"])
    def resume_job(id: str, who: Who, body: asked.Resume = asked.Resume()) -> told.Job:  # noqa: B008 - never changed
        """Resume a paused, failed or timed-out job."""
        return job_of(who.job(id).resume(args=body.args, fresh=body.fresh, actor=who.actor))

    @router.post("/v1/jobs/{id}/retry", status_code=201, dependencies=needs("operate"), tags=["jobs"])
    def retry_job(id: str, who: Who, request: Request, response: Response) -> told.Job:
        """Enqueue a new job like this one, which stays as it is."""
        made = who.job(id).retry(actor=who.actor)
        add_location(request, response, "/v1/jobs", made.id)
        return job_of(made)


def job_of(job: Handle[object]) -> told.Job:
    """As it was last read, and how far it is."""
    found = told.Job.model_validate(job.__row__)
    progress = job.progress()
    return (
        found
        if progress is None
        else found.model_copy(update={"progress": told.Progress.model_validate(progress)})
    )


def _created(response: Response, made: Handle[object], repeated: bool) -> told.Created:
    if repeated:
        response.headers["Idempotent-Replayed"] = "true"
    if repeated or not made.created:
        response.status_code = 200
    return told.Created.model_validate(made)


def _store(who: Caller, jobs: Sequence[asked.NewJob], key: str) -> tuple[Sequence[Handle[Any]], bool]:
    calls = [AskedCall(**{name: getattr(job, name) for name in asked.NewJob.model_fields}) for job in jobs]
    if not key:
        return enqueue_for(who, calls), False
    return enqueue_once_for(who, calls, key, [job.model_dump(mode="json") for job in jobs])
