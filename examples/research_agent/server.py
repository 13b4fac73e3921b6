"""The MCP server, and the worker that lives in it. `task_id` is the document's: a name that the caller
chooses for its research. It has nothing to do with the `taskId` of MCP's own tasks, which this server
does not offer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from leasehold.types import Worker

from . import control, database, reading, vectors
from .app import app
from .options import Mode, Options, Reason, Scope
from .settings import SWEEP

server = MCPServer(
    "research_agent",
    log_level="WARNING",
    instructions="queue_targets submits searches and URLs, get_status(wait=180) follows them.",
)
TaskId = Annotated[str, Field(min_length=1, max_length=150, description="Task identifier.")]
READ_ONLY = ToolAnnotations(read_only_hint=True)


async def in_thread(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """These functions block. What they refuse is told to the caller."""
    try:
        return await asyncio.to_thread(function, *arguments)
    except Exception as error:
        raise ToolError(f"{type(error).__name__}: {error}") from error


@server.tool()
async def queue_targets(
    task_id: TaskId,
    targets: Annotated[list[str], Field(min_length=1, max_length=1000, description="Queries or URLs.")],
    options: Options | None = None,
) -> dict[str, Any]:
    """Submit search queries or URLs. Returns at once; duplicates that are queued or running are skipped."""
    return await in_thread(control.queue_targets, task_id, targets, options or Options())


@server.tool(annotations=READ_ONLY)
async def get_status(
    task_id: TaskId,
    wait: Annotated[int, Field(ge=0, le=600, description="Seconds to wait for changes; 0: at once.")] = 0,
    since: Annotated[int | None, Field(description="`version` of an earlier answer.")] = None,
) -> dict[str, Any]:
    """Progress, completed searches, partial results and errors. With `wait` it answers when something
    changes."""
    try:
        return await control.get_status(task_id, wait, since)
    except control.UnknownTask as error:
        raise ToolError(str(error)) from error


@server.tool()
async def stop_task(
    task_id: TaskId,
    scope: Scope = "all_jobs",
    mode: Mode = "graceful",
    reason: Reason = "session_completed",
) -> dict[str, Any]:
    """Stop the task's jobs. The task is paused; queue_targets resumes it."""
    return await in_thread(control.stop_task, task_id, scope, mode, reason)


@server.tool()
async def resolve_auth(job_id: str, domain: str, solution: str) -> dict[str, Any]:
    """Give a human's answer to a CAPTCHA that get_status shows under awaiting_auth. Do not invent one."""
    return await in_thread(control.resolve_auth, job_id, domain, solution)


@server.tool(annotations=READ_ONLY)
async def query_sql(sql: str) -> dict[str, Any]:
    """Read tasks, jobs, intervention_queue, pages, papers, fragments, claims, edges and cites."""
    return await in_thread(reading.query_sql, sql)


@server.tool(annotations=READ_ONLY)
async def vector_search(
    task_id: TaskId, query: str, k: Annotated[int, Field(ge=1, le=50)] = 5
) -> dict[str, Any]:
    """The fragments of a task that are most like the query."""
    return await in_thread(lambda: {"fragments": vectors.index_of(task_id).nearest(query, k)})


@asynccontextmanager
async def working() -> AsyncIterator[Worker]:
    """The worker starts and stops with the server. What does not end within the grace goes back to the
    queue, and on with the next start. Nothing is pruned: results are kept for audit."""
    await asyncio.to_thread(database.set_up)
    async with app.worker(
        concurrency=20, threads=8, shutdown_grace="2s", retention=None, sweep=SWEEP
    ) as worker:
        yield worker


async def serve_stdio() -> None:
    """Until the client closes its end."""
    async with working():
        await server.run_stdio_async()


async def serve_http(port: int) -> None:
    """Until SIGTERM. The server keeps nothing of a client, so that a client goes on after a restart."""
    asgi = server.streamable_http_app(stateless_http=True)
    settings = uvicorn.Config(
        asgi, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=2
    )
    async with working():
        await uvicorn.Server(settings).serve()
