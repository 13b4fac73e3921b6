"""`jobs`, `show` and `why`: what there is, everything about one, and what holds it."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.budgets import show_lines
from leasehold.surfaces.cli.load import open_app

if TYPE_CHECKING:
    from datetime import datetime

    from leasehold.domain.job import Job
    from leasehold.domain.views import AttemptRecord, Summary

LONGEST_VALUE = 2000
"""Characters of arguments and results that `show` prints; --json prints all."""

MOST_STEPS = 50
"""That `show` lists: the last ones."""

LONGEST_LOG = 8000
"""Characters of the log that `show` prints: its end."""


def add_to(cli: typer.Typer) -> None:
    cli.command("jobs")(list_jobs)
    cli.command()(show)
    cli.command()(why)


def list_jobs(
    state: options.States = None,
    queue: options.Queue = None,
    kind: options.Kind = None,
    lane: options.Lane = None,
    group: options.Group = None,
    tag: options.Tag = None,
    limit: Annotated[int, typer.Option(help="At most this many, up to 500.")] = 50,
    before: Annotated[str | None, typer.Option(help="Older than this job.", metavar="ID")] = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List jobs, newest first. With --json one object a line."""
    with open_app(url, schema) as app:
        page = app.jobs(
            state=tuple(state or ()),
            queue=queue,
            kind=kind,
            lane=lane,
            group=group,
            tag=tag,
            limit=limit,
            before=before,
        )
        render.show(
            page.jobs,
            {
                "id": lambda job: job.id,
                "state": lambda job: job.state,
                "task": lambda job: job.kind,
                "queue": lambda job: job.queue,
                "lane": lambda job: job.lane,
                "attempt": lambda job: job.attempt,
                "created": lambda job: render.ago(job.created_at),
                "what": _what,
            },
            as_json=as_json,
            empty=f"no such jobs in {app.__internals__.store.label}",
        )
    if page.next is not None and not as_json:
        render.note(f"there are more: --before {page.next}")


def _what(job: Summary) -> str:
    if job.state == "running":
        return f"{job.lease_owner or 'an orphan'}" + (
            f", {job.stop_requested} asked" if job.stop_requested else ""
        )
    if job.state == "queued" and job.attempt == 0:
        return ""
    return render.cut(job.error or job.reason, 60)


