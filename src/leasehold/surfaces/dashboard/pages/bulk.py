"""Bulk pages: a verb on every job that the filter finds, in a thread of this server."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.exceptions import HTTPException

from leasehold.domain.bulk import BulkRequest, BulkTally
from leasehold.domain.errors import InvalidInput, LeaseholdError
from leasehold.domain.job import Job
from leasehold.domain.states import State
from leasehold.operations import jobs
from leasehold.operations.bulk import bulk_verbs
from leasehold.operations.operations import Operations
from leasehold.operations.verb import Verb
from leasehold.surfaces.dashboard.page import Action, DashboardPage, Done, describe
from leasehold.surfaces.dashboard.page_request import Form, PageRequest
from leasehold.surfaces.dashboard.pages.jobs import JobFilter, arguments_in, filter_in, find, inputs_of

# -- bulk verbs under way ----------------------------------------------------------------------------------------------
# Bulk runs are kept in memory. A server that stops leaves the remaining jobs unchanged; the audit shows the changes.

JOBS_A_PART = 500
"""Jobs that are changed between two checks for a stop."""
RUNS_AT_ONCE = 4
RUNS_KEPT = 50


@dataclass
class BulkRun:
    """One bulk verb and its progress. Only its own thread writes here."""

    id: str
    request: BulkRequest
    tenant: str | None
    expected: int
    """The number of jobs that the dry run found."""
    about: str
    """The filter, in words."""
    back: str
    """The address of the page that started it."""
    began: float = field(default_factory=time.time)
    ended: float | None = None
    problem: str = ""
    """The reason why it ended early."""
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.tally = BulkTally(self.request)

    @property
    def queue(self) -> str | None:
        """The queue of its jobs. None: any queue."""
        return self.request.filter.queue

    @property
    def effect(self) -> str:
        return effect_of(self.request.verb, self.request.filter.states)

    @property
    def done(self) -> int:
        """Jobs whose outcome is known."""
        refused = sum(one.jobs for one in self.tally.refused.values())
        return self.tally.changed + self.tally.moved_on + refused

    def watch(self, job_id: str, outcome: Job | LeaseholdError) -> None:
        if isinstance(outcome, Job):
            self.tally.changed += 1

    def go(self, operations: Operations) -> None:
        try:
            self._go(operations)
        except Exception as error:
            _, self.problem = describe(error)
        finally:
            self.ended = time.time()

    def _go(self, operations: Operations) -> None:
        request, left = self.request, self.request.limit
        while not self.stop.is_set():
            report = operations.bulk(replace(request, limit=min(JOBS_A_PART, left)), self.watch)
            self.tally.add(replace(report, changed=0))  # `watch` has counted them
            left -= report.matched
            if report.next is None or left <= 0:
                return
            request = replace(request, cursor=report.next)
        self.problem = "Stopped by hand. The remaining jobs were not changed."


class BulkRuns:
    """The bulk verbs of one server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, BulkRun] = {}

    def start(
        self,
        operations: Operations,
        request: BulkRequest,
        *,
        tenant: str | None,
        expected: int,
        about: str,
        back: str,
    ) -> BulkRun:
        """Start a bulk verb in a thread. Raises InvalidInput if too many are in progress."""
        run = BulkRun(secrets.token_urlsafe(12), request, tenant, expected, about, back)
        with self._lock:
            under_way = [one for one in self._runs.values() if one.ended is None]
            if len(under_way) >= RUNS_AT_ONCE:
                raise InvalidInput(
                    "bulk", f"{RUNS_AT_ONCE} are in progress already", "wait for one of them, or stop it"
                )
            ended = [one.id for one in self._runs.values() if one.ended is not None]
            for old in ended[: max(0, len(ended) - RUNS_KEPT)]:
                del self._runs[old]
            self._runs[run.id] = run
        threading.Thread(target=run.go, args=(operations,), name="leasehold bulk", daemon=True).start()
        return run

    def get(self, run_id: str, tenant: str | None) -> BulkRun | None:
        with self._lock:
            run = self._runs.get(run_id)
        return run if run is not None and run.tenant == tenant else None

    def newest(self, tenant: str | None) -> list[BulkRun]:
        with self._lock:
            return [run for run in reversed(self._runs.values()) if run.tenant == tenant]


# -- bulk --------------------------------------------------------------------------------------------------------------

COUNTED = 5_000
"""Jobs that a dry run counts. More would take too long for a page."""
MOST_IN_BULK_RUN = 1_000_000
MOST_RUNS = 10


