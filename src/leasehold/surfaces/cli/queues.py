"""`queues`, `kinds`, `lanes`, `workers`: the shape of the work, and the switches on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from leasehold.domain.states import State
from leasehold.domain.views import COUNT_CAP, PauseRecord
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app
from leasehold.surfaces.cli.problems import Exit, complain

Name = Annotated[str, typer.Argument(metavar="NAME")]
For = Annotated[
    str | None, typer.Option("--for", help="Resume on its own after this long.", metavar="DURATION")
]
Reason = Annotated[str | None, typer.Option(help="Shown to anyone who asks why.", metavar="TEXT")]


def add_to(cli: typer.Typer) -> None:
    cli.add_typer(
        _scope("queues", "List queues with their jobs and workers; pause or resume one.", list_queues)
    )
    cli.add_typer(
        _scope("kinds", "List tasks with their jobs and workers; pause or resume one.", list_queues)
    )
    lanes = typer.Typer(
        name="lanes", help="List lanes that are held or halted; resume one.", rich_markup_mode=None
    )
    lanes.callback(invoke_without_command=True)(list_lanes)
    lanes.command("resume")(resume_lane)
    cli.add_typer(lanes)
    cli.command("workers")(list_workers)


def _scope(name: str, help_: str, list_them: Callable[..., None]) -> typer.Typer:
    """`queues` and `kinds` differ in one word."""
    noun = "queue" if name == "queues" else "task"
    group = typer.Typer(name=name, help=help_, rich_markup_mode=None)
    group.callback(invoke_without_command=True)(list_them)

    @group.command()
    def pause(
        target: Name,
        for_: For = None,
        reason: Reason = None,
        actor: options.Actor = None,
        url: options.Url = None,
        schema: options.Schema = options.DEFAULT_SCHEMA,
        as_json: options.AsJson = False,
    ) -> None:
        """Start no new jobs; running ones continue."""
        with open_app(url, schema) as app:
            switch = app.queues if name == "queues" else app.kinds
            paused = switch.pause(target, for_=for_, reason=reason, actor=options.acting(actor))
        if as_json:
            render.emit(paused)
        else:
            until = f" until {render.clean(paused.until)}" if paused.until else ""
            print(f"{noun} {paused.name} is paused{until}")

    @group.command()
    def resume(
        target: Name,
        actor: options.Actor = None,
        url: options.Url = None,
        schema: options.Schema = options.DEFAULT_SCHEMA,
        as_json: options.AsJson = False,
    ) -> None:
        """Start jobs again."""
        with open_app(url, schema) as app:
            switch = app.queues if name == "queues" else app.kinds
            was_paused = switch.resume(target, actor=options.acting(actor))
        if as_json:
            render.emit({"name": target, "was_paused": was_paused})
        else:
            print(f"{noun} {target} " + ("is resumed" if was_paused else "was not paused"))

    return group


def list_queues(
    context: typer.Context,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List queues and tasks: jobs by state, live workers, pauses."""
    if context.invoked_subcommand is not None:
        return
    with open_app(url, schema) as app:
        rows, label = app.__internals__.operations.list_queues(), app.__internals__.store.label
    render.show(
        rows,
        {
            "queue": lambda row: row.queue,
            "task": lambda row: row.kind,
            "workers": lambda row: row.workers,
            "jobs": lambda row: _counts(row.counts),
            "paused": lambda row: _pauses(row.queue_pause, row.kind_pause),
        },
        as_json=as_json,
        empty=f"{label} has never had a job; store one with leasehold enqueue",
        prose=("jobs", "paused"),
    )


def _counts(counts: dict[State, int]) -> str:
    return ", ".join(f"{n:,}{'+' if n >= COUNT_CAP else ''} {state}" for state, n in counts.items())


def _pauses(*pauses: PauseRecord | None) -> str:
    return "; ".join(_pause(pause) for pause in pauses if pause is not None)


def _pause(pause: PauseRecord) -> str:
    by = f" by {pause.paused_by}" if pause.paused_by else ""
    until = f" until {render.clean(pause.until)}" if pause.until else ""
    why = f": {pause.reason}" if pause.reason else ""
    return f"{'queue' if pause.scope == 'queue' else 'task'}{by}{until}{why}"


def list_lanes(
    context: typer.Context,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List lanes that are held or halted, and by which job."""
    if context.invoked_subcommand is not None:
        return
    with open_app(url, schema) as app:
        render.show(
            app.lanes.list(),
            {
                "lane": lambda lane: lane.lane,
                "state": lambda lane: lane.state,
                "id": lambda lane: lane.id,
                "task": lambda lane: lane.kind,
                "detail": lambda lane: lane.lease_owner or render.cut(lane.error or lane.reason, 60),
            },
            as_json=as_json,
            empty="no lane is held or halted",
            ids=app.__internals__.operations.short_ids,
        )


def resume_lane(
    lane: Name,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> int:
    """Resume the job that halts the lane. Exit code 4: nothing halts it."""
    with open_app(url, schema) as app:
        job = app.__internals__.operations.resume_lane(lane, actor=options.acting(actor))
    if as_json:
        render.emit({"lane": lane, "id": job and job.id, "state": job and job.state})
    elif job is not None:
        print(f"{job.id} {job.state}")
    else:
        complain(f"nothing halts lane {lane!r}")
    return Exit.REFUSED if job is None else Exit.OK


def list_workers(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List live workers, as each last reported."""
    with open_app(url, schema) as app:
        cards = app.__internals__.operations.list_workers()
    render.show(
        cards,
        {
            "worker": lambda card: card.owner,
            "queues": lambda card: ",".join(card.queues),
            "tasks": lambda card: len(card.kinds),
            "running": lambda card: card.running,
            "places": lambda card: card.concurrency,
            "version": lambda card: card.version,
            "seen": lambda card: render.ago(card.seen_at),
            "state": lambda card: "draining" if card.draining else "ok",
        },
        as_json=as_json,
        empty="no live workers; start one with leasehold worker MODULE:APP",
    )
