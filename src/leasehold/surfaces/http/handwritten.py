"""Hand-written routes: creating jobs, bulk, watching, groups, stop, workers, probes and metrics."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, TypeAdapter, create_model
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse

from leasehold.app import Leasehold
from leasehold.domain.bulk import BulkRequest
from leasehold.domain.errors import JobNotSucceeded, LeaseholdError
from leasehold.domain.groups import GroupResult, GroupStatus, StatusRequest
from leasehold.domain.records import Filter, Hold, PauseRecord, TaskCard, WorkerCard
from leasehold.domain.states import ENDED, State
from leasehold.domain.stop import StopReport, StopRequest
from leasehold.domain.stream import Update
from leasehold.operations import jobs, questions, queues
from leasehold.operations.json_records import as_models, json_type, model
from leasehold.operations.stream import Watch
from leasehold.operations.verb import VERBS
from leasehold.surfaces.guard import Caller, CallRequest, Denied, enqueue_for, enqueue_once_for, tasks_for
from leasehold.surfaces.http import requests, responses
from leasehold.surfaces.http.requests import ID_IN_PATH, NAME_IN_PATH, add_location
from leasehold.surfaces.http.routes import OPEN, Admit, Readmit, RequestCaller, needs, show
from leasehold.surfaces.prometheus import CONTENT_TYPE, text_of
from leasehold.types import Job as Handle

JOB: TypeAdapter[Any] = TypeAdapter(responses.Job)

# -- creating jobs -----------------------------------------------------------------------------------------------------

IdempotencyKey = Annotated[
    str,
    Header(
        max_length=200,
        description="The same key with the same body within a day makes no second job, and gets the first response.",
    ),
]


def add_jobs(router: APIRouter) -> None:
    @router.post(
        "/v1/jobs",
        status_code=201,
        dependencies=needs("enqueue"),
        tags=["jobs"],
        response_model=responses.Created,
        responses={200: {"model": responses.Created, "description": "The job existed already"}},
    )
    def create_job(
        body: requests.JobCall,
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
        job = caller.job(id)
        after = caller.operations.call(questions.answer, job.id, key, body.value, actor=caller.actor)
        return show(caller, JOB, after)

    @router.post(
        "/v1/schedules/{name:path}/run", status_code=201, dependencies=needs("operate"), tags=["schedules"]
    )
    def run_schedule(
        name: str, caller: RequestCaller, request: Request, response: Response
    ) -> responses.Created:
        """Enqueue a job of a schedule now, besides its ticks."""
        caller.check_all_queues()
        made = caller.view.__internals__.run_schedule(name, caller.actor)
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
        made = caller.operations.call(jobs.retry, caller.job(id).id, actor=caller.actor)
        add_location(request, response, "/v1/jobs", made.id)
        return show(caller, JOB, made)


def _created(response: Response, made: Handle[object], repeated: bool) -> responses.Created:
    if repeated:
        response.headers["Idempotent-Replayed"] = "true"
    if repeated or not made.created:
        response.status_code = 200
    return responses.Created.model_validate(made)


def _store(caller: Caller, jobs: Sequence[requests.JobCall], key: str) -> tuple[Sequence[Handle[Any]], bool]:
    calls = [
        CallRequest(**{name: getattr(job, name) for name in requests.JobCall.model_fields}) for job in jobs
    ]
    if not key:
        return enqueue_for(caller, calls), False
    return enqueue_once_for(caller, calls, key, [job.model_dump(mode="json") for job in jobs])


# -- a verb on every job that matches ----------------------------------------------------------------------------------


def add_bulk(router: APIRouter) -> None:
    def bulk(body: Any, caller: RequestCaller) -> Any:
        """Apply a verb to every job that matches all filters, newest first, one by one; a dry run unless `dry_run` is
        false. Jobs that refuse are reported, and do not stop the others."""
        if body.queue is None:
            caller.check_all_queues()
        else:
            caller.check_queue(body.queue)
        request = BulkRequest(
            verb=body.verb,
            filter=Filter(tuple(body.state), body.queue, body.task, body.lane, body.group, body.tag),
            everything=body.everything,
            dry_run=body.dry_run,
            limit=body.limit,
            cursor=body.cursor,
            actor=caller.actor,
            own={
                name: getattr(body, name)
                for name in body.model_fields_set - requests.BulkJobs.model_fields.keys()
            },
        )
        return responses.BulkReport.model_validate(caller.operations.bulk(request))

    bulk.__annotations__["body"] = _body()
    router.post(
        "/v1/jobs/bulk", dependencies=needs("operate"), tags=["jobs"], response_model=responses.BulkReport
    )(bulk)


def _body() -> type[BaseModel]:
    """The model of the body: the filters, and the arguments of every bulk verb."""
    own: dict[str, Any] = {
        one.name: (one.annotation | None, None) if one.required else (one.annotation, one.default)
        for verb in VERBS
        if verb.bulk
        for one in verb.bulk_body
    }
    return create_model("BulkJobs", __base__=requests.BulkJobs, **own)


# -- following a job ---------------------------------------------------------------------------------------------------
# A waiting request holds no thread and does not poll: one reader polls for all waiting requests.

RETRY_MS = 2000
"""Milliseconds after which a client that lost the stream reconnects."""
LONGEST_PAUSE = 15.0
"""Seconds after which a stream reads again even if the job's mark has not changed."""
CHECK_EVERY = 5.0
"""Seconds after which a stream checks again whether its caller may read it."""

