"""Jobs as tasks of the MCP extension `io.modelcontextprotocol/tasks`: a call of an exposed task returns a handle. The
client polls with `tasks/get`, answers questions with `tasks/update`, and cancels with `tasks/cancel`.

The handle is the job's id. The job has the name of the caller who made it as a tag: no other caller finds it here.
"""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver.server import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp_types import HEADER_MISMATCH, INTERNAL_ERROR, ElicitResult, RequestParams
from pydantic import Field

from leasehold.domain.errors import InvalidState, JobNotFound
from leasehold.domain.job import Question
from leasehold.domain.states import State
from leasehold.surfaces.guard.callers import Caller
from leasehold.surfaces.mcp.exposed import result_of
from leasehold.surfaces.mcp.forms import answer_of, form_of
from leasehold.surfaces.mcp.responses import poll_after, progress_of
from leasehold.threads import to_thread
from leasehold.types import Job

IDENTIFIER = "io.modelcontextprotocol/tasks"

Request = ServerRequestContext[Any, Any]


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId", max_length=64)


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses", max_length=100)


def supports_tasks(ctx: Request) -> bool:
    client = ctx.session.client_capabilities
    return client is not None and IDENTIFIER in (client.extensions or {})


def check_request(ctx: Request, params: TaskParams) -> None:
    """Check that the client supports MCP tasks, and that the header for proxies names the same task as the body."""
    require_client_extension(ctx, IDENTIFIER)
    headers = getattr(ctx.request, "headers", None)
    named = None if headers is None else headers.get("mcp-name")
    if named is not None and named.strip() != params.task_id:
        raise MCPError(HEADER_MISMATCH, "the header Mcp-Name is not the taskId of the body")


def tag_of(caller: Caller) -> str:
    return f"mcp:{caller.access.name}"


async def get_task(caller: Caller, params: TaskParams) -> dict[str, Any]:
    return {"resultType": "complete", **await to_thread(_read, caller, params.task_id)}


async def update_task(caller: Caller, params: UpdateParams) -> dict[str, Any]:
    """Answer open questions. Other keys are ignored, as the protocol requires."""
    await to_thread(_update, caller, params)
    return {"resultType": "complete"}


async def cancel_task(caller: Caller, params: TaskParams) -> dict[str, Any]:
    """Request the cancel of a job. An attempt that is about to end may still complete."""
    await to_thread(_cancel, caller, params.task_id, None)
    return {"resultType": "complete"}


def created(job: Job[Any]) -> dict[str, Any]:
    """The response to a call that became a task."""
    return {"resultType": "task", **_handle(job), "status": "working"}


def _find(caller: Caller, task_id: str) -> Job[Any]:
    job = caller.job(task_id)
    if tag_of(caller) not in job.__row__.tags:
        raise JobNotFound(task_id)
    return job


def _read(caller: Caller, task_id: str) -> dict[str, Any]:
    job = _find(caller, task_id)
    handle = _handle(job)
    match job.state:
        case State.SUCCEEDED | State.FAILED:
            result = result_of(caller, job)
            dumped = result.model_dump(by_alias=True, mode="json", exclude_none=True)
            return handle | {"status": "completed", "result": dumped}
        case State.TIMED_OUT:
            # The handler reported no error: the protocol calls that "failed", not "completed" with an error.
            message = job.error or job.reason or "it took too long"
            return handle | {"status": "failed", "error": {"code": INTERNAL_ERROR, "message": message}}
        case State.CANCELLED:
            return handle | {"status": "cancelled"} | _message(job.reason)
        case State.WAITING:
            requested = {one.key: _form(one) for one in _open(job) if not one.secret}
            if requested:
                return handle | {"status": "input_required", "inputRequests": requested}
            return (
                handle
                | {"status": "working"}
                | _message("waits for a secret, to be given with `leasehold questions answer`")
            )
        case _:
            return handle | {"status": "working"} | _message(progress_of(job) or str(job.state))


def _handle(job: Job[Any]) -> dict[str, Any]:
    row = job.__row__
    return {
        "taskId": job.id,
        "createdAt": _instant(row.created_at),
        "lastUpdatedAt": _instant(row.updated_at),
        "ttlMs": None,
        "pollIntervalMs": int(poll_after(job) * 1000),
    }


def _update(caller: Caller, params: UpdateParams) -> None:
    job = _find(caller, params.task_id)
    open_ = {one.key: one for one in _open(job) if not one.secret}
    for key, response in params.input_responses.items():
        if key not in open_:
            continue
        reply = ElicitResult.model_validate(response)
        match reply.action:
            case "accept":
                _answer(caller, job, open_[key], reply.content or {})
            case "decline":
                # Without an answer the job would wait for ever.
                _cancel(caller, job.id, f"the user declined to answer {key!r}")
            case "cancel":
                pass  # the user may answer later: the question stays open


def _answer(caller: Caller, job: Job[Any], question: Question, content: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidState):  # another person has answered already
        job.answer(question.key, answer_of(_schema(question), content), actor=caller.actor)


def _cancel(caller: Caller, task_id: str, reason: str | None) -> None:
    with contextlib.suppress(InvalidState):  # it has ended
        _find(caller, task_id).cancel(reason or "cancelled by the MCP client", actor=caller.actor)


def _open(job: Job[Any]) -> list[Question]:
    return [one for one in job.questions() if one.status == "open"]


def _form(question: Question) -> dict[str, Any]:
    return {
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": question.text,
            "requestedSchema": form_of(_schema(question)),
        },
    }


def _schema(question: Question) -> dict[str, Any] | None:
    found: dict[str, Any] | None = None if question.schema is None else json.loads(question.schema)
    return found


def _message(text: str | None) -> dict[str, str]:
    return {} if text is None else {"statusMessage": text}


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
