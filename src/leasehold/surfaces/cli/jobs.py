"""`jobs`, `show` and `why`: what there is, everything about one, and what holds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leasehold.domain.errors import ResultMissing
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.budgets import show_lines
from leasehold.surfaces.cli.follow import columns_of, follow_jobs
from leasehold.surfaces.cli.load import open_app
from leasehold.surfaces.cli.times import between_times

if TYPE_CHECKING:
    from datetime import datetime

    from leasehold.domain.job import Job
    from leasehold.domain.search import Found
    from leasehold.domain.views import AttemptRecord, Criteria, HistoryEntry, Relation, Relative
    from leasehold.operations.operations import Operations

LONGEST_VALUE = 2000
"""Characters of arguments and results that `show` prints; --json prints all."""

MOST_STEPS = 50
"""That `show` lists: the last ones."""

LONGEST_FAMILY = 20
"""Relatives that `show` lists; the others are counted."""

LONGEST_LOG = 8000
"""Characters of the log that `show` prints: its end."""


def add_to(cli: typer.Typer) -> None:
    cli.command("jobs")(list_jobs)
    cli.command()(show)
    cli.command()(result)
    cli.command()(why)


def list_jobs(
    state: options.States = None,
    queue: options.Queue = None,
    kind: options.Kind = None,
    lane: options.Lane = None,
    group: options.Group = None,
    tag: options.Tag = None,
    text: Annotated[
        str | None, typer.Option(help="With this text in the arguments or the error.", metavar="TEXT")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Created since: 2h (ago), or a time.", metavar="TIME")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Created before: 2h (ago), or a time.", metavar="TIME")
    ] = None,
    limit: Annotated[int, typer.Option(help="At most this many, up to 500.")] = 50,
    before: Annotated[str | None, typer.Option(help="Older than this job.", metavar="ID")] = None,
    follow: options.Follow = False,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List jobs, newest first. With --follow, update the list as it changes; piped, print a line for each change."""
    criteria: Criteria = {"queue": queue, "kind": kind, "lane": lane, "group": group, "tag": tag}
    with open_app(url, schema) as app:
        operations = app.__internals__.operations
        cursor = None if before is None else operations.find_id(before)
        between = between_times(since, until, operations.now)

        def look() -> Found:
            return app.search(
                text=text, state=tuple(state or ()), limit=limit, cursor=cursor, **between, **criteria
            )

        if follow:
            follow_jobs(look, operations.short_ids, as_json)
        page = look()
        render.show(
            page.jobs,
            columns_of(page.jobs),
            as_json=as_json,
            empty=f"no matching jobs in {app.__internals__.store.label}",
            ids=operations.short_ids,
        )
    if page.next is not None and not as_json:
        told = "there are more" if text is None else f"searched {page.looked:,} jobs; to continue"
        render.note(f"{told}: --before {page.next}")


