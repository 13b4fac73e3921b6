"""`cancel`, `pause`, `interrupt`, `resume`, `retry`, `resolve`, `release`: on jobs by id, or on all that a filter
finds."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leasehold.domain.checks.states import checked_states
from leasehold.domain.errors import InvalidInput, JobError, JobNotFound, Refused
from leasehold.domain.states import LIVE, State
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app
from leasehold.surfaces.cli.problems import Exit, code_of, complain, facts_of

if TYPE_CHECKING:
    from leasehold.app import Leasehold

Reason = Annotated[
    str | None, typer.Option(help="Kept with the job (cancel, pause, interrupt and resolve).", metavar="TEXT")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Forget the stored steps and the checkpoint (resume).")]
PAGE = 500
SHOWN = 20
"""Refusals that are printed one by one; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    help: str
    finds: tuple[State, ...]
    """The states that a filter without --state means. A retry of all that ever succeeded is nobody's wish."""
    takes_reason: bool = False


_LIVE = tuple(state for state in State if state in LIVE)
RESUMABLE = (State.PAUSED, State.FAILED, State.TIMED_OUT)
VERBS = (
    Verb("cancel", "Cancel jobs; running ones are asked to stop.", (*_LIVE, State.PAUSED), takes_reason=True),
    Verb("pause", "Pause jobs; running ones are asked to stop and can be resumed.", _LIVE, takes_reason=True),
    Verb(
        "interrupt",
        "Pause jobs that run; cancel those that do not.",
        (*_LIVE, State.PAUSED),
        takes_reason=True,
    ),
    Verb(
        "resume",
        "Let paused, failed or timed-out jobs go on.",
        RESUMABLE,
    ),
    Verb("retry", "Make a new job like each of these.", (State.FAILED, State.TIMED_OUT)),
    Verb(
        "resolve",
        "Leave failed jobs as they are, and let their lanes go on.",
        (State.FAILED, State.TIMED_OUT),
        takes_reason=True,
    ),
    Verb("release", "Lift the hold that jobs were enqueued with.", (State.PENDING,)),
)


def add_to(cli: typer.Typer) -> None:
    for verb in VERBS:
        cli.command(verb.name, help=verb.help)(_command(verb))


def _command(verb: Verb) -> Callable[..., int]:
    def steer(
        ids: Annotated[
            list[str] | None, typer.Argument(metavar="ID", help="Jobs by id, or its beginning.")
        ] = None,
        state: options.States = None,
        queue: options.Queue = None,
        kind: options.Kind = None,
        lane: options.Lane = None,
        group: options.Group = None,
        tag: options.Tag = None,
        all_: Annotated[bool, typer.Option("--all", help="Every job that the verb is meant for.")] = False,
        yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
        reason: Reason = None,
        fresh: Fresh = False,
        actor: options.Actor = None,
        url: options.Url = None,
        schema: options.Schema = options.DEFAULT_SCHEMA,
        as_json: options.AsJson = False,
    ) -> int:
        given = {"queue": queue, "kind": kind, "lane": lane, "group": group, "tag": tag}
        filter_ = {name: value for name, value in given.items() if value is not None}
        if reason is not None and not verb.takes_reason:
            raise InvalidInput("reason", f"is not kept by {verb.name}", "leave it out")
        if fresh and verb.name != "resume":
            raise InvalidInput("--fresh", f"has no meaning for {verb.name}", "leave it out")
        if bool(ids) == bool(filter_ or state or all_):
            raise InvalidInput(verb.name, "wants jobs", "give ids, or a filter such as --queue, or --all")
        with open_app(url, schema) as app:
            told: dict[str, Any] = {"actor": options.acting(actor)}
            told |= {"reason": reason} if verb.takes_reason else {}
            told |= {"fresh": True} if fresh else {}
            if ids:
                find_id = app.__internals__.operations.find_id
                return _apply(app, verb, [find_id(one) for one in ids], told, as_json)
            states = checked_states(state or verb.finds)
            if verb.name == "retry" and not as_json:
                _point_to_resume(filter_, states)
            wanted = list(_find(app, {**filter_, "state": states}))
            if not _sure(verb, len(wanted), yes):
                return Exit.OK
            return _apply(app, verb, wanted, told, as_json, found_in=states)

    return steer


