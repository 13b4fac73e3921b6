"""`jobs`: the list of jobs, everything about one job, its result and log, and recent failures."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypedDict

import typer

from leasehold.domain.checks.times import seconds
from leasehold.domain.errors import JobNotSucceeded, ResultMissing
from leasehold.domain.records import Filter
from leasehold.domain.search import Search
from leasehold.domain.states import State, checked_states
from leasehold.operations import budgets, questions
from leasehold.operations import jobs as verbs
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.command import CommandCall, command, noun
from leasehold.surfaces.cli.limits import LINES
from leasehold.surfaces.cli.render import draw, live
from leasehold.surfaces.cli.verbs import add, instant

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leasehold.domain.job import Job
    from leasehold.domain.questions import Question
    from leasehold.domain.records import (
        AttemptRecord,
        Criteria,
        HistoryEntry,
        Page,
        Relation,
        Relative,
        StepRecord,
        Summary,
    )
    from leasehold.domain.search import Failures, SearchPage
    from leasehold.domain.stream import UpdatePage
    from leasehold.operations.operations import Operations

LONGEST_VALUE = 2000
"""Characters of arguments and results that `jobs show` prints; --json prints all."""

MOST_STEPS = 50
"""Steps that `show` lists: the last ones."""

LONGEST_FAMILY = 20
"""Relatives that `show` lists; the others are counted."""

LONGEST_LOG = 8000
"""Characters of the log that `show` prints: the last ones."""

READ_JOBS_EVERY = 1.0
"""Seconds between two reads of --follow."""
PLAIN_QUEUE = "default"

jobs = noun("jobs")


@command(jobs, "list")
def list_jobs(
    call: CommandCall,
    state: options.States = None,
    queue: options.Queue = None,
    task: options.Task = None,
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
    limit: options.Limit = 50,
    cursor: Annotated[str | None, typer.Option(help="Older than this job.", metavar="ID")] = None,
    follow: options.Follow = False,
) -> None:
    """List jobs, newest first. With --follow, update the list as it changes; piped, print a line for each change."""
    criteria: Criteria = {"queue": queue, "task": task, "lane": lane, "group": group, "tag": tag}
    operations = call.operations
    before = None if cursor is None else operations.find_id(cursor)
    between = _between(since, until, operations.now)

    def look() -> SearchPage:
        filter = Filter(checked_states(state or ()), **criteria)
        return operations.search_jobs(Search(filter, text, **between), limit, before)

    if follow:
        _follow(look, operations.short_ids, call.as_json)
    page = look()
    call.show(page.jobs, _columns(page.jobs), empty=f"no matching jobs in {call.label}", ids=True)
    if page.next is not None and not call.as_json:
        found = "there are more" if text is None else f"searched {page.looked:,} jobs; to continue"
        render.note(f"{found}: --cursor {page.next}")


class Between(TypedDict):
    since: datetime | None
    until: datetime | None


def _between(since: str | None, until: str | None, now: Callable[[], datetime]) -> Between:
    """Parse both times: a duration ago, or an instant. `now` reads the database's clock, only for a duration."""
    return {
        "since": None if since is None else instant(since, "since", now, ago=True),
        "until": None if until is None else instant(until, "until", now, ago=True),
    }


def _columns(jobs: Sequence[Summary]) -> render.Columns[Summary]:
    """The columns of a list of jobs. A terminal has little room: it gets short forms, and no queue column if all
    jobs are in the default queue."""
    on_terminal = sys.stdout.isatty()
    columns: dict[str, str | Callable[[Summary], object]] = {
        "id": "id",
        "state": "state",
        "task": "task",
        "queue": "queue",
        "lane": "lane",
        "attempt": "attempt",
        "age" if on_terminal else "created": lambda job: (
            _age(job) if on_terminal else render.ago(job.created_at)
        ),
        "detail": _detail,
    }
    if on_terminal and all(job.queue == PLAIN_QUEUE for job in jobs):
        del columns["queue"]
    return columns


