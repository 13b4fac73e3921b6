"""One job: its facts, why it does not run, its timeline, and the verbs that its state allows."""

from __future__ import annotations

import functools
import json
from typing import Any

from leasehold.domain.errors import InvalidInput, LeaseholdError
from leasehold.domain.job import Job as StoredJob
from leasehold.domain.states import FINAL, State
from leasehold.domain.stream import PROGRESS, Update
from leasehold.surfaces.dashboard.action import Done, of
from leasehold.surfaces.dashboard.copy_as import copies_of
from leasehold.surfaces.dashboard.forms import Form
from leasehold.surfaces.dashboard.job_verbs import BUTTONS, Button, buttons_of
from leasehold.surfaces.dashboard.json_tree import Node, tree_of, tree_of_text
from leasehold.surfaces.dashboard.page import Page
from leasehold.surfaces.dashboard.page_request import PageRequest
from leasehold.surfaces.dashboard.pages.filters import instant_of
from leasehold.surfaces.dashboard.timeline import timeline
from leasehold.types import Job

MOST_EVENTS = 50
MOST_RELATIVES = 60
LONGEST_LOG = 20_000
LARGEST_RESULT = 1_000_000
"""Characters of a result that the page shows."""


def read(page_request: PageRequest) -> dict[str, Any]:
    requested = str(page_request.request.path_params["id"])
    operations = page_request.operations
    job = page_request.caller.job(operations.find_id(requested))
    row = job.__row__
    now = operations.now()
    attempts, history, steps = job.attempts(), job.history(), job.steps()
    verbs = buttons_of(row)
    relatives = page_request.caller.visible_rows(operations.relatives(job.id, MOST_RELATIVES + 1))
    events = _events(page_request, job.id)
    return {
        "job": row,
        "verbs": verbs,
        "editable": any(verb.name == "resume" for verb in verbs) and not row.policy.sensitive,
        "why": [] if row.state in FINAL else page_request.caller.explain(job.id),
        "progress": job.progress(),
        "timeline": timeline(row.created_at, row.finished_at or now, attempts, steps, history, events),
        "attempts": attempts,
        "history": history,
        "steps": [(step, tree_of(step.result)) for step in steps[-100:]],
        "args": tree_of_text(row.args),
        "args_text": json.dumps(json.loads(row.args), indent=2, ensure_ascii=False),
        "result": _result(page_request, job),
        "log": _log(job, page_request.request.query_params.get("attempt")),
        "log_attempts": [tail.attempt for tail in operations.logs(job.id)],
        "events": [(event, tree_of(event.data)) for event in events],
        "budget": operations.budget(job.id),
        "questions": job.questions(),
        "relatives": relatives[:MOST_RELATIVES],
        "more_relatives": len(relatives) > MOST_RELATIVES,
        "copies": copies_of(row, page_request.caller.tenant, _server(page_request)),
    }


def _result(page_request: PageRequest, job: Job[Any]) -> Node | None:
    row = job.__row__
    if row.state is not State.SUCCEEDED:
        return None
    try:
        text = page_request.operations.result_text(row)
    except LeaseholdError as error:
        return Node("cut", None, str(error))
    if text is not None and len(text) > LARGEST_RESULT:
        return Node("cut", None, f"{len(text):,} characters; read it with leasehold jobs result {row.id}")
    return tree_of_text(text)


def _log(job: Job[Any], requested: str | None) -> dict[str, Any]:
    tail = job.log(int(requested) if requested and requested.isdecimal() and len(requested) < 9 else None)
    cut = tail.cut + max(0, len(tail.text) - LONGEST_LOG)
    return {"attempt": tail.attempt, "text": tail.text[-LONGEST_LOG:], "cut": cut}


def _events(page_request: PageRequest, job_id: str) -> list[Update]:
    """The newest updates, without progress, which the page shows elsewhere."""
    found: list[Update] = []
    since = 0
    for _ in range(10):
        seen = page_request.operations.read_stream(job_id, since, 500)
        found += [event for event in seen.updates if event.kind != PROGRESS]
        if len(seen.updates) < 500:
            break
        since = seen.updates[-1].seq
    return found[-MOST_EVENTS:]


def _server(page_request: PageRequest) -> str:
    """The address of the API, if it is served as by `leasehold serve`."""
    url = page_request.request.url
    return f"{url.scheme}://{url.netloc}"


def _act(button: Button, page_request: PageRequest, form: Form) -> Done:
    job = page_request.caller.job(form.text("id"))
    given: dict[str, Any] = {"actor": page_request.caller.actor}
    if button.takes("reason"):
        given["reason"] = form.maybe("reason")
    if button.takes("fresh"):
        given["fresh"] = form.has("fresh")
        given["args"] = _new_arguments(job, form)
    if button.takes("until"):
        now = page_request.operations.now()
        given["until"] = instant_of(form.text("until").strip(), "until", now, ahead=True)
    after = page_request.operations.call(button.verb, job.id, **given)
    if button.name == "retry":
        return Done("Created a new job. This is it.", page_request.job(after.id))
    return Done(_notice(button.name, after))


def _new_arguments(job: Job[Any], form: Form) -> dict[str, Any] | None:
    """The arguments from the form. None: they are unchanged. Raises InvalidInput if the page had hidden values."""
    if form.maybe("args") is None:
        return None
    given = form.json("args")
    if not isinstance(given, dict):
        raise InvalidInput("args", "is not an object", 'write names and values: {"day": 1}')
    if job.__row__.policy.sensitive:
        raise InvalidInput("args", "has hidden values", "resume it from a program that knows them")
    return None if given == job.args else given


def _notice(verb: str, after: StoredJob) -> str:
    if after.state is State.RUNNING and verb in ("cancel", "pause", "interrupt"):
        return f"Stop requested ({verb}). Its worker will notice in a moment."
    if verb == "snooze":
        return f"The job is due at {after.available_at:%Y-%m-%d %H:%M:%S} UTC. Its place is kept."
    if verb == "skip":
        return "The lane continues."
    if verb == "resume" and after.state is State.RUNNING:
        return "The pause request was withdrawn."
    return f"The job is {after.state.value.replace('_', ' ')} now."


PAGE = Page("jobs/{id}", "jobs", "job.html", read)
ACTIONS = tuple(of(button.verb, functools.partial(_act, button)) for button in BUTTONS)
