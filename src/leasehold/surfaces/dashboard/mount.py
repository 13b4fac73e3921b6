"""The dashboard as an ASGI app: its routes, with the same checks for every route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from leasehold.app import Leasehold
from leasehold.domain.errors import LeaseholdError, StoreError
from leasehold.surfaces.dashboard import page, pages, render
from leasehold.surfaces.dashboard.access import HEADERS, SignIn, enter, show, sign_out
from leasehold.surfaces.dashboard.page_request import read_form, root_of
from leasehold.surfaces.dashboard.pages.bulk import BulkRuns
from leasehold.surfaces.guard import (
    USUAL_RATE,
    AllowedHosts,
    Callers,
    Denied,
    DiscardingApp,
    RequestRates,
)

LONGEST_READ = 10.0
_KEPT = "public, max-age=31536000, immutable"

Handle = Callable[[Request], Awaitable[Response]]


def create_dashboard(
    app: Leasehold,
    *,
    tokens: bool = True,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    rate_limit: float = USUAL_RATE,
    read_timeout: float | None = LONGEST_READ,
    read_only: bool = False,
) -> ASGIApp:
    """The dashboard for any ASGI server, to be mounted anywhere: `mine.mount("/ops", create_dashboard(app))`.

    People sign in with a token (`leasehold tokens create`): `read` may look, `operate` may change jobs, `admin` may set
    limits too. With `tokens=False` anyone who reaches it may do everything, so put your own guard before it. With
    `read_only` the dashboard changes nothing. The other arguments are those of `leasehold.http.router`."""
    sign_in = SignIn(
        AllowedHosts.of(hosts, origins),
        Callers(app, tokens=tokens, surface="dashboard"),
        RequestRates(rate_limit),
        read_only=read_only,
    )

    def guarded(handle: Handle) -> Handle:
        async def answer(request: Request) -> Response:
            try:
                response = await handle(request)
            except Exception as error:
                response = await _refusal(request, sign_in, error)
            return _with_headers(response)

        return answer

    def shown(one: page.DashboardPage) -> Handle:
        return guarded(lambda request: page.show(one, request, sign_in, read_timeout))

    async def act(request: Request) -> Response:
        return await _act(request, sign_in)

    # No Mount for tenants: it would change the root path, from which all links are made.
    routes = []
    for base in ("", "/tenant/{tenant}"):
        routes += [Route(f"{base}/{one.path}", shown(one), methods=["GET"]) for one in pages.ALL]
        routes.append(Route(f"{base}/do/{{verb}}", guarded(act), methods=["POST"]))
    made = Starlette(
        routes=[
            Route("/static/{name:path}", guarded(lambda request: _static(request, sign_in)), methods=["GET"]),
            Route("/sign-in", guarded(lambda request: show(request, sign_in)), methods=["GET"]),
            Route("/sign-in", guarded(lambda request: enter(request, sign_in)), methods=["POST"]),
            Route("/sign-out", guarded(lambda request: sign_out(request, sign_in)), methods=["POST"]),
            *routes,
        ],
        exception_handlers={HTTPException: _lost(sign_in)},
        middleware=[
            Middleware(DiscardingApp),
            Middleware(GZipMiddleware, compresslevel=5),  # it does not compress streams
        ],
    )
    made.router.redirect_slashes = False
    made.state.bulk_runs = BulkRuns()
    return made


async def _act(request: Request, sign_in: SignIn) -> Response:
    """Run an action, then redirect to the page with the form, with a notice. A reload does not repeat the action."""
    action = pages.ACTIONS.get(request.path_params["verb"])
    if action is None:
        raise HTTPException(404)
    page_request = await sign_in.admit(request, action.scope)
    form = await read_form(request)
    back = page_request.back(form.maybe("back"))
    try:
        done = await run_in_threadpool(action.run, page_request, form)
    except StoreError:
        raise
    except LeaseholdError as error:
        status, text = page.describe(error)
        if status >= 500:
            raise
        notice = page.Notice("refused", text)
    else:
        notice = page.Notice("done", done.text)
        back = done.go or back
    answer = RedirectResponse(back, 303)
    page.set_notice(answer, request, notice)
    return answer


async def _static(request: Request, sign_in: SignIn) -> Response:
    """A static file. It needs no token, because the sign-in page uses these files too; they reveal nothing about
    jobs."""
    sign_in.check_host(request)
    found = render.static_file(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    kept = _KEPT if "v" in request.query_params else "no-cache"
    return Response(found[0], media_type=found[1], headers={"Cache-Control": kept})


async def _refusal(request: Request, sign_in: SignIn, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        status, text = error.status_code, "There is no such page."
    else:
        status, text = page.describe(error)
    if status == 401 and request.method == "GET":
        root = root_of(request)
        requested = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{root}/sign-in?next={quote(requested, safe='')}", 303)
    headers = error.headers if isinstance(error, Denied) else {}
    values = {"status": status, "text": text, "root": root_of(request)}
    return HTMLResponse(render.page("problem.html", values), status, {**headers, "Cache-Control": "no-store"})


def _lost(sign_in: SignIn) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        """The response if no route matches; `/ops` is redirected to `/ops/`."""
        assert isinstance(error, HTTPException)
        root = str(request.scope.get("root_path", ""))
        if root and request.scope["path"] == root and request.method == "GET":
            return _with_headers(RedirectResponse(f"{root}/", 307))
        try:
            sign_in.check_host(request)
        except Denied as denied:
            return _with_headers(await _refusal(request, sign_in, denied))
        return _with_headers(await _refusal(request, sign_in, error))

    return answer


def _with_headers(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers[name] = value
    return response
