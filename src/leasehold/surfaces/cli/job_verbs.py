"""Commands of `jobs` that change jobs, by id or by filter, and commands that need the app's tasks."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leasehold.domain.bulk import LARGEST_LIMIT, RESUMABLE, BulkReport, BulkRequest, has_moved_on
from leasehold.domain.checks.times import seconds
from leasehold.domain.errors import GroupOnHold, InvalidInput, JobError, LeaseholdError
from leasehold.domain.job import Job
from leasehold.domain.records import Filter, NotRun
from leasehold.domain.states import State, checked_states
from leasehold.domain.stop import StopReport, StopRequest, checked_mode
from leasehold.operations.bulk import bulk_verbs
from leasehold.operations.verb import Verb
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.command import CommandCall, command, extend
from leasehold.surfaces.cli.jobs import jobs
from leasehold.surfaces.cli.logs import set_up_logging
from leasehold.surfaces.cli.options import app_and_name
from leasehold.surfaces.cli.problems import Exit, code_of, complain, facts_of
from leasehold.surfaces.cli.verbs import json_object, parameter_of, value_of

if TYPE_CHECKING:
    from leasehold.app import Leasehold
    from leasehold.types import CallOptions, RunResult
    from leasehold.types import Job as Handle

BAR_FROM = 20
"""Jobs from which on a progress bar is drawn."""
MOST_REFUSALS = 20
"""Refusals that are printed one by one; the others are counted."""
MOST_RUNNING = 20
"""Running jobs that `stop` prints; --json prints all that were read."""


def _add(word: str, verb: Verb[..., Job]) -> None:
    def change(
        call: CommandCall,
        ids: Annotated[
            list[str] | None, typer.Argument(metavar="ID", help="The ids of jobs, or the beginnings of them.")
        ] = None,
        state: options.States = None,
        queue: options.Queue = None,
        task: options.Task = None,
        lane: options.Lane = None,
        group: options.Group = None,
        tag: options.Tag = None,
        all_: Annotated[bool, typer.Option("--all", help="Every job that the command applies to.")] = False,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Count what the filter finds; change nothing.")
        ] = False,
        yes: options.Yes = False,
        **own: Any,
    ) -> int:
        given = {"queue": queue, "task": task, "lane": lane, "group": group, "tag": tag}
        named = {name: value for name, value in given.items() if value is not None}
        if bool(ids) == bool(named or state or all_):
            raise InvalidInput(
                word, "needs to know which jobs", "give ids, or a filter such as --queue, or --all"
            )
        if ids and dry_run:
            raise InvalidInput(
                "--dry-run", "works with a filter only", "leave it out; see `leasehold why ID`"
            )
        own = {one.name: value_of(call, verb, one, own[one.name]) for one in verb.body}
        of_one = {one.name: own.pop(one.name) for one in verb.body if one not in verb.bulk_body}
        for name, value in of_one.items():
            if value is not None and len(ids or ()) != 1:
                raise InvalidInput(f"--{name}", "works with one id only", "leave it out, or give one id")
        request = BulkRequest(
            verb=word,
            filter=Filter(checked_states(state or ()), **given),
            everything=True,  # --all was given: see above
            dry_run=dry_run,
            limit=LARGEST_LIMIT,
            actor=call.actor,
            own=own,
        )
        operations = call.operations
        if ids:
            return _apply(call, verb, request, [operations.find_id(one) for one in ids], of_one)
        found = operations.bulk(replace(request, dry_run=True))
        if dry_run:
            return _print_dry(call, word, found)
        if word == "retry" and not call.as_json:
            _point_to_resume(named, request.found_by.states)
        many = f"{word} {found.matched:,} job(s)"
        if found.matched and not yes and not call.confirm(f"{many}?", f"is needed to {many}"):
            return Exit.OK
        return _apply_to_all(call, word, request, found.matched)

    change.__doc__ = verb.doc
    extend(change, [parameter_of(verb, one, as_option=True) for one in verb.body])
    command(jobs, word, acts=True)(change)


for _word, _verb in bulk_verbs().items():
    _add(_word, _verb)


def _print_dry(call: CommandCall, word: str, found: BulkReport) -> int:
    if call.as_json:
        render.emit(found)
        return Exit.OK
    print(f"would {word} {found.matched:,} job(s)")
    short = call.operations.short_ids(found.sample)
    for job_id in found.sample:
        print(f"  {short[job_id]}")
    if found.matched > len(found.sample):
        print("  …")
    return Exit.OK


def _point_to_resume(named: dict[str, str], states: tuple[State, ...]) -> None:
    """Point to `jobs resume`: other job queues call that "retry"."""
    filters = [f"--{name} {shlex.quote(value)}" for name, value in named.items()]
    filters += [f"--state {state}" for state in states if state in RESUMABLE]
    if any(state in RESUMABLE for state in states):
        same = " ".join(["leasehold jobs resume", *filters])
        print(f"retry makes new jobs; to continue the same ones: {render.clean(same)}", file=sys.stderr)


@dataclass
class OutcomePrinter:
    """Prints each job with its outcome, and the totals at the end."""

    word: str
    request: BulkRequest
    emit: Callable[[object], None] | None
    """Prints a value as JSON. None: without --json."""
    alone: bool
    """There is one job: print it without totals."""
    by_filter: bool = False
    done: int = 0
    refused: int = 0
    moved_on: int = 0
    """Jobs that the filter found, but that changed state before their turn: no error."""
    code: Exit = Exit.OK
    shown: list[str] = field(default_factory=list)

    def note(self, job_id: str, outcome: Job | LeaseholdError) -> None:
        if isinstance(outcome, LeaseholdError):
            self._refuse(job_id, outcome)
            return
        self.done += 1
        if self.emit is not None:
            self.emit({"id": outcome.id, "state": outcome.state, "stop_requested": outcome.stop_requested})
        elif self.alone:
            requested = f", {outcome.stop_requested} requested" if outcome.stop_requested else ""
            print(f"{outcome.id} {outcome.state}{requested}")

    def _refuse(self, job_id: str, error: LeaseholdError) -> None:
        if self.by_filter and has_moved_on(error, self.request.found_by):
            self.moved_on += 1
        else:
            self.refused += 1
            self.code = self.code or code_of(error)
            if len(self.shown) < MOST_REFUSALS:
                self.shown.append(str(error))
        if self.emit is not None:
            self.emit({"id": job_id, "error": facts_of(error)})

    def sum_up(self) -> None:
        if self.emit is not None:
            return
        for text in self.shown:
            complain(text)
        if not self.alone:
            moved = f", {self.moved_on:,} had moved on" if self.moved_on else ""
            print(f"{self.word}: {self.done:,} done, {self.refused:,} refused{moved}")


def _apply(
    call: CommandCall, verb: Verb[..., Job], request: BulkRequest, ids: list[str], of_one: dict[str, Any]
) -> int:
    """Apply the verb to jobs given by id. `of_one`: arguments that a single job takes besides the request's."""
    with contextlib.ExitStack() as output:
        emit: Callable[[object], None] | None = render.emit if call.as_json else None
        if call.as_json and len(ids) != 1:
            emit = output.enter_context(render.json_array())
        printer = OutcomePrinter(request.verb, request, emit, alone=len(ids) == 1)
        advance = output.enter_context(_bar(request.verb, len(ids)))
        for job_id in ids:
            try:
                printer.note(job_id, call.operations.call(verb, job_id, **request.arguments, **of_one))
            except (JobError, GroupOnHold) as error:
                printer.note(job_id, error)
            advance()
    printer.sum_up()
    return printer.code


