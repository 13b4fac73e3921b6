"""The server over streamable HTTP: an ASGI app behind the same guard as the HTTP API."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from leasehold.app import Leasehold
from leasehold.domain.errors import TenantNotFound
from leasehold.surfaces.guard.allowed_hosts import Places
from leasehold.surfaces.guard.callers import FORWARDED, TENANT_HEADER, Caller, Callers
from leasehold.surfaces.guard.denied import STATUSES, Denied
from leasehold.surfaces.guard.request_rates import USUAL_RATE, RequestRates
from leasehold.surfaces.mcp.server import make_server
from leasehold.surfaces.mcp.tasks import Request

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
        self._places = Places.of(hosts, origins)
        self._rates = RequestRates(rate_limit)
        self._callers = Callers(app, tokens=tokens, surface="mcp")
        self._manager = StreamableHTTPSessionManager(
            app=make_server(_caller_of, read_timeout),
            stateless=True,
            # `_admit` has checked the host already.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=LARGEST_BODY,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve requests while this context is open."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"this app serves MCP over HTTP, not over {scope['type']}")
        try:
            caller = await run_in_threadpool(self._admit, Headers(scope=scope), scope.get("client"))
        except Denied as error:
            await _refusal(error)(scope, receive, send)
        except TenantNotFound as error:
            await JSONResponse({"error": "tenant-not-found", "detail": str(error)}, 404)(scope, receive, send)
        else:
            await self._manager.handle_request({**scope, _CALLER: caller}, receive, send)

    def _admit(self, headers: Headers, client: tuple[str, int] | None) -> Caller:
        self._places.check(headers.getlist("host"), headers.getlist("origin"))
        authorization = headers.get("authorization")
        self._rates.check(authorization, None if client is None else client[0])
        caller = self._callers.admit(
            authorization,
            headers.get(TENANT_HEADER),
            forwarded=any(name in headers for name in FORWARDED),
            scope=None,  # each tool requires its own scope
        )
        self._rates.know(authorization, caller.access.name)
        return caller


def _caller_of(ctx: Request) -> Caller:
    assert ctx.request is not None, "every request to this app comes over HTTP"
    caller: Caller = ctx.request.scope[_CALLER]
    return caller


def _refusal(error: Denied) -> JSONResponse:
    return JSONResponse(
        {"error": error.reason, "detail": error.detail}, STATUSES[error.reason], error.headers
    )
