"""`limits slots|rates|budgets|top-up`: limits across all workers on concurrency, starts and spending."""

from __future__ import annotations

import sys

from leasehold.domain.budgets import BudgetLine
from leasehold.domain.records import RateRow, SlotRow
from leasehold.operations import budgets
from leasehold.operations import limits as verbs
from leasehold.surfaces.cli import render
from leasehold.surfaces.cli.command import CommandCall, command, noun
from leasehold.surfaces.cli.verbs import add

MOST_HOLDERS = 3
"""Holders that the list names; the others are counted."""

limits = noun("limits")
slots = noun("slots", "List or set slots: how many units may be in use at once.", below=limits)
rates = noun("rates", "List, set, close or open rates: how often jobs may start.", below=limits)


@command(slots, "list")
def list_slots(call: CommandCall) -> None:
    """List slots: limit, units in use, and by which jobs."""
    rows = call.operations.call(verbs.list_slots)
    listed = [holder.job_id for row in rows for holder in row.holders[:MOST_HOLDERS]]
    short = call.operations.short_ids(listed) if sys.stdout.isatty() else {}

    def holders(row: SlotRow) -> str:
        shown = ", ".join(f"{short.get(h.job_id, h.job_id)} ({h.units})" for h in row.holders[:MOST_HOLDERS])
        more = len(row.holders) - MOST_HOLDERS
        return f"{shown} and {more} more" if more > 0 else shown

    call.show(
        rows,
        {"slot": "name", "limit": "limit", "used": "used", "holders": holders},
        empty="no slots; set one with leasehold limits slots set NAME LIMIT",
        prose=("holders",),
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


def _number(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


LINES: render.Columns[BudgetLine] = {
    "of": lambda line: f"group {line.name}" if line.scope == "group" else line.scope,
    "unit": "unit",
    "spent": lambda line: f"{line.spent:,}",
    "limit": lambda line: _number(line.limit),
    "left": lambda line: _number(line.left),
}


add(slots, verbs.set_slot, "slot {name}: at most {limit} at once")
add(
    rates,
    verbs.list_rates,
    columns={"key": "key", "limit": "limit", "burst": "burst", "next": _next, "closed": _closed},
    empty="no rates; set one with leasehold limits rates set KEY 60/min",
    prose=("closed",),
)
add(rates, verbs.set_rate, "rate {key}: {limit}, burst {burst}")
add(
    rates,
    verbs.close_rate,
    lambda _, given: f"rate {given['key']} is closed" + (f" for {given['for']}" if given["for"] else ""),
)
add(rates, verbs.open_rate, "rate {key} is open", "rate {key} was not closed")
add(
    limits,
    budgets.list_budgets,
    columns={
        "of": lambda row: f"group {row.name}" if row.scope == "group" else row.name,
        "task": "task",
        "unit": "unit",
        "spent": lambda row: f"{row.spent:,}" + (" in its attempt" if row.scope == "attempt" else ""),
        "limit": lambda row: _number(row.limit),
        "left": lambda row: "exhausted" if row.exhausted else _number(row.left),
        "on breach": "on_breach",
    },
    empty="no budget is set, and nothing was spent",
)
add(limits, budgets.top_up, columns=LINES)
add(limits, budgets.set_group_budget, columns=LINES)
