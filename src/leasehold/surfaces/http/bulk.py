"""/v1/jobs/bulk: applies a verb to every matching job."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, create_model

from leasehold.domain.bulk import BulkReport, BulkRequest
from leasehold.domain.records import Filter
from leasehold.operations.json_records import as_models, model
from leasehold.operations.verb import VERBS
from leasehold.surfaces.http import requests
from leasehold.surfaces.http.route import RequestCaller, needs


def add_to(router: APIRouter) -> None:
    def bulk(body: Any, caller: RequestCaller) -> Any:
        """Apply a verb to every job that matches all filters, newest first, one by one; a dry run unless `dry_run` is
        false. Jobs that refuse are reported, and do not stop the others."""
        if body.queue is None:
            caller.check_all_queues()
        else:
            caller.check_queue(body.queue)
        request = BulkRequest(
            verb=body.verb,
            filter=Filter(tuple(body.states), body.queue, body.task, body.lane, body.group, body.tag),
            everything=body.everything,
            dry_run=body.dry_run,
            limit=body.limit,
            cursor=body.cursor,
            actor=caller.actor,
            own={
                name: getattr(body, name)
                for name in body.model_fields_set - requests.Bulk.model_fields.keys()
            },
        )
        return as_models(BulkReport, caller.operations.bulk(request))

    bulk.__annotations__["body"] = _body()
    router.post(
        "/v1/jobs/bulk", dependencies=needs("operate"), tags=["jobs"], response_model=model(BulkReport)
    )(bulk)


def _body() -> type[BaseModel]:
    """The model of the body: the filters, and the arguments of every bulk verb."""
    own: dict[str, Any] = {
        one.name: (one.annotation | None, None) for verb in VERBS if verb.bulk for one in verb.body
    }
    return create_model("Bulk", __base__=requests.Bulk, **own)
