"""`sweep`: take over what was lost, now."""

from __future__ import annotations

from typing import Annotated

import typer

from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app

Wait = Annotated[
    str | None,
    typer.Option(help="How long to wait, at most, for the second look at missed leases.", metavar="DURATION"),
]


def add_to(cli: typer.Typer) -> None:
    cli.command()(sweep)


def sweep(
    wait: Wait = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Take over jobs of lost workers, and end those out of time. Workers do this by themselves."""
    with open_app(url, schema) as app:
        reaped = app.sweep(wait)
    if not as_json and not reaped:
        print("nothing was lost")
        return
    render.show(
        reaped,
        {
            "job": lambda lost: lost.id,
            "now": lambda lost: "orphan" if lost.orphan else lost.state.value,
            "lost by": lambda lost: lost.owner,
        },
        as_json=as_json,
    )
