"""`failures`: what went wrong lately, a line for all that went wrong in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app

if TYPE_CHECKING:
    from leasehold.domain.failures import Failures


def add_to(cli: typer.Typer) -> None:
    cli.command("failures")(list_failures)


def list_failures(
    queue: options.Queue = None,
    kind: options.Kind = None,
    lane: options.Lane = None,
    group: options.Group = None,
    tag: options.Tag = None,
    limit: Annotated[
        int, typer.Option(help="Look at this many failed jobs, up to 10,000.", metavar="NUMBER")
    ] = 1000,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List recent failures by task and error, most frequent first. Errors that differ only in details count as one."""
    from leasehold.domain.views import Filter

    filter = Filter(queue=queue, kind=kind, lane=lane, group=group, tag=tag)
    with open_app(url, schema) as app:
        operations = app.__internals__.operations
        found = operations.list_failures(limit, filter)
        render.show(
            found.groups,
            {
                "jobs": lambda one: f"{one.count:,}",
                "task": lambda one: one.kind,
                "last": lambda one: render.ago(one.newest),
                "id": lambda one: one.sample_id,
                "error": lambda one: one.fingerprint or "(no error recorded)",
            },
            as_json=as_json,
            empty="nothing has failed",
            prose=("error",),
            ids=operations.short_ids,
        )
    if not as_json:
        _tell(found)


def _tell(found: Failures) -> None:
    if found.left_out:
        render.note(f"{found.left_out:,} more, no more frequent than these, are left out")
    if found.cut:
        render.note(f"these are from the newest {found.looked:,} failed jobs; --limit looks at more")
