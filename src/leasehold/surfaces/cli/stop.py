"""`stop`: end all work of a scope, with a report; `group`: how far a group is, and its hold."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from leasehold.domain.errors import InvalidInput
from leasehold.domain.stop import StopRequest, checked_mode
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.follow import live
from leasehold.surfaces.cli.load import open_app
from leasehold.surfaces.cli.problems import Exit, complain
from leasehold.surfaces.cli.tables import draw

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leasehold.domain.groups import GroupStatus
    from leasehold.domain.states import State
    from leasehold.domain.stop import StopReport

Mode = Annotated[
    str,
    typer.Option(
        metavar="MODE",
        help="graceful: running jobs finish, without another attempt; immediate: they are told to stop; "
        "full: they are told to stop, and waited for.",
    ),
]
Wait = Annotated[str, typer.Option(metavar="DURATION", help="How long to wait.")]
LOOK_EVERY = 5.0
"""Seconds: a change is told at once; claims are none."""
LISTED = 20
"""Results and errors that are printed; --json prints all that were read."""


def add_to(cli: typer.Typer) -> None:
    cli.command()(stop)
    cli.command()(group)


def stop(
    group: options.Group = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", "-k", metavar="NAME", help="Of this task; may be repeated.")
    ] = None,
    queue: options.Queue = None,
    lane: options.Lane = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", metavar="NAME", help="With this tag; may be repeated for jobs with all of them."
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Everything in the store.")] = False,
    mode: Mode = "graceful",
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Kept with every job.")] = None,
    wait: Wait = "30s",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what would happen; change nothing.")
    ] = False,
    hold: Annotated[
        bool, typer.Option("--hold", help="Refuse new jobs in the group until `group NAME --release`.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --all: do not ask for confirmation.")
    ] = False,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> int:
    """Stop all jobs that match. Exit code 5: some still run after --wait."""
    request = StopRequest(
        group=group,
        queue=queue,
        kinds=kind or None,
        lane=lane,
        tags=tag or None,
        everything=all_,
        mode=checked_mode(mode),
        reason=reason,
        wait=wait,
        dry_run=dry_run,
        hold=hold,
        actor=options.acting(actor),
    )
    with open_app(url, schema) as app:
        if all_ and not dry_run and not yes:
            _ask(app.__internals__.store.label)
        report = app.__internals__.operations.stop(request, _Waiting())
    if as_json:
        render.emit(report)
    else:
        _print(report)
    timed_out = report.still_running and report.mode != "immediate" and not report.dry_run
    return Exit.TIMED_OUT if timed_out else Exit.OK


def _ask(label: str) -> None:
    if not render.on_terminal():
        raise InvalidInput(
            "--yes", f"is needed to stop everything in {label}", "there is no terminal to ask on"
        )
    typer.confirm(f"stop everything in {label}?", err=True, abort=True)


class _Waiting:
    """Tells the person at the terminal how many are still waited for, when that changes."""

    def __init__(self) -> None:
        self._told = -1

    def __call__(self, report: StopReport) -> None:
        left = len(report.still_running)
        if left != self._told:
            self._told = left
            render.note(f"waiting for {left:,} running job(s)")


def _print(report: StopReport) -> None:
    rows = [
        (kind, state.value, f"{number:,}")
        for kind, states in report.cancelled_counts.items()
        for state, number in states.items()
    ]
    finishing = report.flagged if report.mode == "graceful" else {}
    rows += [(kind, "running", f"{number:,} to finish") for kind, number in finishing.items()]
    would = "would be " if report.dry_run else ""
    if rows:
        render.table(("task", "was", f"{would}cancelled"), rows)
    elif not report.still_running:
        print("nothing to stop", file=sys.stderr)
    if report.still_running:
        left = ", ".join(report.still_running[:LISTED])
        more = len(report.still_running) - LISTED
        told = f"{left} … and {more:,} more" if more > 0 else left
        print(f"{_of_those_that_run(report)}: {told}")
    if report.unaffected_kinds:
        print(f"unaffected: {render.clean(', '.join(report.unaffected_kinds))}")
    if report.held and not report.dry_run:
        print("the group is on hold")


def _of_those_that_run(report: StopReport) -> str:
    if not report.dry_run:
        return "still running"
    waits = {"graceful": "would be waited for", "immediate": "would be told to stop"}
    return waits.get(report.mode, "would be told to stop, and waited for")


def group(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    wait: Wait = "0s",
    since: Annotated[
        int | None, typer.Option(metavar="VERSION", help="With --wait: until the version is not this one.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", "-k", metavar="NAME", help="Only this task; may be repeated."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show changes until no job of the group is live.")
    ] = False,
    release: Annotated[bool, typer.Option("--release", help="Lift the hold of a stop.")] = False,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> int:
    """Show a group's progress, or wait for its next change. --wait waits for a version other than --since, or than
    the present one. Exit code 5: nothing changed in time; with --release, 4: it was not on hold; with --follow, 1: some
    jobs failed."""
    with open_app(url, schema) as app:
        if release:
            return _release(app.group(name).release(actor=options.acting(actor)), name, as_json)
        operations = app.__internals__.operations
        if follow:
            return _follow(
                lambda **asked: operations.group_status(name, kinds=kind or None, **asked), as_json
            )
        status = operations.group_status(name, wait=wait, since=since, kinds=kind or None)
        if as_json:
            render.emit(status)
        else:
            _show(status, operations.short_ids)
    return Exit.OK if status.changed else Exit.TIMED_OUT


def _release(released: bool, name: str, as_json: bool) -> int:
    if as_json:
        render.emit({"name": name, "was_held": released})
    elif released:
        print(f"group {name} is released")
    else:
        complain(f"group {name!r} is not on hold")
    return Exit.OK if released else Exit.REFUSED


def _follow(look: Callable[..., GroupStatus], as_json: bool) -> int:
    if as_json or not sys.stdout.isatty():
        return _until_done(look, _tell_json if as_json else _tell_line)
    with live() as show:
        return _until_done(look, lambda status: show(_picture(status)))


def _until_done(look: Callable[..., GroupStatus], show: Callable[[GroupStatus], None]) -> int:
    """Until nothing of the group can move by itself any more."""
    status = look()
    show(status)
    while status.live:
        status = look(wait=LOOK_EVERY, since=status.version)
        show(status)
    return Exit.JOB_FAILED if status.errors else Exit.OK


def _tell_json(status: GroupStatus) -> None:
    if status.changed:
        render.emit(status)


def _tell_line(status: GroupStatus) -> None:
    if status.changed:
        bad = f", {len(status.errors)} failed" if status.errors else ""
        print(f"{render.clean(str(status))}{bad}", flush=True)


def _picture(status: GroupStatus) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    facts = Text("\n".join(render.field_lines(_facts(status))) + "\n")
    rows = [(render.clean(kind), _counted(states)) for kind, states in status.counts.items()]
    width = render.console().width
    return Group(facts, draw(("task", "jobs"), rows, width, ("jobs",))) if rows else facts


def _facts(status: GroupStatus) -> dict[str, object]:
    return {
        "group": status.name,
        "state": status.state if status.reason is None else f"{status.state}: {status.reason}",
        "version": status.version,
        "progress": f"{status.succeeded:,} of {status.total:,} ({_percent(status)})",
        "live": status.live,
        "questions": status.questions or None,
    }


def _percent(status: GroupStatus) -> str:
    """Rounded down: 100% is said when all have succeeded, and not before."""
    return f"{100 * status.succeeded // status.total if status.total else 0}%"


def _show(status: GroupStatus, ids: render.Shorten) -> None:
    render.fields(_facts(status))
    if status.counts:
        print()
        rows = [(kind, _counted(states)) for kind, states in status.counts.items()]
        render.table(("task", "jobs"), rows, prose=("jobs",))
    if status.errors:
        print("\nerrors")
        render.show(
            status.errors[:LISTED],
            {
                "id": lambda failed: failed.id,
                "task": lambda failed: failed.kind,
                "state": lambda failed: failed.state,
                "error": lambda failed: render.cut(failed.error, 80),
            },
            ids=ids,
        )
        if len(status.errors) > LISTED:
            print(f"… and {len(status.errors) - LISTED:,} more")


def _counted(states: Mapping[State, int]) -> str:
    return ", ".join(f"{number:,} {state}" for state, number in states.items())