def _age(job: Summary) -> str:
    return render.ago(job.created_at).removesuffix(" ago")


def _detail(job: Summary) -> str:
    if job.state == "running":
        return f"{job.worker or 'no worker'}" + (
            f", {job.stop_requested} requested" if job.stop_requested else ""
        )
    if job.state == "queued" and job.attempt == 0:
        return ""
    return render.cut(job.error or job.reason, 60)


def _follow(look: Callable[[], Page | SearchPage], ids: render.Shorten, as_json: bool) -> NoReturn:
    """Show changes until Ctrl-C."""
    if sys.stdout.isatty() and not as_json:
        with live(render.console()) as show:
            while True:
                show(_draw(look().jobs, ids))
                time.sleep(READ_JOBS_EVERY)
    known: dict[str, tuple[str, int]] = {}
    while True:
        jobs = look().jobs
        for job in reversed(jobs):
            if known.get(job.id) != (job.state, job.attempt):
                _print_change(job, as_json)
        known = {job.id: (job.state, job.attempt) for job in jobs}
        time.sleep(READ_JOBS_EVERY)


def _draw(jobs: Sequence[Summary], ids: render.Shorten) -> RenderableType:
    columns = _columns(jobs)
    cells = [[render.clean(cell) for cell in row] for row in render.cells_of(jobs, columns, ids)]
    return draw(tuple(columns), cells, render.console().width)


def _print_change(job: Summary, as_json: bool) -> None:
    if as_json:
        render.emit(job)
    else:
        words = (f"{job.updated_at.astimezone():%H:%M:%S}", job.id, job.state, job.task, _detail(job))
        print(render.clean(" ".join(words).rstrip()), flush=True)


@command(jobs)
def show(call: CommandCall, job_id: options.JobId) -> None:
    """Show a job: state, arguments, result, error, attempts, log. Also its progress, steps, questions, relatives and
    history."""
    operations = call.operations
    job_id = operations.find_id(job_id)
    job = operations.call(verbs.get, job_id)
    attempts = operations.call(verbs.attempts, job_id)
    steps = operations.call(verbs.steps, job_id)
    history = operations.call(verbs.history, job_id)
    own_questions = operations.call(questions.questions, job_id)
    progress = operations.call(verbs.progress, job_id)
    logs = operations.call(verbs.logs, job_id)
    relatives = operations.call(verbs.relatives, job_id)
    counts = operations.call(verbs.count_relatives, job_id) if relatives else {}
    short = operations.short_ids([one.id for one in relatives])
    budget = operations.call(budgets.budget, job_id)
    job, missing = _with_result(operations, job)
    if call.as_json:
        more: dict[str, Any] = {
            "history": history,
            "questions": own_questions,
            "progress": progress,
            "logs": logs,
        }
        more |= {"attempts": attempts, "steps": steps, "relatives": relatives, "budget": budget}
        more["result"] = None if job.result is None else json.loads(job.result)
        render.emit(render.plain(job) | more | ({} if missing is None else {"result_missing": missing}))
        return
    render.fields(
        _facts(job, missing)
        | {"progress": None if progress is None else f"{progress}, {render.ago(progress.at)}"}
    )
    if relatives:
        print("\nrelatives")
        _show_relatives(relatives, counts, short)
    if budget:
        print("\nbudget")
        render.show(budget, LINES)
    if own_questions:
        print("\nquestions")
        render.show(own_questions, QUESTIONS, prose=QUESTION_PROSE)
    if attempts:
        print("\nattempts")
        render.show(attempts, ATTEMPTS)
    if steps:
        print("\nsteps")
        render.show(steps[-MOST_STEPS:], STEPS)
        if len(steps) > MOST_STEPS:
            render.note(f"{len(steps) - MOST_STEPS:,} earlier steps are left out; see --json")
    if history:
        print("\nhistory")
        render.show(history, HISTORY)
    for tail in logs[-1:]:
        print(f"\nlog of attempt {tail.attempt}")
        text = render.clean(tail).rstrip("\n")
        left = len(text) - LONGEST_LOG
        if left > 0:
            print(f"({left:,} more characters before this; see leasehold jobs logs {job_id})")
        print(text[-LONGEST_LOG:])


