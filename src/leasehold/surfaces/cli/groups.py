"""`groups list|show|release`: the progress of groups of jobs, and their holds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leasehold.domain.groups import GROUP_TOTAL_CAP, GroupStatus, GroupSummary, StatusRequest
from leasehold.operations import budgets
from leasehold.operations import groups as verbs
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.command import CommandCall, command, noun
from leasehold.surfaces.cli.limits import LINES
from leasehold.surfaces.cli.problems import Exit
from leasehold.surfaces.cli.render import draw, live
from leasehold.surfaces.cli.verbs import add

if TYPE_CHECKING:
    from rich.console import RenderableType

READ_GROUP_EVERY = 5.0
"""Seconds between two reads of --follow. A change of the group is shown at once, but a claim does not count as one."""
MOST_ERRORS = 20
"""Errors that `show` prints; --json prints all that were read."""


groups = noun("groups")


def _last_stop(row: GroupSummary) -> str:
    stop = row.last_stop
    if stop is None:
        return ""
    by = f" by {stop.actor}" if stop.actor else ""
    return f"{stop.mode}{by}, {render.ago(stop.at)}"


add(
    groups,
    verbs.list_groups,
    columns={
        "group": "name",
        "state": lambda row: row.state if row.reason is None else f"{row.state}: {row.reason}",
        "live": lambda row: f"{row.live:,}",
        "jobs": lambda row: f"{row.total:,}+" if row.total >= GROUP_TOTAL_CAP else f"{row.total:,}",
        "changed": lambda row: render.moment(row.changed_at),
        "last stop": _last_stop,
    },
    empty="no matching groups; put a job into one with --group NAME, or task.using(group=…)",
)


@command(groups)
def show(
    call: CommandCall,
    name: options.Name,
    wait: Annotated[str, typer.Option(metavar="DURATION", help="How long to wait.")] = "0s",
    since: Annotated[
        int | None, typer.Option(metavar="VERSION", help="With --wait: until the version is not this one.")
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option("--task", "-t", metavar="NAME", help="Only this task; may be repeated."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show changes until no job of the group is live.")
    ] = False,
) -> int:
    """Show a group's progress, or wait for its next change. --wait waits until the version is not --since, or by
    default not the present one. Exit code 5: nothing changed in time; with --follow, 1: some jobs failed."""
    operations, plain = call.operations, StatusRequest(group=name, tasks=task or None)
    if follow:
        return _follow(lambda **waiting: operations.group_status(replace(plain, **waiting)), call.as_json)
    status = operations.group_status(replace(plain, wait=wait, since=since))
    if call.as_json:
        render.emit(status)
    else:
        _show(status, operations.short_ids)
    return Exit.OK if status.changed else Exit.TIMED_OUT


add(groups, verbs.release_group, "group {name} is released", refused="group {name!r} is not on hold")
add(groups, budgets.group_budget, columns=LINES)


def _follow(look: Callable[..., GroupStatus], as_json: bool) -> int:
    if as_json or not sys.stdout.isatty():
        return _until_done(look, _emit_change if as_json else _print_change)
    with live(render.console()) as show:
        return _until_done(look, lambda status: show(_picture(status)))


def _until_done(look: Callable[..., GroupStatus], show: Callable[[GroupStatus], None]) -> int:
    """Show each change until no job of the group is live."""
    status = look()
    show(status)
    while status.live:
        status = look(wait=READ_GROUP_EVERY, since=status.version)
        show(status)
    return Exit.JOB_FAILED if status.errors else Exit.OK


def _emit_change(status: GroupStatus) -> None:
    if status.changed:
        render.emit(status)


def _print_change(status: GroupStatus) -> None:
    if status.changed:
        bad = f", {len(status.errors)} failed" if status.errors else ""
        print(f"{render.clean(str(status))}{bad}", flush=True)


def _picture(status: GroupStatus) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    facts = Text("\n".join(render.field_lines(_facts(status))) + "\n")
    rows = [(render.clean(task), _counted(states)) for task, states in status.counts.items()]
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
    """The share of succeeded jobs, rounded down: 100% must mean that all jobs have succeeded."""
    return f"{100 * status.succeeded // status.total if status.total else 0}%"


def _show(status: GroupStatus, ids: render.Shorten) -> None:
    render.fields(_facts(status))
    if status.counts:
        print()
        rows = [(task, _counted(states)) for task, states in status.counts.items()]
        render.table(("task", "jobs"), rows, prose=("jobs",))
    if status.errors:
        print("\nerrors")
        render.show(
            status.errors[:MOST_ERRORS],
            {
                "id": lambda failed: failed.id,
                "task": lambda failed: failed.task,
                "state": lambda failed: failed.state,
                "error": lambda failed: render.cut(failed.error, 80),
            },
            ids=ids,
        )
        if len(status.errors) > MOST_ERRORS:
            print(f"… and {len(status.errors) - MOST_ERRORS:,} more")


def _counted(states: Mapping[Any, int]) -> str:
    return ", ".join(f"{number:,} {state}" for state, number in states.items())