def show(
    job_id: options.JobId,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Show everything about a job: facts, arguments, result, error, progress, attempts, steps, history, log."""
    with open_app(url, schema) as app:
        operations = app.__internals__.operations
        job = operations.get(job_id)
        attempts = operations.attempts(job_id)
        steps = operations.steps(job_id)
        history = operations.history(job_id)
        questions = operations.questions(job_id)
        progress = operations.progress(job_id)
        logs = operations.logs(job_id)
        relatives = operations.relatives(job_id)
        budget = operations.budget(job_id)
    if as_json:
        more: dict[str, Any] = {
            "history": history,
            "questions": questions,
            "progress": progress,
            "logs": logs,
        }
        more |= {"attempts": attempts, "steps": steps, "relatives": relatives, "budget": budget}
        render.emit(_all_of(job) | more)
        return
    render.fields(
        _told(job) | {"progress": None if progress is None else f"{progress}, {render.ago(progress.at)}"}
    )
    if relatives:
        print("\nrelatives")
        render.show(
            relatives,
            {
                "relation": lambda one: one.relation.replace("_", " "),
                "id": lambda one: one.id,
                "task": lambda one: one.kind,
                "state": lambda one: one.state,
            },
        )
    if budget:
        print("\nbudget")
        show_lines(budget)
    if questions:
        print("\nquestions")
        render.show(
            questions,
            {
                "key": lambda asked: asked.key,
                "question": lambda asked: asked.text,
                "state": lambda asked: asked.status,
                "answer": lambda asked: "(secret)" if asked.secret else asked.answer,
            },
        )
    if attempts:
        print("\nattempts")
        render.show(
            attempts,
            {
                "attempt": lambda one: one.number,
                "outcome": lambda one: one.outcome,
                "started": lambda one: one.started_at,
                "took": _took,
                "worker": lambda one: one.owner,
                "error": lambda one: render.cut(one.error, 80),
            },
        )
    if steps:
        print("\nsteps")
        render.show(
            steps[-MOST_STEPS:],
            {
                "step": lambda one: one.name,
                "attempt": lambda one: one.attempt,
                "stored": lambda one: one.saved_at,
                "result": lambda one: render.cut(json.dumps(one.result, ensure_ascii=False), 60),
            },
        )
        if len(steps) > MOST_STEPS:
            render.note(f"{len(steps) - MOST_STEPS:,} earlier steps are left out; see --json")
    if history:
        print("\nhistory")
        render.show(
            history,
            {
                "at": lambda entry: entry.at,
                "event": lambda entry: entry.event,
                "from": lambda entry: entry.from_state,
                "to": lambda entry: entry.to_state,
                "attempt": lambda entry: entry.attempt,
                "by": lambda entry: entry.actor,
                "detail": lambda entry: render.cut(entry.detail, 80),
            },
        )

    for tail in logs[-1:]:
        print(f"\nlog of attempt {tail.attempt}")
        text = render.clean(tail).rstrip("\n")
        left = len(text) - LONGEST_LOG
        print(
            text
            if left <= 0
            else f"({left:,} more characters before this; see --json)\n{text[-LONGEST_LOG:]}"
        )


def _took(one: AttemptRecord) -> str | None:
    return None if one.ended_at is None else f"{(one.ended_at - one.started_at).total_seconds():.3f} s"


def _all_of(job: Job) -> dict[str, Any]:
    values = {f.name: getattr(job, f.name) for f in fields(job)}
    for name in ("args", "result"):
        values[name] = None if values[name] is None else json.loads(values[name])
    return values


def _told(job: Job) -> dict[str, object]:
    """What a person wants to know first, first."""
    return {
        "id": job.id,
        "task": job.kind,
        "state": job.state,
        "reason": job.reason,
        "queue": job.queue,
        "priority": job.priority,
        "lane": job.lane,
        "group": job.group_name,
        "tags": ", ".join(job.tags) or None,
        "unique key": job.unique_key,
        "attempts": f"{job.attempt} started, {job.failures} failed, {job.crashes} crashed",
        "created": _when(job.created_at),
        "due": _when(job.available_at) if job.state in ("pending", "queued") else None,
        "started": _when(job.started_at),
        "finished": _when(job.finished_at),
        "deadline": _when(job.deadline_at),
        "lease": _lease(job),
        "stop asked": job.stop_requested,
        "retry of": job.retry_of,
        "arguments": _pretty(job.args),
        "result": _pretty(job.result),
        "error": job.error,
    }


def _lease(job: Job) -> str | None:
    if job.lease_owner is None:
        return None
    runs_out = render.ago(job.lease_expires_at)
    return f"{job.lease_owner}, token {job.lease_token}, runs out {runs_out}"


def _when(when: datetime | None) -> str | None:
    return None if when is None else f"{render.clean(when)} ({render.ago(when)})"


def _pretty(text: str | None) -> str | None:
    if text is None:
        return None
    pretty = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    left = len(pretty) - LONGEST_VALUE
    return pretty if left <= 0 else f"{pretty[:LONGEST_VALUE]}…\n({left:,} more characters; see --json)"


def why(
    job_id: options.JobId,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Say why a job is not running, in order, and what would change that."""
    with open_app(url, schema) as app:
        holds = app.__internals__.operations.explain(job_id)
    if as_json:
        render.emit(holds)
        return
    for number, hold in enumerate(holds, 1):
        print(f"{number}. {render.clean(hold.detail)}")
        if hold.remedy:
            print(f"   → {render.clean(hold.remedy)}")
