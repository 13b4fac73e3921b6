"""`cancel`, `pause`, `interrupt`, `resume`, `retry`, `resolve`, `release`: on jobs by id, or on all that a filter
finds."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

import typer

from leasehold.domain.bulk import LARGEST_LIMIT, RESUMABLE, BulkReport, BulkRequest, BulkVerb, has_moved_on
from leasehold.domain.checks.states import checked_states
from leasehold.domain.errors import GroupOnHold, InvalidInput, JobError, LeaseholdError
from leasehold.domain.job import Job
from leasehold.domain.states import State
from leasehold.domain.views import Filter
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app
from leasehold.surfaces.cli.problems import Exit, code_of, complain, facts_of

if TYPE_CHECKING:
    from leasehold.operations.operations import Operations

Reason = Annotated[
    str | None, typer.Option(help="Kept with the job (cancel, pause, interrupt and resolve).", metavar="TEXT")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Forget the stored steps and the checkpoint (resume).")]
SHOWN = 20
"""Refusals that are printed one by one; the rest are counted."""

VERBS: dict[BulkVerb, str] = {
    "cancel": "Cancel jobs; running ones are asked to stop.",
    "pause": "Pause jobs; running ones are asked to stop and can be resumed.",
    "interrupt": "Pause running jobs and cancel the others.",
    "resume": "Resume paused, failed or timed-out jobs.",
    "retry": "Enqueue a new job like each of these.",
    "resolve": "Leave failed jobs as they are, and let their lanes continue.",
    "release": "Release jobs that were enqueued on hold.",
}


def add_to(cli: typer.Typer) -> None:
    for verb, text in VERBS.items():
        cli.command(verb, help=text)(_command(verb))


def _command(verb: BulkVerb) -> Callable[..., int]:
    def steer(
        ids: Annotated[
            list[str] | None, typer.Argument(metavar="ID", help="The ids of jobs, or the beginnings of them.")
        ] = None,
        state: options.States = None,
        queue: options.Queue = None,
        kind: options.Kind = None,
        lane: options.Lane = None,
        group: options.Group = None,
        tag: options.Tag = None,
        all_: Annotated[bool, typer.Option("--all", help="Every job that the command applies to.")] = False,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Count what the filter finds; change nothing.")
        ] = False,
        yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
        reason: Reason = None,
        fresh: Fresh = False,
        actor: options.Actor = None,
        url: options.Url = None,
        schema: options.Schema = options.DEFAULT_SCHEMA,
        as_json: options.AsJson = False,
    ) -> int:
        given = {"queue": queue, "kind": kind, "lane": lane, "group": group, "tag": tag}
        filter_ = {name: value for name, value in given.items() if value is not None}
        if bool(ids) == bool(filter_ or state or all_):
            raise InvalidInput(
                verb, "needs to know which jobs", "give ids, or a filter such as --queue, or --all"
            )
        if ids and dry_run:
            raise InvalidInput(
                "--dry-run", "works with a filter only", "leave it out; see `leasehold why ID`"
            )
        request = BulkRequest(
            verb=verb,
            filter=Filter(checked_states(state or ()), **filter_),
            everything=True,  # --all was asked for above
            dry_run=dry_run,
            limit=LARGEST_LIMIT,
            actor=options.acting(actor),
            reason=reason,
            fresh=fresh,
        )
        with open_app(url, schema) as app:
            operations = app.__internals__.operations
            if ids:
                return _apply(operations, request, [operations.find_id(one) for one in ids], as_json)
            found = operations.bulk(replace(request, dry_run=True))
            if dry_run:
                return _tell_dry(found, operations, as_json)
            if verb == "retry" and not as_json:
                _point_to_resume(filter_, request.found_by.states)
            if not _sure(verb, found.matched, yes):
                return Exit.OK
            return _apply_to_all(operations, request, found.matched, as_json)

    return steer


def _tell_dry(found: BulkReport, operations: Operations, as_json: bool) -> int:
    if as_json:
        render.emit(found)
        return Exit.OK
    print(f"would {found.verb} {found.matched:,} job(s)")
    short = operations.short_ids(found.sample)
    for job_id in found.sample:
        print(f"  {short[job_id]}")
    if found.matched > len(found.sample):
        print("  …")
    return Exit.OK


def _point_to_resume(filter_: dict[str, str], states: tuple[State, ...]) -> None:
    """Elsewhere "retry" is what is called "resume" here."""
    asked = [f"--{name} {shlex.quote(value)}" for name, value in filter_.items()]
    asked += [f"--state {state}" for state in states if state in RESUMABLE]
    if any(state in RESUMABLE for state in states):
        command = " ".join(["leasehold resume", *asked])
        print(f"retry makes new jobs; to continue the same ones: {render.clean(command)}", file=sys.stderr)


def _sure(verb: BulkVerb, count: int, yes: bool) -> bool:
    """Ask the person at the terminal; without one, only --yes will do."""
    if yes or count == 0:
        return True
    if not render.on_terminal():
        raise InvalidInput("--yes", f"is needed to {verb} {count:,} job(s)", "there is no terminal to ask on")
    return typer.confirm(f"{verb} {count:,} job(s)?", err=True)


@dataclass
class Tally:
    """Tells of each job as its turn comes, and of all at the end."""

    request: BulkRequest
    emit: Callable[[object], None] | None
    """With --json."""
    alone: bool
    """The one job that this is about is told by itself."""
    by_filter: bool = False
    done: int = 0
    refused: int = 0
    moved_on: int = 0
    """Found by a filter, and in another state when their turn came: nothing is wrong with that."""
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
            asked = f", {outcome.stop_requested} asked" if outcome.stop_requested else ""
            print(f"{outcome.id} {outcome.state}{asked}")

    def _refuse(self, job_id: str, error: LeaseholdError) -> None:
        if self.by_filter and has_moved_on(error, self.request.found_by):
            self.moved_on += 1
        else:
            self.refused += 1
            self.code = self.code or code_of(error)
            if len(self.shown) < SHOWN:
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
            print(f"{self.request.verb}: {self.done:,} done, {self.refused:,} refused{moved}")


def _apply(operations: Operations, request: BulkRequest, ids: list[str], as_json: bool) -> int:
    """To jobs that were named one by one."""
    act: Callable[..., Job] = getattr(operations, request.verb)
    with contextlib.ExitStack() as output:
        emit: Callable[[object], None] | None = render.emit if as_json else None
        if as_json and len(ids) != 1:
            emit = output.enter_context(render.json_array())
        tally = Tally(request, emit, alone=len(ids) == 1)
        advance = output.enter_context(_bar(request.verb, len(ids)))
        for job_id in ids:
            try:
                tally.note(job_id, act(job_id, **request.told))
            except (JobError, GroupOnHold) as error:
                tally.note(job_id, error)
            advance()
    tally.sum_up()
    return tally.code


def _apply_to_all(operations: Operations, request: BulkRequest, count: int, as_json: bool) -> int:
    with contextlib.ExitStack() as output:
        emit = output.enter_context(render.json_array()) if as_json else None
        tally = Tally(request, emit, alone=count == 1, by_filter=True)
        advance = output.enter_context(_bar(request.verb, count))

        def watch(job_id: str, outcome: Job | LeaseholdError) -> None:
            tally.note(job_id, outcome)
            advance()

        operations.bulk(request, watch)
    tally.sum_up()
    return tally.code


@contextlib.contextmanager
def _bar(verb: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar for a person who waits for many."""
    if total < SHOWN or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.progress import Progress

    with Progress(console=render.console(stderr=True)) as progress:
        task = progress.add_task(verb, total=total)
        yield lambda: progress.advance(task)
