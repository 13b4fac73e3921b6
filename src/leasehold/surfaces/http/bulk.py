"""/v1/jobs/bulk: a verb on every job that matches."""

from __future__ import annotations

from typing import Any, cast

from fastapi import APIRouter

from leasehold.domain.bulk import BulkReport, BulkRequest, BulkVerb
from leasehold.domain.records import Filter
from leasehold.operations.json_records import as_models, model
from leasehold.surfaces.http import requests
from leasehold.surfaces.http.route import RequestCaller, needs


def add_to(router: APIRouter) -> None:
    @router.post(
        "/v1/jobs/bulk", dependencies=needs("operate"), tags=["jobs"], response_model=model(BulkReport)
    )
    def bulk(body: requests.Bulk, caller: RequestCaller) -> Any:
        """Steer every job that matches all filters, newest first, one by one; a dry run unless `dry_run` is
        false. Jobs that refuse are reported, and hold up none of the others."""
        if body.queue is None:
            caller.check_all_queues()
        else:
            caller.check_queue(body.queue)
        request = BulkRequest(
            verb=cast(BulkVerb, body.verb),
            filter=Filter(tuple(body.states), body.queue, body.task, body.lane, body.group, body.tag),
            everything=body.everything,
            dry_run=body.dry_run,
            limit=body.limit,
            cursor=body.cursor,
            actor=caller.actor,
            reason=body.reason,
            fresh=body.fresh,
        )
        return as_models(BulkReport, caller.operations.bulk(request))