def show(
    job_id: options.JobId,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Show a job: state, arguments, result, error, attempts, log. And its progress, steps, questions, relatives and
    history."""
    with open_app(url, schema) as app:
        operations = app.__internals__.operations
        job_id = operations.find_id(job_id)
        job = operations.get(job_id)
        attempts = operations.attempts(job_id)
        steps = operations.steps(job_id)
        history = operations.history(job_id)
        questions = operations.questions(job_id)
        progress = operations.progress(job_id)
        logs = operations.logs(job_id)
        relatives = operations.relatives(job_id)
        counts = operations.count_relatives(job_id) if relatives else {}
        short = operations.short_ids([one.id for one in relatives])
        budget = operations.budget(job_id)
        job, missing = _with_result(operations, job)
    if as_json:
        more: dict[str, Any] = {
            "history": history,
            "questions": questions,
            "progress": progress,
            "logs": logs,
        }
        more |= {"attempts": attempts, "steps": steps, "relatives": relatives, "budget": budget}
        render.emit(_all_of(job) | more | ({} if missing is None else {"result_missing": missing}))
        return
    render.fields(
        _told(job, missing)
        | {"progress": None if progress is None else f"{progress}, {render.ago(progress.at)}"}
    )
    if relatives:
        print("\nrelatives")
        _show_relatives(relatives, counts, short)
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
            prose=("question", "answer"),
        )
    if attempts:
        print("\nattempts")
        render.show(
            attempts,
            {
                "attempt": lambda one: one.number,
                "outcome": lambda one: one.outcome,
                "started": lambda one: render.moment(one.started_at),
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
                "stored": lambda one: render.moment(one.saved_at),
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
                "at": lambda entry: render.moment(entry.at),
                "event": lambda entry: entry.event,
                "state": _moved,
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


def result(
    job_id: options.JobId,
    wait: Annotated[
        str | None, typer.Option(help="Wait up to this long for its end.", metavar="DURATION")
    ] = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Print a job's result as JSON. Exit code 1: it did not succeed; 5: it has not ended yet."""
    from leasehold.domain.checks.durations import seconds

    longest = 0.0 if wait is None else seconds(wait, "wait")
    with open_app(url, schema) as app:
        operations = app.__internals__.operations
        job = app.get(operations.find_id(job_id))
        job.result(longest)
        text = operations.result_text(job.__row__) or "null"
    if as_json:
        render.emit({"id": job.id, "result": json.loads(text), "result_ref": job.result_ref})
    else:
        print(render.safe_json(text))


def _took(one: AttemptRecord) -> str | None:
    return None if one.ended_at is None else f"{(one.ended_at - one.started_at).total_seconds():.3f} s"


def _moved(entry: HistoryEntry) -> str:
    moved = entry.from_state != entry.to_state
    return f"{entry.from_state} → {entry.to_state}" if moved else entry.to_state


def _show_relatives(
    relatives: list[Relative], counts: Mapping[Relation, int], short: Mapping[str, str]
) -> None:
    """The first of each relation; the others are counted."""
    shown: dict[Relation, list[Relative]] = {}
    for one in relatives:
        shown.setdefault(one.relation, []).append(one)
    render.show(
        [one for found in shown.values() for one in found[:LONGEST_FAMILY]],
        {
            "relation": lambda one: one.relation.replace("_", " "),
            "id": lambda one: one.id,
            "task": lambda one: one.kind,
            "state": lambda one: one.state,
        },
        ids=lambda _: short,
    )
    for relation, count in counts.items():
        # Fewer than there are rows for: those have been pruned.
        if relation not in shown or len(shown[relation]) > LONGEST_FAMILY:
            more = count - min(LONGEST_FAMILY, len(shown.get(relation, ())))
            print(f"… and {more:,} more: {relation.replace('_', ' ')}")


def _all_of(job: Job) -> dict[str, Any]:
    values = {f.name: getattr(job, f.name) for f in fields(job)}
    for name in ("args", "result"):
        values[name] = None if values[name] is None else json.loads(values[name])
    return values


def _with_result(operations: Operations, job: Job) -> tuple[Job, str | None]:
    """With the result that is in a file, or what is wrong with that: it must not hide the rest."""
    try:
        return replace(job, result=operations.result_text(job)), None
    except ResultMissing as error:
        return job, str(error)


def _told(job: Job, missing: str | None) -> dict[str, object]:
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
        "result": missing or _pretty(job.result),
        "result file": job.result_ref,
        "error": job.error,
    }


def _lease(job: Job) -> str | None:
    if job.lease_owner is None:
        return None
    told = render.ago(job.lease_expires_at)
    verb = "ran out" if told.endswith("ago") else "runs out"
    return f"{job.lease_owner}, token {job.lease_token}, {verb} {told}"


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
    """Say why a job is not running, and what would change that."""
    with open_app(url, schema) as app:
        operations = app.__internals__.operations
        holds = operations.explain(operations.find_id(job_id))
    if as_json:
        render.emit(holds)
        return
    for number, hold in enumerate(holds, 1):
        _say(f"{number}. ", hold.detail)
        if hold.remedy:
            _say("   → ", hold.remedy)


def _say(begin: str, text: str) -> None:
    lines = render.wrapped(render.clean(text), len(begin))
    print(begin + f"\n{' ' * len(begin)}".join(lines))
