"""`leasehold serve`: the HTTP API, dashboard and MCP in one process, optionally with a worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import uvicorn
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from leasehold.app import Leasehold
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.operations import tokens
from leasehold.surfaces.dashboard.mount import create_dashboard
from leasehold.surfaces.guard import USUAL_RATE, is_loopback
from leasehold.surfaces.http.api import create_app
from leasehold.threads import apart_from_forks
from leasehold.types import Worker

if TYPE_CHECKING:
    from leasehold.surfaces.mcp.server import McpApp

logger = logging.getLogger("leasehold.http")

LAST_ANSWERS = 5
"""Default seconds that open requests get at shutdown: long polls and streams reconnect elsewhere."""


MCP_PATH = "/mcp"
DASHBOARD_PATH = "/dashboard"


@frozen(kw_only=True)
class ServeSettings:
    host: str = "127.0.0.1"
    port: int = 8700
    require_tokens: bool = False
    """Require tokens also from callers on this machine."""
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    rate_limit: float = USUAL_RATE
    mcp: bool = False
    """Also serve MCP at /mcp."""
    dashboard: bool = True
    """Also serve the dashboard at /dashboard/."""
    read_only: bool = False
    """Whether the dashboard refuses all changes."""
    last_answers: int = LAST_ANSWERS
    """Seconds that open requests get when the server stops."""

    @property
    def tokens(self) -> bool:
        return self.require_tokens or not is_loopback(self.host)

    @property
    def own_hosts(self) -> tuple[str, ...]:
        """The host names under which requests may reach the server."""
        wildcard = self.host in ("0.0.0.0", "::", "")
        return (*self.hosts, *(() if wildcard else (self.host,)))

    def check(self, app: Leasehold) -> None:
        """Raise InvalidInput for a network address without allowed host names, or without any live token."""
        if is_loopback(self.host):
            return
        if not self.own_hosts:
            raise InvalidInput(
                "--allow-host",
                f"is needed with --host {self.host}",
                "say by which names the server is reached",
            )
        if not any(row.live for row in app.__internals__.operations.call(tokens.list_tokens)):
            raise InvalidInput(
                "--host",
                f"{self.host} can be reached from elsewhere, and there is no token",
                "make one first: leasehold tokens create NAME --scope read",
            )


async def serve(app: Leasehold, settings: ServeSettings, worker: Worker | None = None) -> None:
    """Serve until SIGTERM or SIGINT."""
    settings.check(app)
    api = create_app(
        app,
        tokens=settings.tokens,
        hosts=settings.own_hosts,
        origins=settings.origins,
        rate_limit=settings.rate_limit,
        needs_worker=worker is not None,
    )
    routes = _Routes(api, dashboard=_dashboard(app, settings) if settings.dashboard else None)
    async with contextlib.AsyncExitStack() as stack:
        if settings.mcp:
            routes.mcp = mcp = _mcp_app(app, settings)
            await stack.enter_async_context(mcp.running())
        if worker is not None:
            await stack.enter_async_context(worker)
        await _Server(_config(routes, settings), worker).serve()


def _config(listening: ASGIApp, settings: ServeSettings) -> uvicorn.Config:
    return uvicorn.Config(
        listening,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # any client could send these headers, and claim another address
        timeout_graceful_shutdown=settings.last_answers,
    )


def _mcp_app(app: Leasehold, settings: ServeSettings) -> McpApp:
    # Imported only if MCP is served: it needs an extra of its own.
    from leasehold.surfaces.mcp.server import McpApp

    return McpApp(
        app,
        tokens=settings.tokens,
        hosts=settings.own_hosts,
        origins=settings.origins,
        rate_limit=settings.rate_limit,
    )


def _dashboard(app: Leasehold, settings: ServeSettings) -> ASGIApp:
    return create_dashboard(
        app,
        tokens=settings.tokens,
        hosts=settings.own_hosts,
        origins=settings.origins,
        rate_limit=settings.rate_limit,
        read_only=settings.read_only,
    )


class _Routes:
    """Sends each request to MCP, the dashboard or the API, by its path."""

    def __init__(self, api: ASGIApp, *, dashboard: ASGIApp | None = None, mcp: ASGIApp | None = None) -> None:
        self._api = api
        self._dashboard = dashboard
        self.mcp = mcp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if self.mcp is not None and path.rstrip("/") == MCP_PATH:
            await self.mcp(scope, receive, send)
        elif self._dashboard is not None and f"{path}/".startswith(f"{DASHBOARD_PATH}/"):
            inner = {**scope, "root_path": scope.get("root_path", "") + DASHBOARD_PATH}
            await self._dashboard(inner, receive, send)
        elif self._dashboard is not None and path == "/" and scope["method"] in ("GET", "HEAD"):
            # Relative: a proxy in front of us may serve us below its own path.
            await RedirectResponse(f".{DASHBOARD_PATH}/")(scope, receive, send)
        else:
            await self._api(scope, receive, send)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, worker: Worker | None) -> None:
        super().__init__(config)
        self._worker = worker

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal. uvicorn's own method raises the signal again when it ends, which would kill the process."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        with apart_from_forks(loop):
            yield

    def _stop(self, number: int) -> None:
        if self._worker is not None:
            self._worker.request_drain()
        self.handle_exit(number, None)

    def _log_started_message(self, listeners: object) -> None:
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        port = self.config.port
        for server in self.servers:
            for socket in server.sockets:
                port = socket.getsockname()[1]
        logger.info("listening on http://%s:%s", host, port)