IfNoneMatch = Annotated[str, Header(max_length=1000, description="The ETag of an earlier response.")]


def add_watching(router: APIRouter) -> None:
    @router.get(
        f"/v1/jobs/{{id:{ID_IN_PATH}}}",
        dependencies=needs("read"),
        tags=["jobs"],
        response_model=responses.Job,
        responses={304: {"description": "The job has not changed"}},
    )
    async def get_job(
        id: str, caller: RequestCaller, wait: requests.Wait = 0, if_none_match: IfNoneMatch = ""
    ) -> Any:
        """A job as it is now. With `wait`, the response comes as soon as the job differs from If-None-Match, or without
        that header as soon as it changes; at once if it has ended."""
        until = time.monotonic() + wait
        known = if_none_match
        while True:
            mark = await run_in_threadpool(caller.operations.job_mark, id) if wait else None
            body, state = await run_in_threadpool(_read, caller, id)
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            known = known or tag
            left = until - time.monotonic()
            if tag not in known or state in ENDED or left <= 0 or mark is None:
                break
            await caller.operations.await_job(id, mark, left)
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if tag in if_none_match:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    @router.get(
        "/v1/jobs/{id}/result",
        dependencies=needs("read"),
        tags=["jobs"],
        response_model=responses.Result,
        responses={202: {"model": responses.NotYet, "description": "The job has not ended yet"}},
    )
    async def get_result(id: str, caller: RequestCaller, wait: requests.Wait = 0) -> Any:
        """The result of a job. With `wait`, the response comes as soon as the job has ended. If the job did not
        succeed, the response is a problem (409)."""
        until = time.monotonic() + wait
        while True:
            mark = await run_in_threadpool(caller.operations.job_mark, id) if wait else None
            state, text = await run_in_threadpool(_result, caller, id)
            left = until - time.monotonic()
            if text is not None:
                return Response(text, media_type="application/json")
            if left <= 0 or mark is None:
                answer = responses.NotYet(id=id, state=state).model_dump_json()
                return Response(answer, 202, media_type="application/json")
            await caller.operations.await_job(id, mark, left)

    @router.get(
        "/v1/jobs/{id}/watch",
        dependencies=needs("read"),
        tags=["jobs"],
        response_class=EventSourceResponse,
    )
    async def watch_job(
        caller: RequestCaller,
        admit: Readmit,
        id: Annotated[str, Depends(_known)],
        last_event_id: Annotated[
            str, Header(pattern=r"^[0-9]{0,15}$", description="Continue after this update.")
        ] = "",
        wait: Annotated[
            float,
            Query(
                ge=0,
                le=requests.LONGEST_WAIT,
                description="Seconds after which the stream ends; 0: with the job.",
            ),
        ] = 0,
    ) -> AsyncIterable[ServerSentEvent]:
        """Server-sent events: the updates of a job in order, and each change of its state, until the job has ended or
        the token is no longer valid."""
        watch = caller.operations.watch(id, int(last_event_id or 0), None)
        until = time.monotonic() + wait if wait else math.inf
        # A stream that cannot go on just ends: the client reconnects, and gets the error then.
        with contextlib.suppress(LeaseholdError, Denied):
            async for update in _updates(caller, watch, id, until, admit):
                data = as_models(Update, update)
                yield ServerSentEvent(data=data, event=update.kind, id=str(update.seq), retry=RETRY_MS)


