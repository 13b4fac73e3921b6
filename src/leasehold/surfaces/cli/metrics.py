"""`metrics`: what a scrape of the HTTP API would get."""

from __future__ import annotations

import typer

from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app
from leasehold.surfaces.prometheus import text_of


def add_to(cli: typer.Typer) -> None:
    cli.command()(metrics)


def metrics(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """Print metrics for Prometheus, or with --json as JSON. Runs by outcome, waiting and running times, queue depths
    and ages."""
    with open_app(url, schema) as app:
        found = app.metrics()
    if as_json:
        render.emit(found)
    else:
        print(render.clean(text_of(found)), end="")
