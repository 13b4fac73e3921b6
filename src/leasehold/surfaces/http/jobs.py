"""Routes of jobs that are written by hand: those that create jobs, and those that the table of verbs cannot express."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response

from leasehold.domain.explanation import Hold
from leasehold.operations.json_records import as_models, json_type
from leasehold.surfaces.guard.callers import Caller
from leasehold.surfaces.guard.calls import CallRequest, enqueue_for, enqueue_once_for
from leasehold.surfaces.http import requests, responses
from leasehold.surfaces.http.paging import add_location
from leasehold.surfaces.http.route import RequestCaller, needs
from leasehold.types import Job as Handle

IdempotencyKey = Annotated[
    str,
    Header(
        max_length=200,
        description="The same key with the same body within a day makes no second job, and gets the first response.",
    ),
]


def add_to(router: APIRouter) -> None:
    @router.post(
        "/v1/jobs",
        status_code=201,
        dependencies=needs("enqueue"),
        tags=["jobs"],
        response_model=responses.Created,
        responses={200: {"model": responses.Created, "description": "The job existed already"}},
    )
    def create_job(
        body: requests.NewJob,
        caller: RequestCaller,
        request: Request,
        response: Response,
        idempotency_key: IdempotencyKey = "",
    ) -> Any:
        """Store a job. It is durable when the response arrives."""
        ((made,), repeated) = _store(caller, [body], idempotency_key)
        add_location(request, response, "/v1/jobs", made.id)
        return _created(response, made, repeated)

    @router.post(
        "/v1/jobs/batch",
        status_code=201,
        dependencies=needs("enqueue"),
        tags=["jobs"],
        response_model=responses.CreatedBatch,
        responses={
            200: {"model": responses.CreatedBatch, "description": "A repeat: all jobs existed already"}
        },
    )
    def create_jobs(
        body: requests.Batch, caller: RequestCaller, response: Response, idempotency_key: IdempotencyKey = ""
    ) -> Any:
        """Store many jobs, all or none."""
        made, repeated = _store(caller, body.jobs, idempotency_key)
        if repeated:
            response.status_code = 200
            response.headers["Idempotent-Replayed"] = "true"
        return responses.CreatedBatch(jobs=[responses.Created.model_validate(one) for one in made])

    @router.get(
        "/v1/jobs/{id}/explain",
        dependencies=needs("read"),
        tags=["jobs"],
        response_model=json_type(list[Hold]),
    )
    def explain_job(id: str, caller: RequestCaller) -> Any:
        """Why a job is not running: every cause in order, with what would change it."""
        return as_models(list[Hold], caller.explain(id))

    @router.post(
        "/v1/jobs/{id}/questions/{key:path}/answer",
        dependencies=needs("operate"),
        tags=["questions"],
        response_model=responses.Job,
    )
    def answer_question(id: str, key: str, body: requests.Answer, caller: RequestCaller) -> Any:
        """Answer a question. A waiting job continues; a paused job gets the answer when it is resumed."""
        return job_of(caller.job(id).answer(key, body.value, actor=caller.actor))

    @router.post(
        "/v1/schedules/{name:path}/run", status_code=201, dependencies=needs("operate"), tags=["schedules"]
    )
    def run_schedule(
        name: str, caller: RequestCaller, request: Request, response: Response
    ) -> responses.Created:
        """Enqueue a job of a schedule now, besides its ticks."""
        caller.check_all_queues()
        made = caller.view.schedules.run(name, actor=caller.actor)
        add_location(request, response, "/v1/schedules/", made.id)
        return responses.Created.model_validate(made)

    @router.post(
        "/v1/jobs/{id}/retry",
        status_code=201,
        dependencies=needs("operate"),
        tags=["jobs"],
        response_model=responses.Job,
    )
    def retry_job(id: str, caller: RequestCaller, request: Request, response: Response) -> Any:
        """Enqueue a new job like this one, which stays as it is."""
        made = caller.job(id).retry(actor=caller.actor)
        add_location(request, response, "/v1/jobs", made.id)
        return job_of(made)


def job_of(job: Handle[object]) -> Any:
    """The response for a job: its row as last read, and its progress."""
    found, progress = responses.Job.model_validate(job.__row__), job.progress()
    if progress is not None:
        found.progress = responses.Progress.model_validate(progress)
    return found


def _created(response: Response, made: Handle[object], repeated: bool) -> responses.Created:
    if repeated:
        response.headers["Idempotent-Replayed"] = "true"
    if repeated or not made.created:
        response.status_code = 200
    return responses.Created.model_validate(made)


def _store(caller: Caller, jobs: Sequence[requests.NewJob], key: str) -> tuple[Sequence[Handle[Any]], bool]:
    calls = [
        CallRequest(**{name: getattr(job, name) for name in requests.NewJob.model_fields}) for job in jobs
    ]
    if not key:
        return enqueue_for(caller, calls), False
    return enqueue_once_for(caller, calls, key, [job.model_dump(mode="json") for job in jobs])
