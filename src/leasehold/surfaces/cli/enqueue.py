"""`jobs enqueue|run-now|run-by-id`: the verbs of jobs that need the app's tasks."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leasehold.domain.checks.durations import seconds
from leasehold.domain.errors import InvalidInput
from leasehold.domain.run_by_id import NotRun
from leasehold.domain.states import State
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.command import Call, command
from leasehold.surfaces.cli.jobs import jobs
from leasehold.surfaces.cli.load import app_and_name
from leasehold.surfaces.cli.logs import set_up_logging
from leasehold.surfaces.cli.problems import Exit, complain
from leasehold.surfaces.cli.verbs import json_object

if TYPE_CHECKING:
    from leasehold.app import Leasehold
    from leasehold.types import CallOptions, Job, RunResult

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="[MODULE:APP] TASK [JSON]",
        help="The app (or LEASEHOLD_APP), the task's name, its arguments as a JSON object ('-': from stdin).",
    ),
]


@command(jobs, store=False)
def enqueue(
    call: Call,
    words: Words,
    delay: Annotated[
        str, typer.Option(help="Do not start it before this long from now.", metavar="DURATION")
    ] = "0",
    priority: Annotated[
        str | None, typer.Option(help="-100 to 100, high, medium or low.", metavar="PRIORITY")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="A queue other than the task's.", metavar="NAME")] = None,
    lane: Annotated[str | None, typer.Option(help="Run it in this lane.", metavar="NAME")] = None,
    group: Annotated[str | None, typer.Option(help="Make it a member of this group.", metavar="NAME")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag it; may be repeated.", metavar="NAME")] = None,
    hold: Annotated[bool, typer.Option("--hold", help="Keep it pending until it is released.")] = False,
    unique: Annotated[str | None, typer.Option(help="Its unique key.", metavar="KEY")] = None,
    wait: options.Wait = None,
) -> None:
    """Store a job and print its id. With --wait, wait for it and print its result. Exit code 1: it did not succeed;
    5: it has not ended yet."""
    name, task, text = _split(words, "enqueue")
    given = {"queue": queue, "lane": lane, "group": group, "unique": unique, "tags": tuple(tag or ()) or None}
    settings: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if priority is not None:
        settings["priority"] = _number(priority)
    longest = None if wait is None else seconds(wait, "wait")
    app = call.load(name)
    job = app.enqueue(task, json_object(text, "JSON"), delay=delay, hold=hold, **settings)
    _print_job(call, app, job, longest)


@command(jobs, "run-now", store=False)
def run_now(
    call: Call,
    words: Words,
    max_running: Annotated[
        int | None, typer.Option(help="A limit other than the task's.", metavar="NUMBER")
    ] = None,
    wait: options.Wait = None,
) -> None:
    """Run a job in this process at once, or be refused. Exit code 4: the task already runs --max-running times.
    Prints the job's id, or with --wait its result, and exits when the job has ended; Ctrl-C stops it."""
    set_up_logging("warning", as_json=False)
    name, task, text = _split(words, "run-now")
    longest = None if wait is None else seconds(wait, "wait")
    settings: CallOptions = {} if max_running is None else {"max_running": max_running}
    app = call.load(name)
    job = app.__internals__.named_task(task, settings).run_now(**json_object(text, "JSON"))
    _print_job(call, app, job, longest)


def _print_job(call: Call, app: Leasehold, job: Job[Any], longest: float | None) -> None:
    """Print a new job's id, or with `longest` seconds to wait its result."""
    render.note(f"store: {app.__internals__.store.label}")
    if longest is None:
        call.report({"id": job.id, "created": job.created}, job.id)
        if not job.created and not call.as_json:
            render.note("not a new job: this one already holds the unique key")
        sys.stdout.flush()  # the job may run long in this process
        return
    render.note(f"job {job.id}")
    job.result(longest)
    result = app.__internals__.operations.result_text(job.__row__)
    found = None if result is None else json.loads(result)
    facts = {"id": job.id, "created": job.created, "state": job.state, "result": found}
    call.report(facts, "null" if result is None else render.safe_json(result))


def _split(words: list[str], command: str) -> tuple[str, str, str]:
    """Split [MODULE:APP] TASK [JSON]. The JSON is an object, so it begins with a brace, which no name does."""
    *names, last = words
    arguments = "{}"
    if last == "-" or last.lstrip().startswith("{"):
        arguments = last
    else:
        names.append(last)
    usage = InvalidInput(command, "needs MODULE:APP TASK [JSON]", "such as: tasks:app add '{\"a\": 1}'")
    return *app_and_name(names, usage), arguments


def _number(priority: str) -> int | str:
    try:
        return int(priority)
    except ValueError:
        return priority


@command(jobs, "run-by-id", store=False)
def run_by_id(
    call: Call,
    words: Annotated[
        list[str], typer.Argument(metavar="[MODULE:APP] ID", help="The app (or LEASEHOLD_APP), the job's id.")
    ],
    worker: Annotated[
        str | None, typer.Option(help="The worker's name in the lease; must be unique.", metavar="NAME")
    ] = None,
    wait: Annotated[
        str, typer.Option(help="How long to keep trying while it may become free.", metavar="DURATION")
    ] = "0s",
) -> int:
    """Run one stored job in this process. Exits when the job has ended; Ctrl-C hands it back. Exit code 1: it ran and
    did not succeed; 3: no such job; 4: it cannot run now (with --json, retry_in says when to try again)."""
    set_up_logging("warning", as_json=False)
    usage = InvalidInput("run-by-id", "needs MODULE:APP ID", "or set LEASEHOLD_APP, and give only the id")
    app_name, job_id = app_and_name(words, usage)
    app = call.load(app_name)
    job_id = app.__internals__.operations.find_id(job_id)
    render.note(f"store: {app.__internals__.store.label}")
    answer = app.run_by_id(job_id, worker=worker, wait=wait)
    return _not_run(answer, call.as_json) if isinstance(answer, NotRun) else _ran(answer, call)


def _not_run(answer: NotRun, as_json: bool) -> int:
    later = "" if answer.retry_in is None else f"; try again in {answer.retry_in:.1f} s"
    if as_json:
        render.emit({"ran": False, **render.plain(answer)})
    else:
        complain(f"job {answer.job_id} was not run: {answer.why}{later}")
    return Exit.NOT_FOUND if answer.state is None else Exit.REFUSED


def _ran(answer: RunResult, call: Call) -> int:
    job = answer.job
    facts = {"state": job.state, "attempt": job.attempt, "error": job.error, "retry_in": answer.retry_in}
    call.report({"ran": True, "job_id": job.id, **facts}, f"{job.id} {job.state}")
    return Exit.OK if job.state is State.SUCCEEDED else Exit.JOB_FAILED
