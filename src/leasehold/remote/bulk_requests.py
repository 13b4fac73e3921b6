"""Bulk verbs, as requests: in pieces, so that none takes longer than a server, or a proxy, has patience for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from typing_extensions import Unpack

from leasehold.domain.bulk import SAMPLE, USUAL_LIMIT, BulkRequest
from leasehold.domain.checks.states import checked_states
from leasehold.domain.records import Filter
from leasehold.remote import decode
from leasehold.remote.exchange import LONGEST_WAIT, Ask, Talk, given
from leasehold.types import BulkRefusal, BulkReport, BulkVerb, Criteria, State

AT_ONCE = 1000
"""Jobs of one request."""


class BulkOptions(Criteria, total=False):
    """Which jobs, and how: the keywords of `api.bulk`'s verbs."""

    state: State | str | Iterable[State | str]
    everything: bool
    dry_run: bool
    limit: int
    cursor: str | None


def steering(
    verb: BulkVerb,
    *,
    state: State | str | Iterable[State | str] = (),
    everything: bool = False,
    dry_run: bool = False,
    limit: int = USUAL_LIMIT,
    cursor: str | None = None,
    reason: str | None = None,
    fresh: bool = False,
    **criteria: Unpack[Criteria],
) -> Talk[BulkReport]:
    """What is wrong with it is refused here, before anything is sent."""
    request = BulkRequest(
        verb=verb,
        filter=Filter(checked_states(state), **criteria),
        everything=everything,
        dry_run=dry_run,
        limit=limit,
        cursor=cursor,
        reason=reason,
        fresh=fresh,
    )
    return _in_pieces(request)


def _in_pieces(request: BulkRequest) -> Talk[BulkReport]:
    report = decode.bulk_report((yield _piece(request, request.limit, request.cursor)))
    while report.next is not None and report.matched < request.limit:
        left = request.limit - report.matched
        report = _together(report, decode.bulk_report((yield _piece(request, left, report.next))))
    return report


def _piece(request: BulkRequest, left: int, cursor: str | None) -> Ask:
    """Only a dry run may be sent twice: the second report of a verb would not tell what the first has done."""
    filter = request.filter
    body = given(
        verb=request.verb,
        states=[state.value for state in filter.states],
        queue=filter.queue,
        task=filter.task,
        lane=filter.lane,
        group=filter.group,
        tag=filter.tag,
        everything=request.everything,
        dry_run=request.dry_run,
        limit=min(left, AT_ONCE),
        cursor=cursor,
        reason=request.reason,
        fresh=request.fresh,
    )
    return Ask("POST", "/v1/jobs/bulk", body=body, wait=LONGEST_WAIT, repeat=request.dry_run)


def _together(one: BulkReport, two: BulkReport) -> BulkReport:
    """As if it had been one request."""
    refused = {(refusal.error, refusal.state): refusal for refusal in one.refused}
    for refusal in two.refused:
        key = refusal.error, refusal.state
        refused[key] = _added(refused[key], refusal) if key in refused else refusal
    return replace(
        two,
        matched=one.matched + two.matched,
        changed=one.changed + two.changed,
        moved_on=one.moved_on + two.moved_on,
        refused=tuple(sorted(refused.values(), key=lambda refusal: -refusal.jobs)),
        sample=(one.sample + two.sample)[:SAMPLE],
    )


def _added(one: BulkRefusal, two: BulkRefusal) -> BulkRefusal:
    return replace(one, jobs=one.jobs + two.jobs, sample=(one.sample + two.sample)[:SAMPLE])