def read(page_request: PageRequest) -> dict[str, Any]:
    page_request.caller.check_scope("operate")
    requested = filter_in(page_request.given())
    verb = _verb(page_request.request.query_params.get("verb", ""))
    report = page_request.operations.bulk(
        _request(page_request, verb, requested, dry_run=True, limit=COUNTED)
    )
    summaries = [page_request.operations.call(jobs.get, job_id) for job_id in report.sample[:10]]
    return {
        "verb": verb.word,
        "effect": effect_of(verb.word, tuple(State(state) for state in requested.states)),
        "requested": requested,
        "about": _about(requested, verb),
        "report": report,
        "counted": COUNTED,
        "sample": summaries,
        "criteria": urlencode(
            [("state", state) for state in requested.states] + list(requested.fields.items())
        ),
        "destroys": verb.destructive,
        "inputs": inputs_of(verb),
        "back": page_request.url("jobs", **requested.query),
        "runs": page_request.caller.visible_rows(_runs(page_request).newest(page_request.caller.tenant))[
            :MOST_RUNS
        ],
    }


def effect_of(verb: str, states: tuple[State, ...]) -> str:
    """What the verb will do to jobs of these states (of all, if there are none), for people."""
    if verb != "interrupt":
        return verb
    states = states or bulk_verbs()[verb].bulk
    if State.RUNNING not in states:
        return "cancel"
    return "pause" if set(states) == {State.RUNNING} else "pause or cancel"


def read_run(page_request: PageRequest) -> dict[str, Any]:
    page_request.caller.check_scope("operate")
    run = _run(page_request, str(page_request.request.path_params["run"]))
    return {"run": run, "took": (run.ended or time.time()) - run.began}


def start(page_request: PageRequest, form: Form) -> Done:
    requested = filter_in(parse_qsl(form.fields.get("criteria", ""), keep_blank_values=False))
    verb = _verb(form.text("verb"))
    expected = form.whole("matched")
    if verb.destructive and form.fields.get("typed", "").strip().replace(",", "") != str(expected):
        raise InvalidInput(
            "confirmation", "is not the number of jobs", f"type {expected} to {verb.word} them"
        )
    own = arguments_in(verb, form, page_request.operations.now)
    request = _request(page_request, verb, requested, own=own, limit=MOST_IN_BULK_RUN)
    run = _runs(page_request).start(
        page_request.operations,
        request,
        tenant=page_request.caller.tenant,
        expected=expected,
        about=_about(requested, verb),
        back=page_request.url("jobs", **requested.query),
    )
    return Done(f"{run.effect.capitalize()} has begun.", page_request.url(f"bulk/{run.id}"))


def stop(page_request: PageRequest, form: Form) -> Done:
    _run(page_request, form.text("run")).stop.set()
    return Done("Stopping after the current batch.")


def _run(page_request: PageRequest, run_id: str) -> BulkRun:
    """The bulk run. Raises 404 also for a run of a tenant or queue that the caller may not see: it must not learn
    whether the run exists."""
    run = _runs(page_request).get(run_id, page_request.caller.tenant)
    if run is None or not page_request.caller.visible_rows([run]):
        raise HTTPException(404)
    return run


def _runs(page_request: PageRequest) -> BulkRuns:
    found: BulkRuns = page_request.request.app.state.bulk_runs
    return found


def _verb(text: str) -> Verb[..., Job]:
    known = bulk_verbs()
    if text not in known:
        raise InvalidInput("verb", f"{text!r} is no bulk verb", f"use one of {', '.join(known)}")
    return known[text]


def _request(
    page_request: PageRequest,
    verb: Verb[..., Job],
    requested: JobFilter,
    *,
    limit: int,
    dry_run: bool = False,
    own: Mapping[str, object] | None = None,
) -> BulkRequest:
    search, _ = find(page_request, requested, limit=1)  # the same search as the list
    if search.filter.queue is None:
        page_request.caller.check_all_queues()
    else:
        page_request.caller.check_queue(search.filter.queue)
    return BulkRequest(
        verb=verb.word,
        filter=search.filter,
        text=search.text,
        since=search.since,
        until=search.until,
        id_prefix=search.id_prefix,
        everything=requested.is_for_all,
        dry_run=dry_run,
        limit=limit,
        actor=page_request.caller.actor,
        own=own or {},
    )


def _about(requested: JobFilter, verb: Verb[..., Job]) -> str:
    states = requested.states or tuple(state.value for state in verb.bulk)
    parts = [", ".join(state.replace("_", " ") for state in states)]
    words = {"q": "text", "task": "task", "since": "created since", "until": "created until"}
    parts += [f"{words.get(name, name)} {value}" for name, value in requested.fields.items()]
    return " · ".join(parts)


PAGES = (
    DashboardPage("bulk", "jobs", "bulk.html", read, live=False),
    DashboardPage("bulk/{run}", "jobs", "bulk_run.html", read_run),
)
ACTIONS = (Action("bulk.start", "operate", start), Action("bulk.stop", "operate", stop))
