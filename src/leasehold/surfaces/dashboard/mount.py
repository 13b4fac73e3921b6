"""The dashboard as an ASGI app: its routes, and the one way in for all of them."""

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
from leasehold.surfaces.dashboard import forms, notices, page, pages, problems, render, sign_in
from leasehold.surfaces.dashboard.access import HEADERS, Access
from leasehold.surfaces.dashboard.bulk_runs import BulkRuns
from leasehold.surfaces.dashboard.page_request import root_of
from leasehold.surfaces.guard.allowed_hosts import Places
from leasehold.surfaces.guard.callers import Callers
from leasehold.surfaces.guard.denied import Denied
from leasehold.surfaces.guard.request_rates import USUAL_RATE, RequestRates

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

    People sign in with a token (`leasehold tokens create`): `read` looks, `operate` steers, `admin` sets limits too.
    With `tokens=False` anyone who reaches it may do everything, so put your own guard before it. With `read_only`
    nobody may change anything. The other arguments are those of `leasehold.http.router`."""
    door = Access(
        Places.of(hosts, origins),
        Callers(app, tokens=tokens, surface="dashboard"),
        RequestRates(rate_limit),
        read_only=read_only,
    )

    def guarded(handle: Handle) -> Handle:
        async def answer(request: Request) -> Response:
            try:
                response = await handle(request)
            except Exception as error:
                response = await _refusal(request, door, error)
            return _with_headers(response)

        return answer

    def shown(one: page.Page) -> Handle:
        return guarded(lambda request: page.show(one, request, door, read_timeout))

    async def act(request: Request) -> Response:
        return await _act(request, door)

    # No Mount for tenants: it would move the root path, by which all links are made.
    routes = []
    for base in ("", "/tenant/{tenant}"):
        routes += [Route(f"{base}/{one.path}", shown(one), methods=["GET"]) for one in pages.ALL]
        routes.append(Route(f"{base}/do/{{verb}}", guarded(act), methods=["POST"]))
    made = Starlette(
        routes=[
            Route("/static/{name:path}", guarded(lambda request: _static(request, door)), methods=["GET"]),
            Route("/sign-in", guarded(lambda request: sign_in.show(request, door)), methods=["GET"]),
            Route("/sign-in", guarded(lambda request: sign_in.enter(request, door)), methods=["POST"]),
            Route("/sign-out", guarded(lambda request: sign_in.leave(request, door)), methods=["POST"]),
            *routes,
        ],
        exception_handlers={HTTPException: _lost(door)},
        middleware=[Middleware(GZipMiddleware, compresslevel=5)],  # leaves streams alone
    )
    made.router.redirect_slashes = False
    made.state.bulk_runs = BulkRuns()
    return made


async def _act(request: Request, door: Access) -> Response:
    """A verb, and back to the page that it was asked on, with what it has to say. A reload does not repeat it."""
    action = pages.ACTIONS.get(request.path_params["verb"])
    if action is None:
        raise HTTPException(404)
    page_request = await door.admit(request, action.scope)
    form = await forms.read(request)
    back = page_request.back(form.maybe("back"))
    try:
        done = await run_in_threadpool(action.run, page_request, form)
    except StoreError:
        raise
    except LeaseholdError as error:
        status, text = problems.describe(error)
        if status >= 500:
            raise
        notice = notices.Notice("refused", text)
    else:
        notice = notices.Notice("done", done.text)
        back = done.go or back
    answer = RedirectResponse(back, 303)
    notices.leave(answer, request, notice)
    return answer


async def _static(request: Request, door: Access) -> Response:
    """Known names only. They tell nothing about jobs, so that the sign-in page has them too."""
    door.check_place(request)
    found = render.static_file(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    kept = _KEPT if "v" in request.query_params else "no-cache"
    return Response(found[0], media_type=found[1], headers={"Cache-Control": kept})


async def _refusal(request: Request, door: Access, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        status, text = error.status_code, "There is no such page."
    else:
        status, text = problems.describe(error)
    if status == 401 and request.method == "GET":
        root = root_of(request)
        requested = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{root}/sign-in?next={quote(requested, safe='')}", 303)
    headers = error.headers if isinstance(error, Denied) else {}
    values = {"status": status, "text": text, "root": root_of(request)}
    return HTMLResponse(render.page("problem.html", values), status, {**headers, "Cache-Control": "no-store"})


def _lost(door: Access) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        """No route: also `/ops` for `/ops/`."""
        assert isinstance(error, HTTPException)
        root = str(request.scope.get("root_path", ""))
        if root and request.scope["path"] == root and request.method == "GET":
            return _with_headers(RedirectResponse(f"{root}/", 307))
        try:
            door.check_place(request)
        except Denied as denied:
            return _with_headers(await _refusal(request, door, denied))
        return _with_headers(await _refusal(request, door, error))

    return answer


def _with_headers(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers[name] = value
    return response
