"""Guarded routes, and the routes made from the table of verbs.

A route is guarded wherever it is mounted. A route from a verb has the target in the path, and other arguments in the
body (GET: in the query). Hand-written routes take precedence.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import NoneType
from typing import Annotated, Any, Literal, cast, get_args, get_origin

from fastapi import APIRouter, Depends, Query, Request, Response, Security
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.params import Depends as DependsParameter
from fastapi.params import Security as SecurityParameter
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job
from leasehold.domain.tokens import TokenScope
from leasehold.operations import jobs
from leasehold.operations.json_records import json_type
from leasehold.operations.local import reads_within
from leasehold.operations.verb import VERBS, Param, Verb
from leasehold.surfaces.guard import (
    FORWARDED,
    TENANT_HEADER,
    AllowedHosts,
    Caller,
    Callers,
    Denied,
    RequestBody,
    RequestRates,
)
from leasehold.surfaces.http import responses
from leasehold.surfaces.http.problems import answer_to
from leasehold.surfaces.http.requests import add_link

# -- every route is guarded --------------------------------------------------------------------------------------------
# Making a route without a scope fails.

LARGEST_BODY = 8 * 1024 * 1024
"""Bytes. Arguments of one job have at most one MiB; a batch needs more."""
DEEPEST_BODY = 64
"""Levels of nested arrays and objects. Deeper nesting can overflow the stack of a reader."""
LONGEST_READ = 10.0

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="A token as `leasehold tokens create NAME --scope read` prints it.",
)


def needs(scope: TokenScope) -> list[DependsParameter]:
    """`dependencies=` of a route that requires this scope."""
    return [cast(DependsParameter, Security(_bearer, scopes=[scope]))]


def _open_to_all() -> None:
    """Marks a route that requires no token."""


OPEN: list[DependsParameter] = [cast(DependsParameter, Depends(_open_to_all))]
"""`dependencies=` of a route that reveals nothing about jobs and requires no token."""


@frozen
class Guard:
    allowed_hosts: AllowedHosts
    callers: Callers
    rates: RequestRates
    longest_read: float | None = LONGEST_READ
    """Seconds that each read of a request may take."""


def caller_of(request: Request) -> Caller:
    caller: Caller = request.state.leasehold_caller
    return caller


RequestCaller = Annotated[Caller, Depends(caller_of)]
"""The parameter of an endpoint that gets the caller."""

Admit = Callable[[], Caller]


def _admit_of(request: Request) -> Admit:
    admit: Admit = request.state.leasehold_admit
    return admit


Readmit = Annotated[Admit, Depends(_admit_of)]
"""The parameter of an endpoint with a long response: it repeats the check of the caller, with the same errors."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def guarded_by(guard: Guard) -> type[APIRoute]:
    class GuardedRoute(APIRoute):
        def get_route_handler(self) -> Handler:
            handle = super().get_route_handler()
            scope = scope_of(self.path, self.dependencies)
            known = _query_of(self.dependant)

            async def guarded(request: Request) -> Response:
                body = _Body(request)
                try:
                    headers = request.headers
                    guard.allowed_hosts.check(headers.getlist("host"), headers.getlist("origin"))
                    with reads_within(guard.longest_read):
                        await _admit(guard, request, scope)
                        _check_query(request, known, probe=scope is None)
                        if body.too_large:
                            raise _too_large()
                        read = _Request(request.scope, body.receive)
                        try:
                            return await handle(read)
                        except HTTPException:
                            # FastAPI turns any error during the read of the body into "cannot be read".
                            if body.too_large:
                                raise _too_large() from None
                            if read.too_deep:
                                raise _too_deep() from None
                            raise
                except Exception as error:
                    return _Refusal(answer_to(error), body)

            return guarded

    return GuardedRoute


def _query_of(dependant: Dependant) -> dict[str, bool]:
    """The query parameters of a route and of all that it depends on: whether each takes several values."""
    found = {one.alias: get_origin(one.field_info.annotation) is list for one in dependant.query_params}
    for one in dependant.dependencies:
        found |= _query_of(one)
    return found


