"""The whole HTTP API, as a router for another app and as an app of its own."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from leasehold.app import Leasehold
from leasehold.surfaces.guard import USUAL_RATE, AllowedHosts, Callers, Denied, RequestRates
from leasehold.surfaces.http import handwritten
from leasehold.surfaces.http.problems import PROBLEMS, Problem, answer_to
from leasehold.surfaces.http.routes import LONGEST_READ, Guard, add_routes, guarded_by, needs

_ABOUT = """Durable background jobs: enqueue, follow and control them.

Every route but the probes needs a token (`leasehold tokens create NAME --scope read`), unless the server requires none.
`Leasehold-Tenant` names the tenant that a request is about. Errors are problems (RFC 9457).
"""


def router(
    app: Leasehold,
    *,
    tokens: bool = True,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    rate_limit: float = USUAL_RATE,
    read_timeout: float | None = LONGEST_READ,
) -> APIRouter:
    """The API as a router for your own FastAPI app: `api.include_router(router(app, hosts=["api.example.org"]))`.

    Callers need tokens (`leasehold tokens create`); with `tokens=False` anyone who reaches it may do everything, so put
    your own guard before it. `hosts` are the host names of the server, besides those of this machine. The server
    refuses a request to any other host, and a request from a page of another site unless that site is in `origins`.

    `rate_limit` is the number of requests per second that each token, and each address without a token, may send to
    this process; an idle caller may send twice as many at once; 0 is no limit. A read of the database that takes longer
    than `read_timeout` seconds fails (None: the database's own timeout applies).
    """
    guard = Guard(
        AllowedHosts.of(hosts, origins), Callers(app, tokens=tokens), RequestRates(rate_limit), read_timeout
    )
    made = APIRouter(route_class=guarded_by(guard), responses=PROBLEMS)
    _add_routes(made)
    return made


def create_app(
    app: Leasehold,
    *,
    tokens: bool = True,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    rate_limit: float = USUAL_RATE,
    read_timeout: float | None = LONGEST_READ,
    needs_worker: bool = False,
) -> FastAPI:
    """The API as an app of its own, for any ASGI server, with `/livez`, `/readyz`, `/metrics` and `/openapi.json`. The
    arguments are those of `router`; with `needs_worker` the server is ready only while a worker is live."""
    guard = Guard(
        AllowedHosts.of(hosts, origins), Callers(app, tokens=tokens), RequestRates(rate_limit), read_timeout
    )
    # No documentation pages: they would load code from other sites.
    api = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, responses=PROBLEMS)
    api.router.route_class = guarded_by(guard)
    handwritten.add_probes(api.router, app, needs_worker=needs_worker)
    handwritten.add_metrics(api.router)  # not in `router`: the app around it may have its own /metrics
    _add_routes(api.router)

    @api.router.get("/openapi.json", dependencies=needs("read"), include_in_schema=False)
    def openapi() -> dict[str, Any]:
        """The schema of this API, as OpenAPI."""
        return _described(api.router)

    async def refuse(request: Request, error: Exception) -> Response:
        """The response to an unknown path, or to a method that the path does not have."""
        try:
            guard.allowed_hosts.check(request.headers.getlist("host"), request.headers.getlist("origin"))
        except Denied as denied:
            return answer_to(denied)
        answer = answer_to(error)
        if answer.status_code == 405:
            # Starlette lists only the methods of the first route with this path.
            answer.headers["Allow"] = ", ".join(sorted(_methods(api.router, request)))
        return answer

    api.add_exception_handler(HTTPException, refuse)
    return api


def _methods(made: APIRouter, request: Request) -> set[str]:
    matching = (route for route in made.routes if route.matches(request.scope)[0] is not Match.NONE)
    return {method for route in matching if isinstance(route, APIRoute) for method in route.methods or ()}


def _add_routes(made: APIRouter) -> None:
    handwritten.add_jobs(made)
    handwritten.add_bulk(made)
    handwritten.add_watching(made)
    handwritten.add_groups(made)
    handwritten.add_fleet(made)
    add_routes(made)


def _described(made: APIRouter) -> dict[str, Any]:
    found = get_openapi(
        title="Leasehold", version=metadata.version("leasehold"), description=_ABOUT, routes=made.routes
    )
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs", {})
    schemas["Problem"] = problem
    return found
