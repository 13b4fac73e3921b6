"""`limits slots|rates|budgets|top-up`: what may run at once, start, and be spent, across all workers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, cast

import typer

from leasehold.domain.budgets import BudgetLine, BudgetOwner, BudgetRow
from leasehold.domain.errors import InvalidInput
from leasehold.domain.records import RateRow, SlotRow
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.command import Call, command, noun

Key = Annotated[str, typer.Argument(metavar="KEY")]
NAMED = 3
"""Holders that are named; the others are counted."""

limits = noun("limits")
slots = noun("slots", "List or set slots: how many units may be in use at once.", below=limits)
rates = noun("rates", "List, set, close or open rates: how often jobs may start.", below=limits)


@command(slots, "list")
def list_slots(call: Call) -> None:
    """List slots: limit, units in use, and by which jobs."""
    rows = call.app.slots.list()
    listed = [holder.job_id for row in rows for holder in row.holders[:NAMED]]
    short = call.operations.short_ids(listed) if sys.stdout.isatty() else {}
    call.show(
        rows,
        {
            "slot": lambda row: row.name,
            "limit": lambda row: row.limit,
            "used": lambda row: row.used,
            "holders": lambda row: _holders(row, short),
        },
        empty="no slots; set one with leasehold limits slots set NAME LIMIT",
        prose=("holders",),
    )


def _holders(row: SlotRow, short: Mapping[str, str]) -> str:
    shown = ", ".join(f"{short.get(h.job_id, h.job_id)} ({h.units})" for h in row.holders[:NAMED])
    more = len(row.holders) - NAMED
    return f"{shown} and {more} more" if more > 0 else shown


@command(slots, "set", acts=True)
def set_slot(
    call: Call, name: options.Name, limit: Annotated[int, typer.Argument(metavar="LIMIT", min=0)]
) -> None:
    """Let at most LIMIT units be in use at once, across all workers. 0 closes the slot."""
    call.app.slots.set(name, limit, actor=call.actor)
    call.report({"name": name, "limit": limit}, f"slot {name}: at most {limit} at once")


@command(rates, "list")
def list_rates(call: Call) -> None:
    """List rates: limit, when the next job may start, who closed it."""
    call.show(
        call.app.rates.list(),
        {
            "key": lambda row: row.key,
            "limit": lambda row: row.limit,
            "burst": lambda row: row.burst,
            "next": _next,
            "closed": _closed,
        },
        empty="no rates; set one with leasehold limits rates set KEY 60/min",
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


@command(rates, "set", acts=True)
def set_rate(
    call: Call,
    key: Key,
    limit: Annotated[str, typer.Argument(metavar="LIMIT", help="Such as 60/min, 5/s, 3/10s.")],
    burst: Annotated[int, typer.Option(help="How many may start at once after a quiet time.", min=1)] = 1,
) -> None:
    """Let jobs of KEY start evenly, no more often than LIMIT."""
    call.app.rates.set(key, limit, burst=burst, actor=call.actor)
    call.report({"key": key, "limit": limit, "burst": burst}, f"rate {key}: {limit}, burst {burst}")


@command(rates, "close", acts=True)
def close_rate(
    call: Call,
    key: Key,
    for_: Annotated[
        str | None, typer.Option("--for", help="Open on its own after this long.", metavar="DURATION")
    ] = None,
    reason: options.Reason = None,
) -> None:
    """Start no job of KEY, on any worker; running ones continue."""
    call.app.rates.close(key, for_=for_, reason=reason, actor=call.actor)
    call.report({"key": key, "closed": True}, f"rate {key} is closed" + (f" for {for_}" if for_ else ""))


@command(rates, "open", acts=True)
def open_rate(call: Call, key: Key) -> None:
    """Start jobs of KEY again."""
    was_closed = call.app.rates.open(key, actor=call.actor)
    text = f"rate {key} is open" if was_closed else f"rate {key} was not closed"
    call.report({"key": key, "was_closed": was_closed}, text)


@command(limits, "budgets")
def list_budgets(
    call: Call,
    of: Annotated[str | None, typer.Option("--of", help="job or group.", metavar="SCOPE")] = None,
    limit: options.Limit = 50,
    cursor: options.Cursor = None,
    all_: options.AllPages = False,
) -> None:
    """List what groups and jobs have spent, and what they may. Jobs are listed once they have spent something."""
    scope = cast("BudgetOwner", of)
    call.show_pages(
        lambda limit, cursor: call.app.budgets(scope=scope, limit=limit, cursor=cursor),
        "budgets",
        {
            "of": lambda row: f"group {row.name}" if row.scope == "group" else row.name,
            "task": lambda row: row.task,
            "unit": lambda row: row.unit,
            "spent": lambda row: f"{row.spent:,}" + (" in its run" if row.scope == "run" else ""),
            "limit": lambda row: "" if row.limit is None else f"{row.limit:,}",
            "left": _left,
            "on breach": lambda row: row.on_breach,
        },
        limit,
        cursor,
        all_,
        empty="no budget is set, and nothing was spent",
    )


def _left(row: BudgetRow) -> str:
    if row.left is None:
        return ""
    return "exhausted" if row.exhausted else f"{row.left:,}"


@command(limits, "top-up", acts=True)
def top_up(
    call: Call,
    job_id: options.JobId,
    amounts: Annotated[
        list[str],
        typer.Argument(metavar="UNIT=AMOUNT", help="By how much to raise the limit, such as tokens=50000."),
    ],
) -> None:
    """Raise the limits of a job's budget. A job that went over its budget can then be resumed."""
    wanted = dict(map(_amount, amounts))
    lines = call.operations.top_up(call.operations.find_id(job_id), wanted, actor=call.actor)
    if call.as_json:
        render.emit(lines)
    else:
        show_lines(lines)


def show_lines(lines: Iterable[BudgetLine]) -> None:
    render.show(
        lines,
        {
            "of": lambda line: f"group {line.name}" if line.scope == "group" else line.scope,
            "unit": lambda line: line.unit,
            "spent": lambda line: f"{line.spent:,}",
            "limit": lambda line: "" if line.limit is None else f"{line.limit:,}",
            "left": lambda line: "" if line.left is None else f"{line.left:,}",
        },
    )


def _amount(text: str) -> tuple[str, int]:
    unit, _, amount = text.partition("=")
    try:
        return unit, int(amount.replace("_", "").replace(",", ""))
    except ValueError:
        raise InvalidInput("amount", f"{text!r} is not UNIT=AMOUNT", "write tokens=50000") from None
