"""The MCP server: its instructions, and the handler of each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import Any, TypeVar

from mcp.server.lowlevel import Server
from mcp.server.mcpserver.server import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)

from leasehold.operations.read_timeout import reads_within
from leasehold.surfaces.guard.callers import Caller
from leasehold.surfaces.mcp import exposed, tasks
from leasehold.surfaces.mcp.problems import protocol_error, tool_error
from leasehold.surfaces.mcp.tasks import Request, TaskParams, UpdateParams
from leasehold.surfaces.mcp.tools import TOOLS, Tool

CallerOf = Callable[[Request], Caller]
P = TypeVar("P", bound=TaskParams)

_INSTRUCTIONS = """Background jobs that survive crashes: long or expensive work, made durable and followed to its end.

Start one with enqueue_job (list_tasks lists the tasks) or with a task's own tool, and follow it with get_job and
wait_s; while next_poll_s is set, it is not done. explain_job says why a job does not run. A job that waits for an
answer waits for a person: do not make up an answer.
"""


def make_server(caller_of: CallerOf, longest_read: float | None = None) -> Server[Any]:
    """An MCP server. `caller_of` finds the caller of a request. Each read of a request may take `longest_read`
    seconds."""
    return _McpServer(caller_of, longest_read).server


class _McpServer:
    def __init__(self, caller_of: CallerOf, longest_read: float | None) -> None:
        self._caller_of = caller_of
        self._longest_read = longest_read
        self.server: Server[Any] = Server(
            "leasehold",
            version=metadata.version("leasehold"),
            title="Leasehold",
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        self.server.extensions[tasks.IDENTIFIER] = {}
        self._add("tasks/get", TaskParams, tasks.get_task)
        self._add("tasks/update", UpdateParams, tasks.update_task)
        self._add("tasks/cancel", TaskParams, tasks.cancel_task)

    def _add(
        self, method: str, params_type: type[P], act: Callable[[Caller, P], Awaitable[dict[str, Any]]]
    ) -> None:
        async def handle(ctx: Request, params: P) -> dict[str, Any]:
            tasks.check_request(ctx, params)
            try:
                caller = self._caller_of(ctx)
                caller.check_scope("read" if method == "tasks/get" else "enqueue")
                with reads_within(self._longest_read):
                    return await act(caller, params)
            except MCPError:
                raise
            except Exception as error:
                raise protocol_error(error) from error

        self.server.add_request_handler(method, params_type, handle)

    async def _list_tools(self, ctx: Request, _: PaginatedRequestParams | None) -> ListToolsResult:
        """The tools that the caller may call."""
        try:
            caller = self._caller_of(ctx)
            own = [tool.listed() for tool in TOOLS.values() if caller.access.may(tool.scope)]
            found = [
                exposed.listed(task) for name, task in exposed.exposed_to(caller).items() if name not in TOOLS
            ]
        except Exception as error:
            raise protocol_error(error) from error
        return ListToolsResult(tools=own + found, ttl_ms=60_000, cache_scope="private")

    async def _call_tool(self, ctx: Request, params: CallToolRequestParams) -> Any:
        try:
            caller = self._caller_of(ctx)
            with reads_within(self._longest_read):
                if (tool := TOOLS.get(params.name)) is not None:
                    caller.check_scope(tool.scope)
                    return await _call(caller, tool, params.arguments or {})
                if params.name in exposed.exposed_to(caller):
                    return await self._run(ctx, caller, params)
        except MCPError:
            raise
        except Exception as error:
            return tool_error(error)
        raise MCPError(INVALID_PARAMS, f"no tool is named {params.name!r}")

    async def _run(self, ctx: Request, caller: Caller, params: CallToolRequestParams) -> Any:
        task = exposed.exposed_to(caller)[params.name]
        if task.expose == "task":
            require_client_extension(ctx, tasks.IDENTIFIER)
        arguments = exposed.arguments_of(params)
        missing = exposed.ask_for_missing(task, arguments, ctx.session.client_capabilities)
        if missing is not None:
            return missing
        job = await exposed.enqueue(caller, task, arguments, tasks.tag_of(caller))
        if task.expose != "call" and tasks.supports_tasks(ctx):
            return tasks.created(job)
        return await exposed.result_in_time(caller, job)


async def _call(caller: Caller, tool: Tool, arguments: dict[str, Any]) -> CallToolResult:
    answer = await tool.call(caller, tool.arguments.model_validate(arguments))
    return CallToolResult(
        content=[TextContent(type="text", text=answer.model_dump_json(exclude_none=True))],
        structured_content=answer.model_dump(mode="json"),
    )
