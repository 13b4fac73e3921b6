"""The page of one job: its facts, why it does not run, its timeline, and the verbs that its state allows."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Callable
from typing import Any

from leasehold.domain.errors import InvalidInput, LeaseholdError
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job
from leasehold.domain.states import FINAL, Flag, State, Trigger, allowed
from leasehold.domain.stream import PROGRESS, Update
from leasehold.operations import budgets, jobs, questions
from leasehold.operations.verb import Verb
from leasehold.surfaces.dashboard.page import DashboardPage, Done, action_of
from leasehold.surfaces.dashboard.page_request import Form, PageRequest
from leasehold.surfaces.dashboard.pages.jobs import arguments_in, inputs_of
from leasehold.surfaces.dashboard.render import Node, tree_of, tree_of_text
from leasehold.surfaces.dashboard.timeline import timeline

# -- a job as a command, a request and a call --------------------------------------------------------------------------
# Pure.

LONGEST_COPY = 20_000
"""Characters of arguments that the copies contain."""


@frozen
class Copies:
    cli: str
    curl: str
    python: str


def copies_of(job: Job, tenant: str | None, server: str) -> Copies:
    """Code that shows this job, or enqueues another with the same arguments. Hidden arguments stay hidden."""
    args = job.args if len(job.args) <= LONGEST_COPY else '{"…": "too long to be shown"}'
    of_tenant = "" if tenant is None else f" --tenant {shlex.quote(tenant)}"
    header = "" if tenant is None else f" -H {shlex.quote(f'Leasehold-Tenant: {tenant}')}"
    token = ' -H "Authorization: Bearer $LEASEHOLD_TOKEN"'
    body = json.dumps({"task": job.task, "args": json.loads(args)}, ensure_ascii=False)
    view = "app" if tenant is None else f"app.tenant({tenant!r})"
    return Copies(
        cli="\n".join(
            (
                f"leasehold jobs show {job.id}{of_tenant}",
                f"leasehold why {job.id}{of_tenant}",
                f"leasehold jobs enqueue MODULE:APP {shlex.quote(job.task)} {shlex.quote(args)}{of_tenant}",
            )
        ),
        curl="\n".join(
            (
                f"curl{token}{header} {server}/v1/jobs/{job.id}",
                f"curl{token}{header} -H 'Content-Type: application/json' \\",
                f"  -d {shlex.quote(body)} {server}/v1/jobs",
            )
        ),
        python="\n".join(
            (
                f"job = {view}.get({job.id!r})",
                "print(job.state, job.explain())",
                f"again = {view}.enqueue({job.task!r}, {json.loads(args)!r})",
            )
        ),
    )


# -- buttons for the verbs that a state allows -------------------------------------------------------------------------
# Pure.


@frozen
class Button:
    verb: Verb[..., Any]
    word: str
    sure: str
    about: str

    @property
    def name(self) -> str:
        return self.verb.word

    @property
    def look(self) -> str:
        return "danger" if self.verb.destructive else ""

    @property
    def inputs(self) -> list[dict[str, Any]]:
        return inputs_of(self.verb)


def _resumable(job: Job) -> bool:
    """Whether a resume is possible: for a running job, only to withdraw a requested pause."""
    return job.state is not State.RUNNING or job.stop_requested is Flag.PAUSE


_CHECKS: dict[str, Callable[[Job], bool]] = {
    "resume": _resumable,
    "release": lambda job: job.held,
    "skip": lambda job: job.halts_lane,
    "abandon": lambda job: job.orphan and job.execution_name is not None,
}

BUTTONS = (
    Button(jobs.resume, "Resume", "Resume it", "Continues the job. Steps that are stored are not run again."),
    Button(jobs.release, "Release", "Release it", "Lifts the hold it was enqueued with."),
    Button(jobs.skip, "Skip", "Skip it", "The job stays failed, and its lane continues."),
    Button(
        jobs.retry,
        "Retry as a new job",
        "Create the job",
        "Creates a new job like this one. This one stays as it is.",
    ),
    Button(jobs.snooze, "Snooze", "Snooze it", "Sets when the job is due. It keeps its place in its lane."),
    Button(jobs.pause, "Pause", "Pause it", "Stops the job as soon as possible. It can be resumed."),
    Button(jobs.cancel, "Cancel", "Cancel it", "Ends the job for good."),
    Button(
        jobs.abandon,
        "Abandon its execution",
        "Abandon it",
        "Only if its machine is gone for good. If the execution is still alive, the next attempt will run beside it.",
    ),
)


def buttons_of(job: Job) -> list[Button]:
    return [
        one
        for one in BUTTONS
        if (one.name == "abandon" or allowed(job.state, Trigger(one.name)))
        and (one.name not in _CHECKS or _CHECKS[one.name](job))
    ]


# -- job ---------------------------------------------------------------------------------------------------------------

MOST_UPDATES = 50
MOST_RELATIVES = 60
LONGEST_LOG = 20_000
LARGEST_RESULT = 1_000_000
"""Characters of a result that the page shows."""


def read(page_request: PageRequest) -> dict[str, Any]:
    requested = str(page_request.request.path_params["id"])
    operations = page_request.operations
    job = page_request.caller.job(operations.find_id(requested))
    now = operations.now()
    attempts, history = operations.call(jobs.attempts, job.id), operations.call(jobs.history, job.id)
    steps = operations.call(jobs.steps, job.id)
    verbs = buttons_of(job)
    family = operations.call(jobs.relatives, job.id, MOST_RELATIVES + 1)
    relatives = page_request.caller.visible_rows(family)
    updates = _updates(page_request, job.id)
    return {
        "job": job,
        "verbs": verbs,
        "editable": any(verb.name == "resume" for verb in verbs) and not job.policy.sensitive,
        "why": [] if job.state in FINAL else page_request.caller.explain(job.id),
        "progress": operations.call(jobs.progress, job.id),
        "timeline": timeline(job.created_at, job.finished_at or now, attempts, steps, history, updates),
        "attempts": attempts,
        "history": history,
        "steps": [(step, tree_of(step.result)) for step in steps[-100:]],
        "args": tree_of_text(job.args),
        "args_text": json.dumps(json.loads(job.args), indent=2, ensure_ascii=False),
        "result": _result(page_request, job),
        "log": _log(page_request, job.id),
        "log_attempts": [tail.attempt for tail in operations.call(jobs.logs, job.id)],
        "updates": [(update, tree_of(update.data)) for update in updates],
        "budget": operations.call(budgets.budget, job.id),
        "questions": operations.call(questions.questions, job.id),
        "relatives": relatives[:MOST_RELATIVES],
        "more_relatives": len(relatives) > MOST_RELATIVES,
        "copies": copies_of(job, page_request.caller.tenant, _server(page_request)),
    }


def _result(page_request: PageRequest, job: Job) -> Node | None:
    if job.state is not State.SUCCEEDED:
        return None
    try:
        text = page_request.operations.result_text(job)
    except LeaseholdError as error:
        return Node("cut", None, str(error))
    if text is not None and len(text) > LARGEST_RESULT:
        return Node("cut", None, f"{len(text):,} characters; read it with leasehold jobs result {job.id}")
    return tree_of_text(text)


def _log(page_request: PageRequest, job_id: str) -> dict[str, Any]:
    requested = page_request.request.query_params.get("attempt", "")
    attempt = int(requested) if requested.isdecimal() and len(requested) < 9 else 0
    tail = page_request.operations.call(jobs.read_log, job_id, attempt)
    cut = tail.cut + max(0, len(tail.text) - LONGEST_LOG)
    return {"attempt": tail.attempt, "text": tail.text[-LONGEST_LOG:], "cut": cut}


def _updates(page_request: PageRequest, job_id: str) -> list[Update]:
    """The newest updates, without progress, which the page shows elsewhere."""
    found: list[Update] = []
    since = 0
    for _ in range(10):
        seen = page_request.operations.call(jobs.read_stream, job_id, since, 500)
        found += [update for update in seen.updates if update.kind != PROGRESS]
        if len(seen.updates) < 500:
            break
        since = seen.updates[-1].seq
    return found[-MOST_UPDATES:]


def _server(page_request: PageRequest) -> str:
    """The address of the API, on the assumption that `leasehold serve` serves this page."""
    url = page_request.request.url
    return f"{url.scheme}://{url.netloc}"


def _act(button: Button, page_request: PageRequest, form: Form) -> Done:
    job = page_request.caller.job(form.text("id"))
    given = arguments_in(button.verb, form, page_request.operations.now)
    if button.name == "resume":
        given["args"] = _new_arguments(job, form)
    after = page_request.operations.call(button.verb, job.id, **given, actor=page_request.caller.actor)
    if button.name == "retry":
        return Done("Created a new job. This is it.", page_request.job(after.id))
    return Done(_notice(button.name, after))


def _new_arguments(job: Job, form: Form) -> dict[str, Any] | None:
    """The arguments from the form. None: they are unchanged. Raises InvalidInput if the page had hidden values."""
    if form.maybe("args") is None:
        return None
    given = form.json("args")
    if not isinstance(given, dict):
        raise InvalidInput("args", "is not an object", 'write names and values: {"day": 1}')
    if job.policy.sensitive:
        raise InvalidInput("args", "has hidden values", "resume it from a program that knows them")
    return None if given == json.loads(job.args) else given


def _notice(verb: str, after: Job) -> str:
    if after.state is State.RUNNING and verb in ("cancel", "pause"):
        return f"Stop requested ({verb}). Its worker will notice in a moment."
    if verb == "snooze":
        return f"The job is due at {after.available_at:%Y-%m-%d %H:%M:%S} UTC. Its place is kept."
    if verb == "skip":
        return "The lane continues."
    if verb == "resume" and after.state is State.RUNNING:
        return "The pause request was withdrawn."
    return f"The job is {after.state.value.replace('_', ' ')} now."


PAGE = DashboardPage("jobs/{id}", "jobs", "job.html", read)
ACTIONS = tuple(action_of(button.verb, functools.partial(_act, button)) for button in BUTTONS)
