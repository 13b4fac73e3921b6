"""`audit`: changes by hand and refusals, with their actors."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from leasehold.domain.audit import AuditRow
from leasehold.operations.audit import list_audit
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.command import CommandCall, command


@command()
def audit(
    call: CommandCall,
    actor: Annotated[str | None, typer.Option(help="Only entries of this actor.", metavar="NAME")] = None,
    verb: Annotated[str | None, typer.Option(help="Such as job.cancel or queue.pause.")] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Only entries about this: a job's full id, a queue's name …", metavar="NAME"),
    ] = None,
    limit: options.Limit = 50,
    cursor: Annotated[
        str | None,
        typer.Option(help="Continue where the last page ended: the number that it printed.", metavar="SEQ"),
    ] = None,
) -> None:
    """List changes by hand and refusals, newest first. Each tenant has its own list: --tenant."""
    page = call.operations.call(list_audit, actor=actor, verb=verb, target=target, limit=limit, cursor=cursor)
    call.show(
        page.entries,
        {
            "seq": lambda row: row.seq,
            "at": lambda row: render.moment(row.at),
            "by": lambda row: row.actor,
            "verb": lambda row: row.verb,
            "target": lambda row: row.target,
            "detail": _detail,
        },
        empty=f"no matching entries in {call.label}",
        prose=("detail",),
    )
    if page.next is not None and not call.as_json:
        render.note(f"there are more: --cursor {page.next}")


def _detail(row: AuditRow) -> str:
    refused = [f"refused: {row.error}"] if row.outcome == "refused" else []
    return "; ".join([*refused, *(f"{name} {_formatted(value)}" for name, value in row.detail.items())])


def _formatted(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.15g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