def _apply_to_all(call: CommandCall, word: str, request: BulkRequest, count: int) -> int:
    with contextlib.ExitStack() as output:
        emit = output.enter_context(render.json_array()) if call.as_json else None
        printer = OutcomePrinter(word, request, emit, alone=count == 1, by_filter=True)
        advance = output.enter_context(_bar(word, count))

        def watch(job_id: str, outcome: Job | LeaseholdError) -> None:
            printer.note(job_id, outcome)
            advance()

        call.operations.bulk(request, watch)
    printer.sum_up()
    return printer.code


@contextlib.contextmanager
def _bar(word: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar for many jobs, on a terminal only."""
    if total < BAR_FROM or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.progress import Progress

    with Progress(console=render.console(stderr=True)) as progress:
        task = progress.add_task(word, total=total)
        yield lambda: progress.advance(task)


@command(jobs, acts=True)
def stop(
    call: CommandCall,
    group: options.Group = None,
    task: options.Tasks = None,
    queue: options.Queue = None,
    lane: options.Lane = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", metavar="NAME", help="With this tag; may be repeated for jobs with all of them."
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Everything in the store.")] = False,
    mode: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help="graceful: running jobs finish, without another attempt; immediate: stop them; "
            "full: stop them, and wait until they have stopped.",
        ),
    ] = "graceful",
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Kept with every job.")] = None,
    wait: Annotated[str, typer.Option(metavar="DURATION", help="How long to wait.")] = "30s",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what would happen; change nothing.")
    ] = False,
    hold: Annotated[
        bool, typer.Option("--hold", help="Refuse new jobs in the group until `groups release NAME`.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --all: do not ask for confirmation.")
    ] = False,
) -> int:
    """Stop all jobs that match. Exit code 5: some still run after --wait."""
    request = StopRequest(
        group=group,
        queue=queue,
        tasks=task or None,
        lane=lane,
        tags=tag or None,
        everything=all_,
        mode=checked_mode(mode),
        reason=reason,
        wait=wait,
        dry_run=dry_run,
        hold=hold,
        actor=call.actor,
    )
    if all_ and not dry_run and not yes:
        everything = f"stop everything in {call.label}"
        if not call.confirm(f"{everything}?", f"is needed to {everything}"):
            raise typer.Abort
    report = call.operations.stop(request, _Waiting())
    if call.as_json:
        render.emit(report)
    else:
        _print_report(report)
    timed_out = report.still_running and report.mode != "immediate" and not report.dry_run
    return Exit.TIMED_OUT if timed_out else Exit.OK


class _Waiting:
    """Prints how many jobs still run, whenever that changes; on a terminal only."""

    def __init__(self) -> None:
        self._printed = -1

    def __call__(self, report: StopReport) -> None:
        left = len(report.still_running)
        if left != self._printed:
            self._printed = left
            render.note(f"waiting for {left:,} running job(s)")


def _print_report(report: StopReport) -> None:
    rows = [
        (task, state.value, f"{number:,}")
        for task, states in report.cancelled_counts.items()
        for state, number in states.items()
    ]
    finishing = report.flagged if report.mode == "graceful" else {}
    rows += [(task, "running", f"{number:,} to finish") for task, number in finishing.items()]
    would = "would be " if report.dry_run else ""
    if rows:
        render.table(("task", "was", f"{would}cancelled"), rows)
    elif not report.still_running:
        print("nothing to stop", file=sys.stderr)
    if report.still_running:
        left = ", ".join(report.still_running[:MOST_RUNNING])
        more = len(report.still_running) - MOST_RUNNING
        listed = f"{left} … and {more:,} more" if more > 0 else left
        print(f"{_label_of_running(report)}: {listed}")
    if report.unaffected_tasks:
        print(f"unaffected: {render.clean(', '.join(report.unaffected_tasks))}")
    if report.held and not report.dry_run:
        print("the group is on hold")


def _label_of_running(report: StopReport) -> str:
    if not report.dry_run:
        return "still running"
    waits = {"graceful": "would be waited for", "immediate": "would be stopped"}
    return waits.get(report.mode, "would be stopped, and waited for")


# -- commands that need the app's tasks --------------------------------------------------------------------------------

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="[MODULE:APP] TASK [JSON]",
        help="The app (or LEASEHOLD_APP), the task's name, its arguments as a JSON object ('-': from stdin).",
    ),
]


@command(jobs, store=False)
def enqueue(
    call: CommandCall,
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
    call: CommandCall,
    words: Words,
    max_running: Annotated[
        int | None, typer.Option(help="A limit other than the task's.", metavar="NUMBER")
    ] = None,
    wait: options.Wait = None,
) -> None:
    """Run a job in this process at once, or not at all. Exit code 4: the task already runs --max-running times.
    Prints the job's id, or with --wait its result, and exits when the job has ended; Ctrl-C stops it."""
    set_up_logging("warning", as_json=False)
    name, task, text = _split(words, "run-now")
    longest = None if wait is None else seconds(wait, "wait")
    settings: CallOptions = {} if max_running is None else {"max_running": max_running}
    app = call.load(name)
    job = app.__internals__.named_task(task, settings).run_now(**json_object(text, "JSON"))
    _print_job(call, app, job, longest)


def _print_job(call: CommandCall, app: Leasehold, job: Handle[Any], longest: float | None) -> None:
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
    call: CommandCall,
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


def _ran(answer: RunResult, call: CommandCall) -> int:
    job = answer.job
    facts = {"state": job.state, "attempt": job.attempt, "error": job.error, "retry_in": answer.retry_in}
    call.report({"ran": True, "job_id": job.id, **facts}, f"{job.id} {job.state}")
    return Exit.OK if job.state is State.SUCCEEDED else Exit.JOB_FAILED
