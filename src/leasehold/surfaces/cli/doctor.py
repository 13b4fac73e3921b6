"""`doctor`: is everything around the jobs well?"""

from __future__ import annotations

import typer

from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app
from leasehold.surfaces.cli.problems import Exit


def add_to(cli: typer.Typer) -> None:
    cli.command()(doctor)


def doctor(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> int:
    """Look for what costs or breaks: clock, disk, pooler, schema, lanes, leases. Exit code 1 when something is bad."""
    with open_app(url, schema) as app:
        findings = app.operations.examine()
        label = app.store.label
    if as_json:
        for finding in findings:
            render.emit(finding)
    else:
        render.note(label)
        render.table(
            ("check", "verdict", "found", "remedy"),
            [(found.check, found.verdict, found.detail, found.remedy) for found in findings],
        )
    return Exit.JOB_FAILED if any(found.verdict == "bad" for found in findings) else Exit.OK
