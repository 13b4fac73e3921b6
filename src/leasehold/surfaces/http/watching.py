"""Following a job: by long poll, until its result, or as a stream of events. A waiting request holds no thread and
costs no read of its own: one reader serves all of them."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import AsyncIterable, AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from leasehold.domain.errors import JobNotSucceeded, LeaseholdError
from leasehold.domain.states import State
from leasehold.domain.stream import Update
from leasehold.operations.json_records import as_models
from leasehold.operations.watch import AT_REST, Watch
from leasehold.surfaces.guard.callers import Caller
from leasehold.surfaces.guard.denied import Denied
from leasehold.surfaces.http import requests, responses
from leasehold.surfaces.http.jobs import job_of
from leasehold.surfaces.http.names import ID
from leasehold.surfaces.http.route import Admit, AskAgain, RequestCaller, needs

RETRY_MS = 2000
"""Milliseconds after which a client that lost the stream reconnects."""
LONGEST_PAUSE = 15.0
"""Seconds between two reads of a stream, if no change of the job is notified."""
CHECK_EVERY = 5.0
"""Seconds after which a stream checks again whether its caller may read it."""

IfNoneMatch = Annotated[str, Header(max_length=1000, description="The ETag of an earlier response.")]


def add_to(router: APIRouter) -> None:
    @router.get(
        f"/v1/jobs/{{id:{ID}}}",
        dependencies=needs("read"),
        tags=["jobs"],
        response_model=responses.Job,
        responses={304: {"description": "The job has not changed"}},
    )
    async def get_job(
        id: str, caller: RequestCaller, wait: requests.Wait = 0, if_none_match: IfNoneMatch = ""
    ) -> Any:
        """A job as it is now. With `wait`: as soon as it differs from If-None-Match, or without that header as soon as
        it changes; at once if it has ended."""
        until = time.monotonic() + wait
        known = if_none_match
        while True:
            mark = await run_in_threadpool(caller.operations.job_mark, id) if wait else None
            body, state = await run_in_threadpool(_read, caller, id)
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            known = known or tag
            left = until - time.monotonic()
            if tag not in known or state in AT_REST or left <= 0 or mark is None:
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
        """The result of a job. With `wait`: as soon as the job has ended. A job that did not succeed is a problem
        (409)."""
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
        admit: AskAgain,
        id: Annotated[str, Depends(_known)],
        last_event_id: Annotated[
            str, Header(pattern=r"^[0-9]{0,15}$", description="Continue after this event.")
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
        watch = Watch(id, caller.operations.read_stream, int(last_event_id or 0), None)
        until = time.monotonic() + wait if wait else math.inf
        # A stream that cannot go on just ends: the client reconnects, and gets the error then.
        with contextlib.suppress(LeaseholdError, Denied):
            async for event in _events(caller, watch, id, until, admit):
                data = as_models(Update, event)
                yield ServerSentEvent(data=data, event=event.kind, id=str(event.seq), retry=RETRY_MS)


async def _events(caller: Caller, watch: Watch, id: str, until: float, admit: Admit) -> AsyncIterator[Update]:
    admitted_at = time.monotonic()
    while True:
        mark = await run_in_threadpool(caller.operations.job_mark, id)
        for event in await run_in_threadpool(watch.look):
            yield event
        left = until - time.monotonic()
        if watch.over or left <= 0:
            return
        if watch.pause:
            await caller.operations.await_job(id, mark, min(left, LONGEST_PAUSE))
        if time.monotonic() - admitted_at >= CHECK_EVERY:
            await run_in_threadpool(admit)
            admitted_at = time.monotonic()


def _known(id: str, caller: RequestCaller) -> str:
    """The id, checked before the stream begins: later the status of the response can no longer change."""
    return caller.job(id).id


def _read(caller: Caller, id: str) -> tuple[bytes, State]:
    job = caller.job(id)
    return job_of(job).model_dump_json().encode(), job.state


def _result(caller: Caller, id: str) -> tuple[State, str | None]:
    """The state, and the response text with the result. None: the job has not ended yet."""
    job = caller.job(id)
    if job.state not in AT_REST:
        return job.state, None
    if job.state is not State.SUCCEEDED:
        raise JobNotSucceeded(job.id, job.state.value, job.error or job.reason)
    text = caller.operations.result_text(job.__row__) or "null"
    return job.state, f'{{"id":"{job.id}","state":"succeeded","result":{text}}}'
