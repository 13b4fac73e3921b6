"""`runs` and `abandon`: what runs outside of the workers, and what will never be found again."""

from __future__ import annotations

from typing import Annotated

import typer

from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import Job
from leasehold.domain.views import ExecutionRow
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.load import open_app
from leasehold.surfaces.cli.problems import Exit


def add_to(cli: typer.Typer) -> None:
    cli.command("runs")(list_runs)
    cli.command()(abandon)


def list_runs(
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> None:
    """List running commands and containers, and who watches them. An orphan is one that nobody watches."""
    with open_app(url, schema) as app:
        operations = app.__internals__.operations
        rows = app.executions()
        short = operations.short_ids([row.job_id for row in rows])
    render.show(
        rows,
        {
            "job": lambda row: short[row.job_id],
            "task": lambda row: row.kind,
            "attempt": lambda row: str(row.attempt),
            "started": lambda row: "not yet" if row.started_at is None else render.ago(row.started_at),
            "watched by": _watcher,
            "at": lambda row: row.site,
        },
        as_json=as_json,
        empty="no commands or containers are running",
    )


def _watcher(row: ExecutionRow) -> str:
    watcher = row.owner or "nobody (orphan)"
    return watcher if row.stop_requested is None else f"{watcher}, {row.stop_requested} requested"


def abandon(
    job_id: options.JobId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    reason: Annotated[str | None, typer.Option(help="Kept with the job.", metavar="TEXT")] = None,
    actor: options.Actor = None,
    url: options.Url = None,
    schema: options.Schema = options.DEFAULT_SCHEMA,
    as_json: options.AsJson = False,
) -> int:
    """Give up on an orphan whose machine is gone for good. No worker will adopt it, and it counts as a failure. If it
    still runs after all, the next attempt runs beside it."""
    with open_app(url, schema) as app:
        operations = app.__internals__.operations
        row = operations.get(operations.find_id(job_id))
        if row.orphan and not yes and not _is_gone(row):
            return Exit.OK
        job = operations.abandon(row.id, reason=reason, actor=options.acting(actor))
    if as_json:
        render.emit({"id": job.id, "state": job.state})
    else:
        print(f"{job.id} {job.state}")
    return Exit.OK


def _is_gone(row: Job) -> bool:
    """Ask the person at the terminal; without one, only --yes will do."""
    where = f"{row.execution_name} may still run at {row.execution_site}"
    if not render.on_terminal():
        raise InvalidInput("--yes", f"is needed: {where}", "give it only if that machine is gone for good")
    return typer.confirm(f"{where}. Is that machine gone for good?", err=True)
