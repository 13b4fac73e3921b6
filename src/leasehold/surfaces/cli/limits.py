"""`slots` and `rates`: limits across all workers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from leasehold.domain.views import RateRow, SlotRow
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app

Name = Annotated[str, typer.Argument(metavar="NAME")]
Key = Annotated[str, typer.Argument(metavar="KEY")]
NAMED = 3
"""Holders that are named; the others are counted."""


def add_to(cli: typer.Typer) -> None:
    slots = typer.Typer(
        name="slots", help="List or set slots: how many units may be in use at once.", rich_markup_mode=None
    )
    slots.callback(invoke_without_command=True)(show_slots)
    slots.command("list")(list_slots)
    slots.command("set")(set_slot)
    cli.add_typer(slots)
    rates = typer.Typer(
        name="rates", help="List, set, close or open rates: how often jobs may start.", rich_markup_mode=None
    )
    rates.callback(invoke_without_command=True)(show_rates)
    rates.command("list")(list_rates)
    rates.command("set")(set_rate)
    rates.command("close")(close_rate)
    rates.command("open")(open_rate)
    cli.add_typer(rates)


def show_slots(
    context: typer.Context,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List slots: limit, units in use, and by which jobs."""
    if context.invoked_subcommand is None:
        list_slots(url, schema, as_json)


def list_slots(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List slots: limit, units in use, and by which jobs."""
    with open_app(url, schema) as app:
        rows = app.slots.list()
        listed = [holder.job_id for row in rows for holder in row.holders[:NAMED]]
        short = app.__internals__.operations.short_ids(listed) if sys.stdout.isatty() else {}
    render.show(
        rows,
        {
            "slot": lambda row: row.name,
            "limit": lambda row: row.limit,
            "used": lambda row: row.used,
            "holders": lambda row: _holders(row, short),
        },
        as_json=as_json,
        empty="no slots; set one with leasehold slots set NAME LIMIT",
        prose=("holders",),
    )


def _holders(row: SlotRow, short: Mapping[str, str]) -> str:
    shown = ", ".join(f"{short.get(h.job_id, h.job_id)} ({h.units})" for h in row.holders[:NAMED])
    more = len(row.holders) - NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def set_slot(
    name: Name,
    limit: Annotated[int, typer.Argument(metavar="LIMIT", min=0)],
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Let at most LIMIT units be in use at once, across all workers. 0 closes the slot."""
    with open_app(url, schema) as app:
        app.slots.set(name, limit, actor=options.acting(actor))
    if as_json:
        render.emit({"name": name, "limit": limit})
    else:
        print(f"slot {name}: at most {limit} at once")


def show_rates(
    context: typer.Context,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List rates: limit, when the next job may start, who closed it."""
    if context.invoked_subcommand is None:
        list_rates(url, schema, as_json)


def list_rates(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List rates: limit, when the next job may start, who closed it."""
    with open_app(url, schema) as app:
        rows = app.rates.list()
    render.show(
        rows,
        {
            "key": lambda row: row.key,
            "limit": lambda row: row.limit,
            "burst": lambda row: row.burst,
            "next": _next,
            "closed": _closed,
        },
        as_json=as_json,
        empty="no rates; set one with leasehold rates set KEY 60/min",
        prose=("closed",),
    )


def _next(row: RateRow) -> str:
    if row.next_in is None:
        return "when opened"
    return "now" if row.next_in == 0 else f"in {_span(row.next_in)}"


def _span(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else render.span(seconds)


def _closed(row: RateRow) -> str:
    if not row.closed:
        return ""
    by = f" by {row.closed_by}" if row.closed_by else ""
    until = f" until {render.clean(row.closed_until)}" if row.closed_until else ""
    why = f": {row.closed_reason}" if row.closed_reason else ""
    return f"closed{by}{until}{why}"


def set_rate(
    key: Key,
    limit: Annotated[str, typer.Argument(metavar="LIMIT", help="Such as 60/min, 5/s, 3/10s.")],
    burst: Annotated[int, typer.Option(help="How many may start at once after a quiet time.", min=1)] = 1,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Let jobs of KEY start evenly, no more often than LIMIT."""
    with open_app(url, schema) as app:
        app.rates.set(key, limit, burst=burst, actor=options.acting(actor))
    if as_json:
        render.emit({"key": key, "limit": limit, "burst": burst})
    else:
        print(f"rate {key}: {limit}, burst {burst}")


def close_rate(
    key: Key,
    for_: Annotated[
        str | None, typer.Option("--for", help="Open on its own after this long.", metavar="DURATION")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Shown to anyone who asks why.", metavar="TEXT")] = None,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Start no job of KEY, on any worker; running ones continue."""
    with open_app(url, schema) as app:
        app.rates.close(key, for_=for_, reason=reason, actor=options.acting(actor))
    if as_json:
        render.emit({"key": key, "closed": True})
    else:
        print(f"rate {key} is closed" + (f" for {for_}" if for_ else ""))


def open_rate(
    key: Key,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Start jobs of KEY again."""
    with open_app(url, schema) as app:
        was_closed = app.rates.open(key, actor=options.acting(actor))
    if as_json:
        render.emit({"key": key, "was_closed": was_closed})
    else:
        print(f"rate {key} is open" if was_closed else f"rate {key} was not closed")
