"""Registered tasks as tools of their own: `@app.task(expose=True)`.

A call enqueues a job. A client that supports MCP tasks gets the handle at once. For another client, the server waits a
while for the result; if there is none yet, the response says how to get it later. If required arguments are missing,
the server asks the user for them, if the client can show a form and a form can show the arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as Listed

from leasehold.domain.errors import InvalidInput
from leasehold.domain.states import State
from leasehold.domain.task_cards import TaskCard
from leasehold.surfaces.guard.callers import Caller
from leasehold.surfaces.guard.calls import CallRequest, enqueue_for, tasks_for
from leasehold.surfaces.mcp import responses
from leasehold.surfaces.mcp.arguments import USUAL_WAIT
from leasehold.surfaces.mcp.forms import form_of, is_plain
from leasehold.surfaces.mcp.waiting import settled
from leasehold.threads import to_thread
from leasehold.types import Job

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


async def enqueue(caller: Caller, task: TaskCard, arguments: Mapping[str, Any], tag: str) -> Job[Any]:
    """Store a job of the task. It is durable when this returns."""
    call = CallRequest(task=task.name, args=arguments, tags=(*task.tags, tag))
    (job,) = await to_thread(enqueue_for, caller, [call])
    return job


async def result_in_time(caller: Caller, job: Job[Any]) -> CallToolResult:
    """The response for a client without MCP tasks: the job's result, or how to get it later."""
    job = await settled(caller, job.id, USUAL_WAIT)
    return await to_thread(result_of, caller, job)


def result_of(caller: Caller, job: Job[Any]) -> CallToolResult:
    """The present outcome of a job as the result of a tool. Blocks."""
    brief = responses.job_of(caller, job)
    content: dict[str, Any] = {"job_id": job.id, "state": str(job.state)}
    if job.state is State.SUCCEEDED:
        content["result"] = brief.result
        text = brief.result if isinstance(brief.result, str) else json.dumps(brief.result, ensure_ascii=False)
        return _answer(brief.hint or text, content)
    if brief.next_poll_s is None:
        problem = brief.error or job.reason or "it has no result"
        return _answer(f"job {job.id} {job.state}: {problem}", content, is_error=True)
    content |= {"next_poll_s": brief.next_poll_s}
    text = f"job {job.id} is {job.state}; call get_job(id={job.id!r}, wait_s=25) for its result"
    if brief.questions:
        text += "; it asks: " + "; ".join(f"{one.key}: {one.text}" for one in brief.questions)
    return _answer(text, content)


def _answer(text: str, content: dict[str, Any], *, is_error: bool = False) -> CallToolResult:
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
