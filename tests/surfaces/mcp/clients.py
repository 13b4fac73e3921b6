"""MCP clients of the tests: the official SDK's, with tasks and without."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import httpx2
from mcp import Client
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Request, RequestParams, Result
from pydantic import ConfigDict, Field

PATIENCE = 30.0
TASKS = "io.modelcontextprotocol/tasks"

Answer = Callable[[str, dict[str, Any]], dict[str, Any]]
"""The key of a question and what is asked → the reply."""


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId")


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses")


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param = "taskId"


class CancelTask(Request[TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams
    name_param = "taskId"


class UpdateTask(Request[UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateParams
    name_param = "taskId"


class Created(Result):
    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"] = Field("task", alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str


class Open(Result):
    model_config = ConfigDict(extra="allow")


class Following(ClientExtension):
    """Follows a task to its end inside of `call_tool`, answering what it asks."""

    identifier = TASKS

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer
        self.made: list[str] = []
        self.seen: list[str] = []

    def claims(self) -> list[ResultClaim]:
        return [ResultClaim(result_type="task", model=Created, resolve=self.resolve)]

    async def resolve(self, created: Created, ctx: Any) -> CallToolResult:
        self.made.append(created.task_id)
        return await self.follow(created.task_id, ctx.session)

    async def follow(self, task_id: str, session: Any) -> CallToolResult:
        async with asyncio.timeout(240):
            while True:
                reported = await get_task(session, task_id)
                self.seen.append(reported["status"])
                match reported["status"]:
                    case "completed":
                        return CallToolResult.model_validate(reported["result"])
                    case "cancelled" | "failed":
                        return CallToolResult(content=[], is_error=True, structured_content=reported)
                    case "input_required":
                        await update_task(session, task_id, self._replies(reported["inputRequests"]))
                await asyncio.sleep(min(0.2, reported["pollIntervalMs"] / 1000))

    def _replies(self, requests: dict[str, Any]) -> dict[str, Any]:
        assert self.answer is not None, requests
        return {key: self.answer(key, requested["params"]) for key, requested in requests.items()}


async def get_task(session: Any, task_id: str) -> dict[str, Any]:
    found = await session.send_request(GetTask(params=TaskParams(taskId=task_id)), Open)
    return found.model_dump(by_alias=True)


async def cancel_task(session: Any, task_id: str) -> None:
    await session.send_request(CancelTask(params=TaskParams(taskId=task_id)), Open)


async def update_task(session: Any, task_id: str, replies: dict[str, Any]) -> None:
    params = UpdateParams(taskId=task_id, inputResponses=replies)
    await session.send_request(UpdateTask(params=params), Open)


@contextlib.asynccontextmanager
async def over_http(
    url: str,
    token: str | None = None,
    *,
    mode: str = "auto",
    headers: dict[str, str] | None = None,
    **more: Any,
) -> AsyncIterator[Client]:
    sent = dict(headers or {})
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    async with (
        httpx2.AsyncClient(headers=sent, timeout=PATIENCE) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode, **more) as client,
    ):
        yield client