def _took(one: AttemptRecord) -> str | None:
    return None if one.ended_at is None else f"{(one.ended_at - one.started_at).total_seconds():.3f} s"


def _moved(entry: HistoryEntry) -> str:
    moved = entry.from_state != entry.to_state
    return f"{entry.from_state} → {entry.to_state}" if moved else entry.to_state


def _updates(seen: UpdatePage, _: Mapping[str, Any]) -> str:
    return "\n".join(f"{one.seq} {one.kind} {render.json_text(one.data)}" for one in seen.updates)


QUESTIONS: render.Columns[Question] = {
    "key": "key",
    "question": "text",
    "state": "status",
    "answer": lambda one: "(secret)" if one.secret else one.answer,
}
QUESTION_PROSE = ("question", "answer")
ATTEMPTS: render.Columns[AttemptRecord] = {
    "attempt": "attempt",
    "outcome": "outcome",
    "started": lambda one: render.moment(one.started_at),
    "took": _took,
    "worker": "worker",
    "error": lambda one: render.cut(one.error, 80),
}
STEPS: render.Columns[StepRecord] = {
    "step": "name",
    "attempt": "attempt",
    "stored": lambda one: render.moment(one.saved_at),
    "result": lambda one: render.cut(json.dumps(one.result, ensure_ascii=False), 60),
}
HISTORY: render.Columns[HistoryEntry] = {
    "at": lambda entry: render.moment(entry.at),
    "event": "event",
    "state": _moved,
    "attempt": "attempt",
    "by": "actor",
    "detail": lambda entry: render.cut(entry.detail, 80),
}
RELATIVES: render.Columns[Relative] = {
    "relation": lambda one: one.relation.replace("_", " "),
    "id": "id",
    "task": "task",
    "state": "state",
}


def _show_relatives(
    relatives: list[Relative], counts: Mapping[Relation, int], short: Mapping[str, str]
) -> None:
    """Print the first relatives of each relation, and count the others."""
    shown: dict[Relation, list[Relative]] = {}
    for one in relatives:
        shown.setdefault(one.relation, []).append(one)
    render.show(
        [one for found in shown.values() for one in found[:LONGEST_FAMILY]],
        RELATIVES,
        ids=lambda _: short,
    )
    for relation, count in counts.items():
        # The count is larger than the rows if jobs were pruned.
        if relation not in shown or len(shown[relation]) > LONGEST_FAMILY:
            more = count - min(LONGEST_FAMILY, len(shown.get(relation, ())))
            print(f"… and {more:,} more: {relation.replace('_', ' ')}")


def _with_result(operations: Operations, job: Job) -> tuple[Job, str | None]:
    """The job with its result, also from a file. If the file is missing: the job without it, and the problem."""
    try:
        return replace(job, result=operations.result_text(job)), None
    except ResultMissing as error:
        return job, str(error)


def _facts(job: Job, missing: str | None) -> dict[str, object]:
    """The facts that `show` prints, the most important first."""
    return {
        "id": job.id,
        "task": job.task,
        "state": job.state,
        "reason": job.reason,
        "queue": job.queue,
        "priority": job.priority,
        "lane": job.lane,
        "group": job.group,
        "tags": ", ".join(job.tags) or None,
        "unique key": job.unique_key,
        "attempts": f"{job.attempt} started, {job.failures} failed, {job.crashes} crashed",
        "created": _when(job.created_at),
        "due": _when(job.available_at) if job.state in ("pending", "queued") else None,
        "started": _when(job.started_at),
        "finished": _when(job.finished_at),
        "deadline": _when(job.deadline_at),
        "lease": _lease(job),
        "stop requested": job.stop_requested,
        "retry of": job.retry_of,
        "arguments": _pretty(job.args),
        "result": missing or _pretty(job.result),
        "result stored": job.result_ref,
        "error": job.error,
    }