def _check_query(request: Request, known: Mapping[str, bool], probe: bool) -> None:
    """Refuse unknown and repeated parameters: FastAPI would ignore a misspelt filter and list everything, and take the
    last of several values. Probes may be asked with any."""
    hint = f"known: {', '.join(sorted(known))}" if known else "there are none here"
    problems = {}
    for name, times in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in known and not probe:
            problems[name] = f"is unknown; {hint}"
        elif times > 1 and not known.get(name, True):
            problems[name] = "is given more than once"
    if problems:
        raise RequestValidationError(
            [{"loc": ("query", name), "msg": text, "type": "query"} for name, text in problems.items()]
        )


async def _admit(guard: Guard, request: Request, scope: TokenScope | None) -> None:
    headers = request.headers
    authorization = headers.get("authorization")
    address = None if request.client is None else request.client.host
    guard.rates.check(authorization, address, probe=scope is None)
    if scope is not None:
        admit = request.state.leasehold_admit = functools.partial(
            guard.callers.admit,
            authorization,
            headers.get(TENANT_HEADER),
            forwarded=any(name in headers for name in FORWARDED),
            scope=scope,
        )
        caller = request.state.leasehold_caller = await run_in_threadpool(admit)
        guard.rates.register_token(authorization, caller.access.name)


def scope_of(path: str, dependencies: Sequence[DependsParameter]) -> TokenScope | None:
    """The scope that a route requires; None: no token. Raises RuntimeError for a route that declares neither."""
    for one in dependencies:
        if isinstance(one, SecurityParameter) and one.dependency is _bearer and one.scopes:
            return cast(TokenScope, one.scopes[0])
        if one.dependency is _open_to_all:
            return None
    raise RuntimeError(f"route {path} does not say who may call it: give it dependencies=needs(…)")


class _Body(RequestBody):
    """A body of limited size. It counts the bytes as they arrive, because Content-Length may be false."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.headers, request.receive)
        self._received = 0
        self._announced = int(_digits(request.headers.get("content-length")))

    @property
    def too_large(self) -> bool:
        return max(self._announced, self._received) > LARGEST_BODY

    async def receive(self) -> Message:
        message = await super().receive()
        self._received += len(message.get("body", b""))
        if self.too_large:
            raise _too_large()
        return message


class _Refusal(Response):
    """A response that is followed by the end of the request's body."""

    def __init__(self, answer: Response, body: _Body) -> None:
        self._answer = answer
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, self._body.discarding(send))


class _Request(Request):
    too_deep = False

    async def json(self) -> Any:
        try:
            value = await super().json()
            self.too_deep = is_deeper(value, DEEPEST_BODY)
        except RecursionError:
            value, self.too_deep = None, True
        if self.too_deep:
            raise _too_deep()
        return value


def is_deeper(value: object, depth: int) -> bool:
    """Whether JSON is nested deeper than this. It goes level by level, because recursion could overflow the stack."""
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    while level and depth:
        depth -= 1
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
    return bool(level)


def _too_deep() -> Denied:
    return Denied("too-deep", f"the body is nested more than {DEEPEST_BODY} levels deep")


def _digits(text: str | None) -> str:
    return text if text and text.isascii() and text.isdigit() and len(text) < 20 else "0"


def _too_large() -> Denied:
    return Denied("too-large", f"the body has more than {LARGEST_BODY:,} bytes; send less at a time")


# -- routes from verbs -------------------------------------------------------------------------------------------------

MODEL_OF_RETURN: dict[Any, Any] = {
    NoneType: None,
    bool: responses.Changed,
    Job: responses.Job,
    Job | None: responses.Job | None,
}
"""Response models for return types that are no records, or whose responses have more than the record."""

PAUSE_DOC = "How long; with neither, until it is opened or resumed."
KEYWORD = inspect.Parameter.KEYWORD_ONLY


