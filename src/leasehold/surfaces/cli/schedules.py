"""`schedules`: jobs that are enqueued at set times."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from leasehold.domain.errors import InvalidInput
from leasehold.domain.records import ScheduleRow
from leasehold.domain.schedules import Missed, Overlap, Schedule
from leasehold.operations import schedules as verbs
from leasehold.surfaces.cli import render
from leasehold.surfaces.cli.command import CommandCall, command, noun
from leasehold.surfaces.cli.options import APP_VARIABLE
from leasehold.surfaces.cli.verbs import add, json_object

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
App = Annotated[
    str,
    typer.Option("--app", envvar=APP_VARIABLE, metavar="MODULE:APP", help="Where the task is registered."),
]


schedules = noun("schedules")


def _why(row: ScheduleRow) -> str:
    if row.paused:
        return ": ".join(part for part in (row.paused_by and f"by {row.paused_by}", row.reason) if part)
    return "no live worker has its code" if row.orphaned else ""


def _schedule(row: ScheduleRow) -> Schedule:
    return Schedule(name=row.name, task=row.task, every=row.every, cron=row.cron, tz=row.tz)


add(
    schedules,
    verbs.list_schedules,
    columns={
        "schedule": "name",
        "task": "task",
        "when": lambda row: _schedule(row).when,
        "next": lambda row: "" if row.paused or row.orphaned else render.ago(row.next_at),
        "last": lambda row: render.ago(row.last_at),
        "state": lambda row: "paused" if row.paused else "orphaned" if row.orphaned else "on",
        "why": _why,
    },
    empty="no schedules; declare one with @app.schedule, or use leasehold schedules set",
    prose=["why"],
)


@command(schedules, "next")
def show_next(
    call: CommandCall,
    name: Name,
    count: Annotated[int, typer.Option(help="How many ticks.", min=1, max=1000)] = 10,
) -> None:
    """Print the next ticks of a schedule."""
    row = call.operations.call(verbs.get_schedule, name)
    ticks = _schedule(row).upcoming(row.next_at, count)
    if call.as_json:
        render.emit([tick.isoformat() for tick in ticks])
    else:
        for tick in ticks:
            print(render.clean(tick))


@command(schedules, "set", acts=True, store=False)
def set_schedule(
    call: CommandCall,
    name: Name,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The name of the task.")],
    args: Annotated[str, typer.Argument(metavar="ARGS", help="Its arguments, as a JSON object.")] = "{}",
    every: Annotated[str | None, typer.Option(help="Such as 15m.", metavar="DURATION")] = None,
    cron: Annotated[str | None, typer.Option(help='Such as "0 3 * * *".', metavar="EXPRESSION")] = None,
    tz: Annotated[str, typer.Option(help="The time zone of --cron.", metavar="ZONE")] = "UTC",
    missed: Annotated[
        str,
        typer.Option(
            help="Ticks missed without a worker: make up for one, skip them, or make up for all.",
            metavar="WORD",
        ),
    ] = "one",
    overlap: Annotated[
        str,
        typer.Option(
            help="If the last job still runs: skip the tick, allow both, or replace the job.", metavar="WORD"
        ),
    ] = "skip",
    app_name: App = "",
) -> None:
    """Create or change a schedule. Needs the app, whose task checks the arguments."""
    row = call.load(_needed(app_name)).schedules.set(
        name,
        task,
        json_object(args, "args"),
        every=every,
        cron=cron,
        tz=tz,
        missed=cast(Missed, missed),
        overlap=cast(Overlap, overlap),
        actor=call.actor,
    )
    call.report(row, f"schedule {name}: {_schedule(row).when}; next {render.clean(row.next_at)}")


def _needed(app_name: str) -> str:
    if not app_name:
        raise InvalidInput("app", "is missing", f"give --app MODULE:APP, or set {APP_VARIABLE}")
    return app_name


add(schedules, verbs.pause_schedule, "schedule {name} is paused")


@command(schedules, "resume", acts=True)
def resume_schedule(call: CommandCall, name: Name) -> None:
    """Resume a schedule, with ticks from now on."""
    resumed = call.operations.call(verbs.resume_schedule, name, actor=call.actor)
    row = call.operations.call(verbs.get_schedule, name)
    text = f"schedule {name} is on; next {render.clean(row.next_at)}"
    call.report(row, text if resumed else f"schedule {name} was not paused")


@command(schedules, "run", acts=True, store=False)
def run_schedule(call: CommandCall, name: Name, app_name: App = "") -> None:
    """Enqueue a job of a schedule now, besides its ticks."""
    job = call.load(_needed(app_name)).__internals__.run_schedule(name, call.actor)
    call.report({"id": job.id}, job.id)


add(schedules, verbs.delete_schedule, "schedule {name} is deleted")
