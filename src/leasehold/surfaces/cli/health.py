"""`health`: a probe for monitors and orchestrators."""

from __future__ import annotations

import typer

from leasehold.domain.errors import StoreError
from leasehold.domain.views import Finding
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app
from leasehold.surfaces.cli.problems import Exit


def add_to(cli: typer.Typer) -> None:
    cli.command()(health)


def health(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> int:
    """Check the database, its schema, and that a worker is live. Exit code 1: one of them is not well."""
    try:
        with open_app(url, schema) as app:
            findings = app.__internals__.operations.check_health()
    except StoreError as error:  # there is no file
        findings = [Finding("database", "bad", str(error))]
    well = all(found.verdict == "ok" for found in findings)
    if as_json:
        render.emit({"ok": well, "checks": findings})
    else:
        columns: render.Columns[Finding] = {
            "check": lambda found: found.check,
            "verdict": lambda found: found.verdict,
            "found": lambda found: found.detail,
            "remedy": lambda found: found.remedy,
        }
        render.show(findings, columns, prose=("found", "remedy"))
    return Exit.OK if well else Exit.JOB_FAILED
