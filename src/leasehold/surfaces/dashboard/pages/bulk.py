"""Bulk: a verb on every job that the filter finds. First what it would do, then a confirmation, then its progress."""

from __future__ import annotations

import time
from typing import Any, cast, get_args
from urllib.parse import parse_qsl, urlencode

from starlette.exceptions import HTTPException

from leasehold.domain.bulk import KEEP_REASON, MEANT_FOR, BulkRequest, BulkVerb
from leasehold.domain.errors import InvalidInput
from leasehold.surfaces.dashboard.action import Action, Done
from leasehold.surfaces.dashboard.bulk_runs import BulkRun, BulkRuns
from leasehold.surfaces.dashboard.forms import Form
from leasehold.surfaces.dashboard.page import Page
from leasehold.surfaces.dashboard.pages.asked import Asked, asked_in
from leasehold.surfaces.dashboard.pages.jobs import find
from leasehold.surfaces.dashboard.visit import Visit

COUNTED = 5_000
"""Jobs that a dry run counts: more would take longer than a page may."""
MOST = 1_000_000
MOST_RUNS = 10
DESTROYS = frozenset({"cancel", "interrupt"})


def read(visit: Visit) -> dict[str, Any]:
    visit.who.check_scope("operate")
    asked = asked_in(visit.given())
    verb = _verb(visit.request.query_params.get("verb", ""))
    report = visit.operations.bulk(_request(visit, verb, asked, dry_run=True, limit=COUNTED))
    summaries = [visit.operations.get(job_id) for job_id in report.sample[:10]]
    return {
        "verb": verb,
        "asked": asked,
        "about": _about(asked, verb),
        "report": report,
        "counted": COUNTED,
        "sample": summaries,
        "criteria": urlencode([("state", state) for state in asked.states] + list(asked.fields.items())),
        "destroys": verb in DESTROYS,
        "keeps_reason": verb in KEEP_REASON,
        "back": visit.url("jobs", **asked.query),
        "runs": visit.who.seen(_runs(visit).newest(visit.who.tenant))[:MOST_RUNS],
    }


def read_run(visit: Visit) -> dict[str, Any]:
    visit.who.check_scope("operate")
    run = _run(visit, str(visit.request.path_params["run"]))
    return {"run": run, "took": (run.ended or time.time()) - run.began}


def start(visit: Visit, form: Form) -> Done:
    asked = asked_in(parse_qsl(form.fields.get("criteria", ""), keep_blank_values=False))
    verb = _verb(form.text("verb"))
    expected = form.whole("matched")
    if verb in DESTROYS and form.fields.get("typed", "").strip().replace(",", "") != str(expected):
        raise InvalidInput("confirmation", "is not the number of jobs", f"type {expected} to {verb} them")
    request = _request(visit, verb, asked, reason=form.maybe("reason"), fresh=form.has("fresh"), limit=MOST)
    run = _runs(visit).start(
        visit.operations,
        request,
        tenant=visit.who.tenant,
        expected=expected,
        about=_about(asked, verb),
        back=visit.url("jobs", **asked.query),
    )
    return Done(f"{verb.capitalize()} has begun.", visit.url(f"bulk/{run.id}"))


def stop(visit: Visit, form: Form) -> Done:
    _run(visit, form.text("run")).stop.set()
    return Done("Stopping after the current batch.")


def _run(visit: Visit, run_id: str) -> BulkRun:
    """One that the visitor could have begun. Of others nobody learns whether they exist."""
    run = _runs(visit).get(run_id, visit.who.tenant)
    if run is None or not visit.who.seen([run]):
        raise HTTPException(404)
    return run


def _runs(visit: Visit) -> BulkRuns:
    found: BulkRuns = visit.request.app.state.bulk_runs
    return found


def _verb(text: str) -> BulkVerb:
    if text not in get_args(BulkVerb):
        raise InvalidInput(
            "verb", f"{text!r} is none for many jobs", f"known: {', '.join(get_args(BulkVerb))}"
        )
    return cast(BulkVerb, text)


def _request(
    visit: Visit,
    verb: BulkVerb,
    asked: Asked,
    *,
    limit: int,
    dry_run: bool = False,
    reason: str | None = None,
    fresh: bool = False,
) -> BulkRequest:
    search, _ = find(visit, asked, limit=1)  # what the list has found by
    if search.filter.queue is None:
        visit.who.check_all_queues()
    else:
        visit.who.check_queue(search.filter.queue)
    return BulkRequest(
        verb=verb,
        filter=search.filter,
        text=search.text,
        since=search.since,
        until=search.until,
        id_prefix=search.id_prefix,
        everything=asked.is_for_all,
        dry_run=dry_run,
        limit=limit,
        actor=visit.who.actor,
        reason=reason,
        fresh=fresh and verb == "resume",
    )


def _about(asked: Asked, verb: BulkVerb) -> str:
    states = asked.states or tuple(state.value for state in MEANT_FOR[verb])
    parts = [", ".join(state.replace("_", " ") for state in states)]
    words = {"q": "text", "kind": "task", "since": "created since", "until": "created until"}
    parts += [f"{words.get(name, name)} {value}" for name, value in asked.fields.items()]
    return " · ".join(parts)


PAGES = (
    Page("bulk", "jobs", "bulk.html", read, live=False),
    Page("bulk/{run}", "jobs", "bulk_run.html", read_run),
)
ACTIONS = (Action("bulk.start", "operate", start), Action("bulk.stop", "operate", stop))
