"""`workers list|leases|health|metrics`: the processes that run jobs, what they hold, and how they are."""

from __future__ import annotations

from typing import Annotated

import typer

from leasehold.domain.errors import StoreError
from leasehold.domain.leases import LeaseRow
from leasehold.domain.records import Finding
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.command import Call, command, noun
from leasehold.surfaces.cli.problems import Exit

workers = noun("workers")


@command(workers, "list")
def list_workers(call: Call) -> None:
    """List live workers, as each last reported."""
    call.show(
        call.operations.list_workers(),
        {
            "worker": lambda card: card.name,
            "queues": lambda card: ",".join(card.queues),
            "tasks": lambda card: len(card.tasks),
            "running": lambda card: card.running,
            "places": lambda card: card.concurrency,
            "version": lambda card: card.version,
            "seen": lambda card: render.ago(card.seen_at),
            "state": lambda card: "draining" if card.draining else "ok",
        },
        empty="no live workers; start one with leasehold worker MODULE:APP",
    )


@command(workers, "leases")
def list_leases(
    call: Call,
    worker: Annotated[str | None, typer.Option(help="Of this worker.", metavar="NAME")] = None,
    limit: options.Limit = 50,
    cursor: options.Cursor = None,
    all_: options.AllPages = False,
) -> None:
    """List leases: which worker runs which job, and until when. A lease runs out unless it is renewed."""
    call.show_pages(
        lambda limit, cursor: call.app.leases(worker=worker, limit=limit, cursor=cursor),
        "leases",
        {
            "id": lambda row: row.job_id,
            "task": lambda row: row.task,
            "queue": lambda row: row.queue,
            "attempt": lambda row: str(row.attempt),
            "worker": _holder,
            "since": lambda row: render.ago(row.started_at),
            "expires": _expiry,
        },
        limit,
        cursor,
        all_,
        empty="nothing is running",
        ids=True,
    )


def _holder(row: LeaseRow) -> str:
    worker = row.worker or ""
    return worker if row.stop_requested is None else f"{worker}, {row.stop_requested} requested"


def _expiry(row: LeaseRow) -> str:
    return (
        f"in {render.span(row.expires_in)}" if row.expires_in >= 0 else f"{render.span(-row.expires_in)} ago"
    )


@command(workers)
def health(call: Call) -> int:
    """Check the database, its schema, and that a worker is live. Exit code 1: one of them is not well."""
    try:
        findings = call.operations.check_health()
    except StoreError as error:  # there is no file
        findings = [Finding("database", "bad", str(error))]
    well = all(found.verdict == "ok" for found in findings)
    if call.as_json:
        render.emit({"ok": well, "checks": findings})
    else:
        render.show_findings(findings)
    return Exit.OK if well else Exit.JOB_FAILED


@command(workers)
def metrics(call: Call) -> None:
    """Print metrics for Prometheus, or with --json as JSON. Runs by outcome, waiting and running times, queue depths
    and ages."""
    from leasehold.surfaces.prometheus import text_of

    found = call.app.metrics()
    if call.as_json:
        render.emit(found)
    else:
        print(render.clean(text_of(found)), end="")
