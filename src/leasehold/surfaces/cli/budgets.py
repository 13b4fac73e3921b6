"""`top-up`: let a job spend more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from leasehold.domain.budgets import BudgetLine
from leasehold.domain.errors import InvalidInput
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app


def add_to(cli: typer.Typer) -> None:
    cli.command("top-up")(top_up)


def top_up(
    job_id: options.JobId,
    amounts: Annotated[
        list[str],
        typer.Argument(metavar="UNIT=AMOUNT", help="By how much to raise the limit, such as tokens=50000."),
    ],
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Raise the limits of a job's budget. A job that went over its budget can then be resumed."""
    wanted = dict(map(_amount, amounts))
    with open_app(url, schema) as app:
        operations = app.__internals__.operations
        lines = operations.top_up(operations.find_id(job_id), wanted, actor=options.acting(actor))
    if as_json:
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
