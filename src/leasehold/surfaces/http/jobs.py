"""What makes a job, and what a mould does not fit: two names in a path, a filter of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response

from leasehold.surfaces.guard.callers import Caller
from leasehold.surfaces.guard.calls import AskedCall, enqueue_for, enqueue_once_for
from leasehold.surfaces.http import asked, told
from leasehold.surfaces.http.paging import add_location
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

    @router.get("/v1/jobs/{id}/explain", dependencies=needs("read"), tags=["jobs"])
    def explain_job(id: str, who: Who) -> list[told.Hold]:
        """Why it is not running: every cause in order, with what would change it."""
        return [told.Hold.model_validate(hold) for hold in who.explain(id)]

    @router.post(
        "/v1/jobs/{id}/questions/{key:path}/answer", dependencies=needs("operate"), tags=["questions"]
    )
    def answer_question(id: str, key: str, body: asked.Answer, who: Who) -> told.Job:
        """Answer a question. A waiting job goes on; a paused one keeps the answer for its resume."""
        return job_of(who.job(id).answer(key, body.value, actor=who.actor))

    @router.post(
        "/v1/schedules/{name:path}/run", status_code=201, dependencies=needs("operate"), tags=["schedules"]
    )
    def run_schedule(name: str, who: Who, request: Request, response: Response) -> told.Created:
        """Make a job of it now, besides its ticks."""
        who.check_all_queues()
        made = who.view.schedules.run(name, actor=who.actor)
        add_location(request, response, "/v1/schedules/", made.id)
        return told.Created.model_validate(made)

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