def add_routes(router: APIRouter) -> None:
    """Add a route for every verb with an `http` line, unless the router has that route already."""
    handwritten = {
        f"{method} {route.path}"
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    for verb in VERBS:
        if verb.http and verb.http not in handwritten:
            _add_route(router, verb)


def _add_route(router: APIRouter, verb: Verb[..., Any]) -> None:
    body = _body_of(verb) if verb.body and verb.method != "GET" else None
    shown = _shown(verb.returns)
    adapter: TypeAdapter[Any] = TypeAdapter(shown)
    in_path = next(iter(re.findall(r"\{(\w+)", verb.path)), None)

    def endpoint(caller: Caller, request: Request, response: Response, **given: Any) -> Any:
        target = None if in_path is None else given.pop(in_path)
        if body is not None:
            model = given.pop("body")
            given = {one.name: getattr(model, one.name) for one in verb.body}
        else:
            # A query has no null: an empty text stands for None.
            given = {name: None if value == "" else value for name, value in given.items()}
        if verb.target is not None:
            given[verb.target.name] = target
        if verb.write:
            given["actor"] = caller.actor
        caller.check(verb, target)
        answer = caller.visible(caller.operations.call(verb, **given))
        if hasattr(answer, "next"):
            add_link(request, response, answer.next)
        return show(caller, adapter, answer)

    endpoint.__doc__ = verb.doc
    endpoint.__signature__ = _signature(verb, in_path, body, shown)  # type: ignore[attr-defined] # inspect reads it
    router.add_api_route(
        verb.path,
        endpoint,
        methods=[verb.method],
        status_code=verb.status,
        dependencies=needs(verb.scope),
        tags=[verb.noun],
        name=verb.title,
    )


def show(caller: Caller, adapter: TypeAdapter[Any], answer: object) -> Any:
    """The response for an answer: a job with its progress, a bool as `changed`, others as their records."""
    if isinstance(answer, bool):
        return responses.Changed(changed=answer)
    shown = adapter.validate_python(answer, from_attributes=True)
    if isinstance(answer, Job) and (progress := caller.operations.call(jobs.progress, answer.id)) is not None:
        shown.progress = responses.Progress.model_validate(progress)
    return shown


def _shown(returns: Any) -> Any:
    return MODEL_OF_RETURN[returns] if returns in MODEL_OF_RETURN else json_type(returns)


def _body_of(verb: Verb[..., Any]) -> type[BaseModel]:
    config = ConfigDict(extra="forbid", populate_by_name=True)
    if verb.examples is not None:
        config["json_schema_extra"] = {"examples": [dict(verb.examples)]}
    fields: dict[str, Any] = {one.name: (one.annotation, _default(one)) for one in verb.body}
    doc = PAUSE_DOC if "for_" in fields else None
    return create_model(verb.title.title().replace("_", ""), __config__=config, __doc__=doc, **fields)


def _default(one: Param) -> Any:
    default = ... if one.required else one.default
    return Field(default, alias=one.public) if one.public != one.name else default


def _signature(
    verb: Verb[..., Any], in_path: str | None, body: type[BaseModel] | None, shown: Any
) -> inspect.Signature:
    params = [
        inspect.Parameter("caller", KEYWORD, annotation=RequestCaller),
        inspect.Parameter("request", KEYWORD, annotation=Request),
        inspect.Parameter("response", KEYWORD, annotation=Response),
    ]
    if in_path is not None:
        params.append(inspect.Parameter(in_path, KEYWORD, annotation=str))
    if body is not None:
        usual = inspect.Parameter.empty if any(one.required for one in verb.body) else body()
        params.append(inspect.Parameter("body", KEYWORD, annotation=body, default=usual))
    elif verb.method == "GET":
        params += [_query(one) for one in verb.body]
    return inspect.Signature(params, return_annotation=shown)


def _query(one: Param) -> inspect.Parameter:
    plain, usual, info = get_args(one.annotation)[0], one.default, one.info
    if NoneType in get_args(plain):
        (plain,) = (part for part in get_args(plain) if part is not NoneType)
        plain, usual = plain if plain is str else plain | Literal[""], ""
    query = Query(description=info.description, examples=info.examples) if info else Query()
    query.metadata = info.metadata if info else []
    return inspect.Parameter(one.public, KEYWORD, annotation=Annotated[plain, query], default=usual)