def _lease(job: Job) -> str | None:
    if job.worker is None:
        return None
    when = render.ago(job.lease_expires_at)
    verb = "ran out" if when.endswith("ago") else "runs out"
    return f"{job.worker}, token {job.lease_token}, {verb} {when}"


def _when(when: datetime | None) -> str | None:
    return None if when is None else f"{render.clean(when)} ({render.ago(when)})"


def _pretty(text: str | None) -> str | None:
    if text is None:
        return None
    pretty = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    left = len(pretty) - LONGEST_VALUE
    return pretty if left <= 0 else f"{pretty[:LONGEST_VALUE]}…\n({left:,} more characters; see --json)"


@command(jobs)
def result(
    call: CommandCall,
    job_id: options.JobId,
    wait: Annotated[
        str | None, typer.Option(help="Wait up to this long for its end.", metavar="DURATION")
    ] = None,
) -> None:
    """Print a job's result as JSON. Exit code 1: it did not succeed; 5: it has not ended yet."""
    longest = 0.0 if wait is None else seconds(wait, "wait")
    job, text = call.operations.ended(call.operations.find_id(job_id), longest)
    if job.state is not State.SUCCEEDED:
        raise JobNotSucceeded(job.id, job.state.value, job.error or job.reason)
    text = text or "null"
    if call.as_json:
        render.emit({"id": job.id, "result": json.loads(text), "result_ref": job.result_ref})
    else:
        print(render.safe_json(text))


@command(jobs)
def logs(
    call: CommandCall,
    job_id: options.JobId,
    attempt: Annotated[
        int | None, typer.Option(help="Only this attempt. Default: all.", metavar="NUMBER")
    ] = None,
) -> None:
    """Print the log of a job, attempt by attempt."""
    found = call.operations.call(verbs.logs, call.operations.find_id(job_id))
    found = [tail for tail in found if attempt in (None, tail.attempt)]
    if call.as_json:
        render.emit(found)
        return
    for tail in found:
        if len(found) > 1:
            print(f"attempt {tail.attempt}")
        print(render.clean(tail).rstrip("\n"))
    if not found:
        render.note("nothing was logged")


@command(jobs, "failures")
def list_failures(
    call: CommandCall,
    queue: options.Queue = None,
    task: options.Task = None,
    lane: options.Lane = None,
    group: options.Group = None,
    tag: options.Tag = None,
    limit: Annotated[
        int, typer.Option(help="Read this many failed jobs, up to 10,000.", metavar="NUMBER")
    ] = 1000,
) -> None:
    """List recent failures by task and error, most frequent first. Errors that differ only in details count as one."""
    from leasehold.domain.records import Filter

    filter = Filter(queue=queue, task=task, lane=lane, group=group, tag=tag)
    found = call.operations.list_failures(limit, filter)
    call.show(
        found.groups,
        {
            "jobs": lambda one: f"{one.count:,}",
            "task": "task",
            "last": lambda one: render.ago(one.newest),
            "id": "sample_id",
            "error": lambda one: one.fingerprint or "(no error recorded)",
        },
        empty="nothing has failed",
        prose=("error",),
        ids=True,
    )
    if not call.as_json:
        _note_left_out(found)


def _note_left_out(found: Failures) -> None:
    if found.left_out:
        render.note(f"{found.left_out:,} more, no more frequent than these, are left out")
    if found.cut:
        render.note(f"these are from the newest {found.looked:,} failed jobs; --limit looks at more")


add(jobs, verbs.attempts, columns=ATTEMPTS)
add(jobs, verbs.steps, columns=STEPS)
add(jobs, verbs.history, columns=HISTORY)
add(jobs, verbs.relatives, columns=RELATIVES, ids=True)
add(jobs, questions.questions, columns=QUESTIONS, prose=QUESTION_PROSE)
add(jobs, budgets.budget, columns=LINES)
add(jobs, verbs.read_stream, _updates)
