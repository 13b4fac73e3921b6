"""Registered tasks as MCP tools, and their jobs as tasks of the extension `io.modelcontextprotocol/tasks`.

The client polls with `tasks/get`, answers questions with `tasks/update`, and cancels with `tasks/cancel`.

The handle is the job's id. A tag of the job names the caller who made it: no other caller finds the job here.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver.server import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    RequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as Listed
from pydantic import Field

from leasehold.domain.errors import InvalidInput, InvalidState, JobNotFound
from leasehold.domain.job import Job
from leasehold.domain.questions import Question
from leasehold.domain.records import TaskCard
from leasehold.domain.states import State
from leasehold.operations import jobs, questions
from leasehold.surfaces.guard import Caller, CallRequest, enqueue_for, tasks_for
from leasehold.surfaces.mcp import responses
from leasehold.surfaces.mcp.responses import open_questions, poll_after, progress_of, settled
from leasehold.surfaces.mcp.tools import USUAL_WAIT, answer_of, form_of, is_plain
from leasehold.threads import to_thread

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


async def created(caller: Caller, job_id: str) -> dict[str, Any]:
    """The response to a call that became a task."""
    job = await to_thread(caller.operations.call, jobs.get, job_id)
    return {"resultType": "task", **_handle(job), "status": "working"}


def _find(caller: Caller, task_id: str) -> Job:
    job = caller.job(task_id)
    if tag_of(caller) not in job.tags:
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
            requested = {one.key: _form(one) for one in open_questions(caller, job) if not one.secret}
            if requested:
                return handle | {"status": "input_required", "inputRequests": requested}
            return (
                handle
                | {"status": "working"}
                | _message("waits for a secret, to be given with `leasehold questions answer`")
            )
        case _:
            return handle | {"status": "working"} | _message(progress_of(caller, job) or str(job.state))


def _handle(job: Job) -> dict[str, Any]:
    return {
        "taskId": job.id,
        "createdAt": _instant(job.created_at),
        "lastUpdatedAt": _instant(job.updated_at),
        "ttlMs": None,
        "pollIntervalMs": int(poll_after(job) * 1000),
    }


def _update(caller: Caller, params: UpdateParams) -> None:
    job = _find(caller, params.task_id)
    open_ = {one.key: one for one in open_questions(caller, job) if not one.secret}
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


def _answer(caller: Caller, job: Job, question: Question, content: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidState):  # another person has answered already
        given = answer_of(_schema(question), content)
        caller.operations.call(questions.answer, job.id, question.key, given, actor=caller.actor)


def _cancel(caller: Caller, task_id: str, reason: str | None) -> None:
    with contextlib.suppress(InvalidState):  # it has ended
        job, reason = _find(caller, task_id), reason or "cancelled by the MCP client"
        caller.operations.call(jobs.cancel, job.id, reason=reason, actor=caller.actor)


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


# -- tools from tasks --------------------------------------------------------------------------------------------------
# A call enqueues a job. A client that supports MCP tasks gets the handle at once. For another client, the server waits
# a while for the result; if there is none yet, the response says how to get it later. If required arguments are
# missing, the server asks the user for them, if the client can show a form and a form can show the arguments.

MISSING = "arguments"
"""The key of the form for missing arguments."""
_RUNS = ToolAnnotations(read_only_hint=False, open_world_hint=True)


def exposed_to(caller: Caller) -> dict[str, TaskCard]:
    """The exposed tasks that the caller may enqueue, by name."""
    if not caller.access.may("enqueue"):
        return {}
    return {card.name: card for card in tasks_for(caller) if card.expose}


def listed(task: TaskCard) -> Listed:
    return Listed(
        name=task.name,
        description=task.description or f"Runs {task.name} as a background job.",
        input_schema=task.arguments,
        output_schema=_output_schema(task),
        annotations=_RUNS,
    )


def arguments_of(params: CallToolRequestParams) -> dict[str, Any]:
    """The arguments of the call, with those that the user filled in. Raises InvalidInput if the user declined."""
    given = dict(params.arguments or {})
    answer = (params.input_responses or {}).get(MISSING)
    if answer is None:
        return given
    if not isinstance(answer, ElicitResult) or answer.action != "accept":
        raise InvalidInput(MISSING, "are missing, and the user did not give them", "give them with the call")
    return given | (answer.content or {})


def ask_for_missing(
    task: TaskCard, given: Mapping[str, Any], client: ClientCapabilities | None
) -> InputRequiredResult | None:
    """The form for missing arguments. None: nothing is missing, or no form can show it."""
    schema = task.arguments
    properties = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in given]
    if not missing or client is None or client.elicitation is None:
        return None
    if not all(is_plain(properties[name]) for name in missing):
        return None
    form = form_of(
        {"type": "object", "properties": {name: properties[name] for name in missing}, "required": missing}
    )
    params = ElicitRequestFormParams(
        message=f"{task.name} needs: {', '.join(missing)}", requested_schema=form
    )
    return InputRequiredResult(input_requests={MISSING: ElicitRequest(params=params)})


async def enqueue(caller: Caller, task: TaskCard, arguments: Mapping[str, Any], tag: str) -> str:
    """Store a job of the task, which is durable when this returns; return its id."""
    call = CallRequest(task=task.name, args=arguments, tags=(*task.tags, tag))
    (made,) = await to_thread(enqueue_for, caller, [call])
    return made.id


async def result_in_time(caller: Caller, job_id: str) -> CallToolResult:
    """The response for a client without MCP tasks: the job's result, or how to get it later."""
    job = await settled(caller, job_id, USUAL_WAIT)
    return await to_thread(result_of, caller, job)


def result_of(caller: Caller, job: Job) -> CallToolResult:
    """The present outcome of a job as the result of a tool. Blocks."""
    brief = responses.job_of(caller, job)
    content: dict[str, Any] = {"job_id": job.id, "state": str(job.state)}
    if job.state is State.SUCCEEDED:
        content["result"] = brief.result
        text = brief.result if isinstance(brief.result, str) else json.dumps(brief.result, ensure_ascii=False)
        return _answer_of_tool(brief.hint or text, content)
    if brief.next_poll_s is None:
        problem = brief.error or job.reason or "it has no result"
        return _answer_of_tool(f"job {job.id} {job.state}: {problem}", content, is_error=True)
    content |= {"next_poll_s": brief.next_poll_s}
    text = f"job {job.id} is {job.state}; call get_job(id={job.id!r}, wait_s=25) for its result"
    if brief.questions:
        text += "; it asks: " + "; ".join(f"{one.key}: {one.text}" for one in brief.questions)
    return _answer_of_tool(text, content)


def _answer_of_tool(text: str, content: dict[str, Any], *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=content, is_error=is_error
    )


def _output_schema(task: TaskCard) -> dict[str, Any]:
    result = dict(task.result)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "job_id": {"type": "string"},
            "state": {"type": "string", "enum": [str(state) for state in State]},
            "result": result,
            "next_poll_s": {"type": "number"},
        },
        "required": ["job_id", "state"],
    }
    definitions = result.pop("$defs", None)
    return schema if definitions is None else schema | {"$defs": definitions}
