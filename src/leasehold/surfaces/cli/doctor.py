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
    """Look for problems: clock, disk, pooler, schema, jobs, leases. Exit code 1: something is bad."""
    with open_app(url, schema) as app:
        findings = app.__internals__.operations.examine()
        label = app.__internals__.store.label
    if not as_json:
        render.note(label)
    render.show(
        findings,
        {
            "check": lambda found: found.check,
            "verdict": lambda found: found.verdict,
            "found": lambda found: found.detail,
            "remedy": lambda found: found.remedy,
        },
        as_json=as_json,
        prose=("found", "remedy"),
    )
    return Exit.JOB_FAILED if any(found.verdict == "bad" for found in findings) else Exit.OK
