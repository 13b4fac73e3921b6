"""Routes from the table of verbs: the target in the path, other arguments in the body or, for a read, in the query.
Routes that are written by hand take precedence."""

from __future__ import annotations

import inspect
import re
from types import NoneType
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from leasehold.domain.job import Job
from leasehold.operations.json_records import json_type
from leasehold.operations.verb import VERBS, Param, Verb
from leasehold.surfaces.guard.callers import Caller
from leasehold.surfaces.http import responses
from leasehold.surfaces.http.paging import add_link
from leasehold.surfaces.http.route import RequestCaller, needs

SHOWN: dict[Any, Any] = {
    NoneType: None,
    bool: responses.Changed,
    Job: responses.Job,
    Job | None: responses.Job | None,
}
"""Responses for return types that are no records, or get more than the record."""

FOR_A_WHILE = "How long; with neither, until it is opened or resumed."
KEYWORD = inspect.Parameter.KEYWORD_ONLY


def add_routes(router: APIRouter) -> None:
    """Add a route for every verb with an HTTP line, unless a route for that line exists."""
    by_hand = {
        f"{method} {route.path}"
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    for verb in VERBS:
        if verb.http and verb.http not in by_hand:
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
    if isinstance(answer, Job) and (progress := caller.operations.progress(answer.id)) is not None:
        shown.progress = responses.Progress.model_validate(progress)
    return shown


def _shown(returns: Any) -> Any:
    return SHOWN[returns] if returns in SHOWN else json_type(returns)


def _body_of(verb: Verb[..., Any]) -> type[BaseModel]:
    config = ConfigDict(extra="forbid", populate_by_name=True)
    if verb.examples is not None:
        config["json_schema_extra"] = {"examples": [dict(verb.examples)]}
    fields: dict[str, Any] = {one.name: (one.annotation, _default(one)) for one in verb.body}
    doc = FOR_A_WHILE if "for_" in fields else None
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
