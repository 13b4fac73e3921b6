"""/v1/jobs/bulk: a verb on every job that matches."""

from __future__ import annotations

import re
from typing import cast

from fastapi import APIRouter

from leasehold.domain.bulk import BulkRefusal, BulkRequest, BulkVerb
from leasehold.domain.records import Filter
from leasehold.surfaces.http import list_responses, requests
from leasehold.surfaces.http.route import RequestCaller, needs


def add_to(router: APIRouter) -> None:
    @router.post("/v1/jobs/bulk", dependencies=needs("operate"), tags=["jobs"])
    def bulk(body: requests.Bulk, caller: RequestCaller) -> list_responses.BulkReport:
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
            snooze_until=body.until,
        )
        report = caller.operations.bulk(request)
        return list_responses.BulkReport(
            verb=report.verb,
            dry_run=report.dry_run,
            matched=report.matched,
            changed=report.changed,
            moved_on=report.moved_on,
            refused=[_refusal(one) for one in report.refused],
            sample=list(report.sample),
            next=report.next,
        )


def _refusal(one: BulkRefusal) -> list_responses.BulkRefusal:
    """Codes are spelt as those of problems are."""
    code = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", one.error).lower()
    return list_responses.BulkRefusal(
        code=code, state=one.state, detail=one.detail, jobs=one.jobs, sample=list(one.sample)
    )