async def _updates(
    caller: Caller, watch: Watch, id: str, until: float, admit: Admit
) -> AsyncIterator[Update]:
    admitted_at = time.monotonic()
    while True:
        mark = await run_in_threadpool(caller.operations.job_mark, id)
        for update in await run_in_threadpool(watch.look):
            yield update
        left = until - time.monotonic()
        if watch.over or left <= 0:
            return
        if watch.pause:
            await caller.operations.await_job(id, mark, min(left, LONGEST_PAUSE))
        if time.monotonic() - admitted_at >= CHECK_EVERY:
            await run_in_threadpool(admit)
            admitted_at = time.monotonic()


def _known(id: str, caller: RequestCaller) -> str:
    """The id, checked before the stream begins: after that, the status of the response can no longer change."""
    return caller.job(id).id


def _read(caller: Caller, id: str) -> tuple[bytes, State]:
    job = caller.job(id)
    return show(caller, JOB, job).model_dump_json().encode(), job.state


def _result(caller: Caller, id: str) -> tuple[State, str | None]:
    """The state, and the response text with the result. None: the job has not ended yet."""
    job = caller.job(id)
    if job.state not in ENDED:
        return job.state, None
    if job.state is not State.SUCCEEDED:
        raise JobNotSucceeded(job.id, job.state.value, job.error or job.reason)
    text = caller.operations.result_text(job) or "null"
    return job.state, f'{{"id":"{job.id}","state":"succeeded","result":{text}}}'


# -- many jobs at once -------------------------------------------------------------------------------------------------

WHOLE_GROUP = requests.StopGroup()
"""The default body of a stop, shared by all requests: never modify it."""


def add_groups(router: APIRouter) -> None:
    @router.get(
        f"/v1/groups/{{name:{NAME_IN_PATH}}}",
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
        """The progress, results and errors of a group. With `wait` and `since`, the response comes as soon as the group
        changes or none of its jobs is live. A group that never had a job has version 0."""
        caller.check_all_queues()
        given = StatusRequest(
            group=name,
            wait=wait,
            since=None if since < 0 else since,
            tasks=tasks or None,
            partial=partial,
            noted=None if noted < 0 else noted,
        )
        status = await caller.operations.agroup_status(given)
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


# -- workers, pauses, tasks and the probes -----------------------------------------------------------------------------


def add_fleet(router: APIRouter) -> None:
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
            for row in caller.operations.call(queues.list_pauses)
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
        """This process responds. It does not check the database: restarting the process would not repair that."""
        return responses.Live()

    @router.get(
        "/readyz",
        dependencies=OPEN,
        tags=["probes"],
        responses={503: {"model": responses.Ready, "description": "It is not ready"}},
    )
    def readyz(response: Response) -> responses.Ready:
        """The database responds and its schema fits; if this process runs a worker, a worker is live too."""
        findings = app.__internals__.operations.check_health()
        wanted = [one for one in findings if needs_worker or one.check != "workers"]
        ready = all(one.verdict == "ok" for one in wanted)
        if not ready:
            response.status_code = 503
        return responses.Ready(
            status="ok" if ready else "bad", checks={one.check: one.verdict for one in wanted}
        )


# -- /metrics, for Prometheus ------------------------------------------------------------------------------------------


class _Text(PlainTextResponse):
    media_type = CONTENT_TYPE


def add_metrics(router: APIRouter) -> None:
    @router.get("/metrics", dependencies=needs("read"), tags=["metrics"], response_class=_Text)
    def metrics(caller: RequestCaller) -> _Text:
        """Attempts by outcome, waiting and running times, depths and ages, in Prometheus' text format 0.0.4."""
        caller.check_all_queues()
        return _Text(text_of(caller.operations.metrics()))
