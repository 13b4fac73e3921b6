"""The MCP server: the handlers of its requests, errors for clients, and the ASGI app."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from importlib import metadata
from typing import Any, TypeVar

from mcp.server.lowlevel import Server
from mcp.server.mcpserver.server import require_client_extension
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from leasehold.app import Leasehold
from leasehold.domain.errors import (
    InvalidAnswer,
    InvalidInput,
    JobNotFound,
    LeaseholdError,
    PoolExhausted,
    ReadTooSlow,
    StoreError,
    TenantNotFound,
)
from leasehold.operations.local import reads_within
from leasehold.surfaces.guard import (
    FORWARDED,
    STATUSES,
    TENANT_HEADER,
    USUAL_RATE,
    AllowedHosts,
    Caller,
    Callers,
    Denied,
    DiscardingApp,
    RequestRates,
)
from leasehold.surfaces.mcp import tasks
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
                tasks.listed(task) for name, task in tasks.exposed_to(caller).items() if name not in TOOLS
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
                if params.name in tasks.exposed_to(caller):
                    return await self._run(ctx, caller, params)
        except MCPError:
            raise
        except Exception as error:
            return tool_error(error)
        raise MCPError(INVALID_PARAMS, f"no tool is named {params.name!r}")

    async def _run(self, ctx: Request, caller: Caller, params: CallToolRequestParams) -> Any:
        task = tasks.exposed_to(caller)[params.name]
        if task.expose == "task":
            require_client_extension(ctx, tasks.IDENTIFIER)
        arguments = tasks.arguments_of(params)
        missing = tasks.ask_for_missing(task, arguments, ctx.session.client_capabilities)
        if missing is not None:
            return missing
        job_id = await tasks.enqueue(caller, task, arguments, tasks.tag_of(caller))
        if task.expose != "call" and tasks.supports_tasks(ctx):
            return await tasks.created(caller, job_id)
        return await tasks.result_in_time(caller, job_id)


async def _call(caller: Caller, tool: Tool, arguments: dict[str, Any]) -> CallToolResult:
    answer = await tool.call(caller, tool.arguments.model_validate(arguments))
    return CallToolResult(
        content=[TextContent(type="text", text=answer.model_dump_json(exclude_none=True))],
        structured_content=answer.model_dump(mode="json"),
    )


# -- errors ------------------------------------------------------------------------------------------------------------
# An error of a tool is a result that the model reads and can act on; a protocol error is for the client's code.

logger = logging.getLogger("leasehold.mcp")

_CODES: tuple[tuple[type[Exception], int], ...] = (
    (JobNotFound, INVALID_PARAMS),
    (TenantNotFound, INVALID_PARAMS),
    (InvalidInput, INVALID_PARAMS),
    (InvalidAnswer, INVALID_PARAMS),
    (Denied, INVALID_PARAMS),
    (ValidationError, INVALID_PARAMS),
    (LeaseholdError, INTERNAL_ERROR),
)
"""The codes of protocol errors; the first row that matches an error applies."""


def tool_error(error: Exception) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text_of(error))], is_error=True)


def protocol_error(error: Exception) -> MCPError:
    code = next((code for class_, code in _CODES if isinstance(error, class_)), INTERNAL_ERROR)
    return MCPError(code, text_of(error))


def text_of(error: Exception) -> str:
    """The message for the client. An unexpected error is logged; the client gets no details of it."""
    match error:
        case Denied():
            text = error.detail
        case ValidationError():
            text = "; ".join(f"{_place(fault['loc'])}: {fault['msg']}" for fault in error.errors()[:5])
        case ReadTooSlow():
            logger.warning("%s", error)
            text = f"the database took more than {error.seconds:g} s to read that; ask for less at once, or again later"
        case PoolExhausted():
            logger.error("%s", error)
            text = "all database connections of this server are in use; try again later"
        case StoreError():
            logger.error("%s: %s", type(error).__name__, error)
            text = "the database cannot be reached or used; see the server's log"
        case LeaseholdError():
            text = str(error)
        case _:
            logger.error("a request failed", exc_info=error)
            text = "internal error; see the server's log"
    return text.encode("utf-8", "replace").decode()


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "arguments"


# -- over streamable HTTP ----------------------------------------------------------------------------------------------

LARGEST_BODY = 4 * 1024 * 1024
"""Bytes."""
LONGEST_READ = 10.0
_CALLER = "leasehold.caller"


class McpApp:
    """The MCP server of one app as an ASGI app. It serves requests inside `running()`, wherever it is mounted.

    The server keeps no state between requests: a client can continue after a restart, or at another server of the same
    jobs. The arguments are those of `leasehold.http.router`.
    """

    def __init__(
        self,
        app: Leasehold,
        *,
        tokens: bool = True,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        rate_limit: float = USUAL_RATE,
        read_timeout: float | None = LONGEST_READ,
    ) -> None:
        self._hosts = AllowedHosts.of(hosts, origins)
        self._rates = RequestRates(rate_limit)
        self._callers = Callers(app, tokens=tokens, surface="mcp")
        self._manager = StreamableHTTPSessionManager(
            app=make_server(_caller_of, read_timeout),
            stateless=True,
            # `_admit` has checked the host already.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=LARGEST_BODY,
        )
        self._serving = DiscardingApp(self._serve)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve requests while this context is open."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"this app serves MCP over HTTP, not over {scope['type']}")
        await self._serving(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            caller = await run_in_threadpool(self._admit, Headers(scope=scope), scope.get("client"))
        except Denied as error:
            await _refusal(error)(scope, receive, send)
        except TenantNotFound as error:
            await JSONResponse({"error": "tenant-not-found", "detail": str(error)}, 404)(scope, receive, send)
        else:
            await self._manager.handle_request({**scope, _CALLER: caller}, receive, send)

    def _admit(self, headers: Headers, client: tuple[str, int] | None) -> Caller:
        self._hosts.check(headers.getlist("host"), headers.getlist("origin"))
        authorization = headers.get("authorization")
        self._rates.check(authorization, None if client is None else client[0])
        caller = self._callers.admit(
            authorization,
            headers.get(TENANT_HEADER),
            forwarded=any(name in headers for name in FORWARDED),
            scope=None,  # each tool requires its own scope
        )
        self._rates.register_token(authorization, caller.access.name)
        return caller


def _caller_of(ctx: Request) -> Caller:
    assert ctx.request is not None, "every request to this app comes over HTTP"
    caller: Caller = ctx.request.scope[_CALLER]
    return caller


def _refusal(error: Denied) -> JSONResponse:
    return JSONResponse(
        {"error": error.reason, "detail": error.detail}, STATUSES[error.reason], error.headers
    )
