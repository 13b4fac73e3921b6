"""Access to the dashboard: sign-in with a token, checks of each request, and security headers.

A browser keeps the user's token in a cookie that no script can read, and that it sends only to this site. Each request
looks the token up again, so a revoked token stops working at once. A request that changes anything must come from a
page of the dashboard: every browser sends `Origin` or `Sec-Fetch-Site`.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from leasehold.domain.errors import TenantNotFound
from leasehold.domain.tokens import TokenScope
from leasehold.surfaces.dashboard import page_request, render
from leasehold.surfaces.dashboard.page_request import PageRequest, base_of, is_inside, root_of
from leasehold.surfaces.guard import FORWARDED, AllowedHosts, Caller, Callers, Denied, RequestRates

COOKIE = "leasehold_token"
KEPT_FOR = 12 * 3600
"""Seconds until a browser drops the token."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Headers of every response: no inline code, nothing from other sites, no frames."""


class SignIn:
    def __init__(
        self, hosts: AllowedHosts, callers: Callers, rates: RequestRates, *, read_only: bool
    ) -> None:
        self._hosts = hosts
        self._callers = callers
        self._rates = rates
        self.read_only = read_only

    def check_host(self, request: Request) -> None:
        """Check the host, and that a change comes from a page of the dashboard. Raises Denied."""
        headers = request.headers
        self._hosts.check(headers.getlist("host"), headers.getlist("origin"))
        changes = request.method not in ("GET", "HEAD")
        if changes and "origin" not in headers and headers.get("sec-fetch-site") != "same-origin":
            raise Denied("foreign-origin", "only pages of this dashboard may send this request")

    def check_rate(self, request: Request, authorization: str | None = None) -> None:
        """Count a request. Raises Denied if its caller has sent too many."""
        self._rates.check(authorization, None if request.client is None else request.client.host)

    async def admit(self, request: Request, scope: TokenScope = "read") -> PageRequest:
        """Check a request and its token for this scope. Raises Denied, and TenantNotFound."""
        self.check_host(request)
        authorization, kept = request.headers.get("authorization"), request.cookies.get(COOKIE)
        if authorization is None and kept:
            authorization = f"Bearer {kept}"
        self.check_rate(request, authorization)
        caller = await run_in_threadpool(self.caller, request, authorization)
        self._rates.register_token(authorization, caller.access.name)
        page_request = PageRequest(request, caller, self.read_only, bool(kept))
        if not page_request.may(scope):
            if self.read_only and caller.access.may(scope):
                raise Denied("scope-missing", "this dashboard is switched to read-only")
            raise Denied("scope-missing", f"your token lacks the scope {scope!r}")
        return page_request

    def caller(self, request: Request, authorization: str | None, tenant: str | None = None) -> Caller:
        """The caller with this token. Raises Denied, and TenantNotFound."""
        return self._callers.admit(
            authorization,
            tenant or request.path_params.get("tenant"),
            forwarded=any(name in request.headers for name in FORWARDED),
            scope=None,
        )


def remember(response: Response, request: Request, token: str) -> None:
    response.set_cookie(
        COOKIE,
        token,
        max_age=KEPT_FOR,
        path=request.scope.get("root_path") or "/",
        secure=_is_secure(request),
        httponly=True,
        samesite="lax",
    )


def _is_secure(request: Request) -> bool:
    """Whether the browser uses HTTPS. Behind a proxy that ends TLS, only the checked `Origin` header shows it."""
    return request.url.scheme == "https" or request.headers.get("origin", "").lower().startswith("https://")


def forget(response: Response, request: Request) -> None:
    response.delete_cookie(COOKIE, path=request.scope.get("root_path") or "/", httponly=True, samesite="lax")


# -- signing in and out ------------------------------------------------------------------------------------------------


async def show(request: Request, sign_in: SignIn) -> Response:
    sign_in.check_host(request)
    return _form(request, request.query_params.get("next", ""))


async def enter(request: Request, sign_in: SignIn) -> Response:
    sign_in.check_host(request)
    sign_in.check_rate(request)
    form = await page_request.read_form(request)
    token, wanted = form.fields.get("token", "").strip(), form.fields.get("next", "")
    try:
        caller = await run_in_threadpool(sign_in.caller, request, f"Bearer {token}", form.maybe("tenant"))
        caller.check_scope("read")
    except Denied as denied:
        if denied.reason not in ("unauthenticated", "scope-missing"):
            raise
        text = denied.detail.replace("name one with Leasehold-Tenant", "name one below")
        return _form(request, wanted, text, for_tenants=True)
    except TenantNotFound as error:
        return _form(request, wanted, str(error), for_tenants=True)
    answer = RedirectResponse(_inside(request, wanted, caller.tenant), 303)
    remember(answer, request, token)
    return answer


async def sign_out(request: Request, sign_in: SignIn) -> Response:
    sign_in.check_host(request)
    answer = RedirectResponse(f"{root_of(request)}/sign-in", 303)
    forget(answer, request)
    return answer


def _inside(request: Request, wanted: str, tenant: str | None) -> str:
    """The page after sign-in: the wanted one if it is a page of the dashboard, else the first page of the tenant."""
    root = root_of(request)
    if is_inside(root, wanted) and wanted != f"{root}/":
        return wanted
    return f"{base_of(root, tenant)}/"


def _form(request: Request, wanted: str, problem: str = "", *, for_tenants: bool = False) -> Response:
    values = {"root": root_of(request), "next": wanted, "problem": problem, "for_tenants": for_tenants}
    status = 401 if problem else 200
    return HTMLResponse(render.page("sign_in.html", values), status, {"Cache-Control": "no-store"})