def _find(app: Leasehold, filter_: dict[str, Any]) -> Iterator[str]:
    before = None
    while True:
        page = app.jobs(**filter_, limit=PAGE, before=before)
        yield from (job.id for job in page.jobs)
        before = page.next
        if before is None:
            return


def _point_to_resume(filter_: dict[str, Any], states: tuple[State, ...]) -> None:
    """Elsewhere "retry" is what is called "resume" here."""
    asked = [f"--{name} {shlex.quote(value)}" for name, value in filter_.items()]
    asked += [f"--state {state}" for state in states if state in RESUMABLE]
    if any(state in RESUMABLE for state in states):
        command = " ".join(["leasehold resume", *asked])
        print(f"retry makes new jobs; to let the same ones go on: {render.clean(command)}", file=sys.stderr)


def _sure(verb: Verb, count: int, yes: bool) -> bool:
    """Ask the person at the terminal; without one, only --yes will do."""
    if yes or count == 0:
        return True
    if not render.on_terminal():
        raise InvalidInput(
            "--yes", f"is needed to {verb.name} {count:,} job(s)", "nobody is here to be asked"
        )
    return typer.confirm(f"{verb.name} {count:,} job(s)?", err=True)


@dataclass
class Tally:
    done: int = 0
    refused: list[JobError] = field(default_factory=list)
    moved_on: int = 0
    """Found by a filter, and in another state when their turn came: nothing is wrong with that."""

    @property
    def code(self) -> Exit:
        return code_of(self.refused[0]) if self.refused else Exit.OK


def _apply(
    app: Leasehold,
    verb: Verb,
    ids: list[str],
    told: dict[str, Any],
    as_json: bool,
    found_in: tuple[State, ...] = (),
) -> int:
    """`found_in`: the states in which a filter has found them; else they were named one by one."""
    act: Callable[..., Any] = getattr(app.__internals__.operations, verb.name)
    tally = Tally()
    with contextlib.ExitStack() as output:
        emit: Callable[[object], None] = render.emit
        if as_json and (found_in or len(ids) != 1):
            emit = output.enter_context(render.json_array())
        for job_id in _watched(ids, verb):
            try:
                job = act(job_id, **told)
            except JobError as error:
                if found_in and _has_moved_on(error, found_in):
                    tally.moved_on += 1
                else:
                    tally.refused.append(error)
                if as_json:
                    emit({"id": job_id, "error": facts_of(error)})
                continue
            tally.done += 1
            if as_json:
                emit({"id": job.id, "state": job.state, "stop_requested": job.stop_requested})
            elif len(ids) == 1:
                asked = f", {job.stop_requested} asked" if job.stop_requested else ""
                print(f"{job.id} {job.state}{asked}")
    if not as_json:
        _sum_up(verb, tally, len(ids))
    return tally.code


def _has_moved_on(error: JobError, found_in: tuple[State, ...]) -> bool:
    if isinstance(error, Refused):
        return error.state not in found_in
    return isinstance(error, JobNotFound)


def _watched(ids: list[str], verb: Verb) -> Iterable[str]:
    """A progress bar for a person who waits for many."""
    if len(ids) < SHOWN or not sys.stderr.isatty():
        return ids
    from rich.progress import track

    return track(ids, description=verb.name, console=render.console(stderr=True))


def _sum_up(verb: Verb, tally: Tally, total: int) -> None:
    for error in tally.refused[:SHOWN]:
        complain(str(error))
    if total != 1:
        moved = f", {tally.moved_on:,} had moved on" if tally.moved_on else ""
        print(f"{verb.name}: {tally.done:,} done, {len(tally.refused):,} refused{moved}")
