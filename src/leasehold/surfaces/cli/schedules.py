"""`schedules`: what is due by itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from leasehold.domain.errors import InvalidInput
from leasehold.domain.schedules import Missed, Overlap, Schedule
from leasehold.domain.views import ScheduleRow
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import APP_VARIABLE, load_app, open_app

if TYPE_CHECKING:
    from leasehold.app import Leasehold

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
App = Annotated[
    str,
    typer.Option("--app", envvar=APP_VARIABLE, metavar="MODULE:APP", help="Where the task is registered."),
]


def add_to(cli: typer.Typer) -> None:
    schedules = typer.Typer(
        name="schedules", help="List, set, pause, resume, run or delete schedules.", rich_markup_mode=None
    )
    schedules.callback(invoke_without_command=True)(show_schedules)
    for name, command in (
        ("list", list_schedules),
        ("next", show_next),
        ("set", set_schedule),
        ("pause", pause_schedule),
        ("resume", resume_schedule),
        ("run", run_schedule),
        ("delete", delete_schedule),
    ):
        schedules.command(name)(command)
    cli.add_typer(schedules)


def show_schedules(
    context: typer.Context,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List schedules with their next and last tick."""
    if context.invoked_subcommand is None:
        list_schedules(url, schema, as_json)


def list_schedules(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List schedules with their next and last tick."""
    with open_app(url, schema) as app:
        rows = app.schedules.list()
    if as_json:
        with render.json_array() as add:
            for row in rows:
                add(_plain(row))
        return
    render.show(
        rows,
        {
            "schedule": lambda row: row.name,
            "task": lambda row: row.kind,
            "when": lambda row: _schedule(row).when,
            "next": lambda row: "" if row.paused or row.orphaned else render.ago(row.next_at),
            "last": lambda row: render.ago(row.last_at),
            "state": lambda row: "paused" if row.paused else "orphaned" if row.orphaned else "on",
            "why": _why,
        },
        empty="no schedules; declare one with @app.schedule, or use leasehold schedules set",
        prose=["why"],
    )


def _why(row: ScheduleRow) -> str:
    if row.paused:
        return ": ".join(part for part in (row.paused_by and f"by {row.paused_by}", row.reason) if part)
    return "no live worker has its code" if row.orphaned else ""


def _schedule(row: ScheduleRow) -> Schedule:
    return Schedule(name=row.name, kind=row.kind, every=row.every, cron=row.cron, tz=row.tz)


def show_next(
    name: Name,
    count: Annotated[int, typer.Option(help="How many ticks.", min=1, max=1000)] = 10,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Print the next ticks of a schedule."""
    with open_app(url, schema) as app:
        row = app.schedules.get(name)
    ticks = _schedule(row).upcoming(row.next_at, count)
    if as_json:
        render.emit([tick.isoformat() for tick in ticks])
    else:
        for tick in ticks:
            print(render.clean(tick))


def set_schedule(
    name: Name,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The name of the task.")],
    args: Annotated[str, typer.Argument(metavar="ARGS", help="Its arguments, as a JSON object.")] = "{}",
    every: Annotated[str | None, typer.Option(help="Such as 15m.", metavar="DURATION")] = None,
    cron: Annotated[str | None, typer.Option(help='Such as "0 3 * * *".', metavar="EXPRESSION")] = None,
    tz: Annotated[str, typer.Option(help="The time zone of --cron.", metavar="ZONE")] = "UTC",
    missed: Annotated[
        str,
        typer.Option(
            help="Ticks that no worker saw: make up for one, skip them, or make up for all.", metavar="WORD"
        ),
    ] = "one",
    overlap: Annotated[
        str,
        typer.Option(
            help="If the last job still runs: skip the tick, allow both, or replace the job.", metavar="WORD"
        ),
    ] = "skip",
    actor: options.Actor = None,
    app_name: App = "",
    as_json: options.AsJson = False,
) -> None:
    """Create or change a schedule. Needs the app, whose task checks the arguments."""
    with _load(app_name) as app:
        row = app.schedules.set(
            name,
            task,
            _arguments(args),
            every=every,
            cron=cron,
            tz=tz,
            missed=cast(Missed, missed),
            overlap=cast(Overlap, overlap),
            actor=options.acting(actor),
        )
    _told(row, f"schedule {name}: {_schedule(row).when}; next {render.clean(row.next_at)}", as_json)


def _load(name: str) -> Leasehold:
    if not name:
        raise InvalidInput("app", "is missing", f"give --app MODULE:APP, or set {APP_VARIABLE}")
    return load_app(name)


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidInput("args", f"is not JSON ({error})", 'give an object, such as {"day": 1}') from None
    if not isinstance(found, dict):
        raise InvalidInput("args", "is not an object", 'give an object, such as {"day": 1}')
    return found


def pause_schedule(
    name: Name,
    reason: Annotated[str | None, typer.Option(help="Shown to anyone who asks why.", metavar="TEXT")] = None,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Pause a schedule: no ticks until it is resumed."""
    with open_app(url, schema) as app:
        row = app.schedules.pause(name, reason, actor=options.acting(actor))
    _told(row, f"schedule {name} is paused", as_json)


def resume_schedule(
    name: Name,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Resume a schedule, with ticks from now on."""
    with open_app(url, schema) as app:
        resumed = app.schedules.resume(name, actor=options.acting(actor))
        row = app.schedules.get(name)
    text = f"schedule {name} is on; next {render.clean(row.next_at)}"
    _told(row, text if resumed else f"schedule {name} was not paused", as_json)


def run_schedule(
    name: Name, actor: options.Actor = None, app_name: App = "", as_json: options.AsJson = False
) -> None:
    """Enqueue a job of a schedule now, besides its ticks."""
    with _load(app_name) as app:
        job = app.schedules.run(name, actor=options.acting(actor))
    if as_json:
        render.emit({"id": job.id})
    else:
        print(job.id)


def delete_schedule(
    name: Name,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Delete a schedule; its jobs stay."""
    with open_app(url, schema) as app:
        app.schedules.delete(name, actor=options.acting(actor))
    if as_json:
        render.emit({"name": name, "deleted": True})
    else:
        print(f"schedule {name} is deleted")


def _plain(row: ScheduleRow) -> dict[str, Any]:
    return {**render.plain(row), "args": json.loads(row.args), "orphaned": row.orphaned}


def _told(row: ScheduleRow, text: str, as_json: bool) -> None:
    if as_json:
        render.emit(_plain(row))
    else:
        print(text)
