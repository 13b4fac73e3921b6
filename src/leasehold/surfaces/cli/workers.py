"""`workers list|leases|health|metrics` and `executions list|abandon`: the workers, and executions outside
of them."""

from __future__ import annotations

from leasehold.domain.errors import StoreError
from leasehold.domain.records import ExecutionRow, Finding, LeaseRow, WorkerCard
from leasehold.operations import jobs
from leasehold.operations import workers as verbs
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.command import CommandCall, command, noun
from leasehold.surfaces.cli.problems import Exit
from leasehold.surfaces.cli.verbs import add

workers = noun("workers")


def _worker(row: LeaseRow) -> str:
    worker = row.worker or ""
    return worker if row.stop_requested is None else f"{worker}, {row.stop_requested} requested"


def _expiry(row: LeaseRow) -> str:
    return (
        f"in {render.span(row.expires_in)}" if row.expires_in >= 0 else f"{render.span(-row.expires_in)} ago"
    )


def _state(card: WorkerCard) -> str:
    problems = [
        one.text if one.tenant is None else f"tenant {one.tenant}: {one.text}" for one in card.problems
    ]
    return "; ".join((["draining"] if card.draining else []) + problems) or "ok"


add(
    workers,
    verbs.list_workers,
    columns={
        "worker": "name",
        "queues": lambda card: ",".join(card.queues),
        "tasks": lambda card: len(card.tasks),
        "running": "running",
        "places": "concurrency",
        "version": "version",
        "seen": lambda card: render.ago(card.seen_at),
        "state": _state,
    },
    empty="no live workers; start one with leasehold worker MODULE:APP",
)
add(
    workers,
    verbs.list_leases,
    columns={
        "id": "job_id",
        "task": "task",
        "queue": "queue",
        "attempt": "attempt",
        "worker": _worker,
        "since": lambda row: render.ago(row.started_at),
        "expires": _expiry,
    },
    empty="nothing is running",
    ids=True,
)


@command(workers)
def health(call: CommandCall) -> int:
    """Check the database, its schema, and that a worker is live. Exit code 1: a check failed."""
    try:
        findings = call.operations.check_health()
    except StoreError as error:  # the SQLite file does not exist
        findings = [Finding("database", "bad", str(error))]
    well = all(found.verdict == "ok" for found in findings)
    if call.as_json:
        render.emit({"ok": well, "checks": findings})
    else:
        render.show_findings(findings)
    return Exit.OK if well else Exit.JOB_FAILED


@command(workers)
def metrics(call: CommandCall) -> None:
    """Print metrics for Prometheus, or with --json as JSON. Attempts by outcome, waiting and running times, queue
    depths and ages."""
    from leasehold.surfaces.prometheus import text_of

    found = call.operations.metrics()
    if call.as_json:
        render.emit(found)
    else:
        print(render.clean(text_of(found)), end="")


# -- executions --------------------------------------------------------------------------------------------------------

executions = noun("executions")


def _watcher(row: ExecutionRow) -> str:
    watcher = row.worker or "no worker"
    return watcher if row.stop_requested is None else f"{watcher}, {row.stop_requested} requested"


add(
    executions,
    verbs.list_executions,
    columns={
        "id": "job_id",
        "task": "task",
        "attempt": "attempt",
        "started": lambda row: "not yet" if row.started_at is None else render.ago(row.started_at),
        "worker": _watcher,
        "at": "site",
    },
    empty="no commands or containers are running",
    ids=True,
)


@command(executions, acts=True)
def abandon(
    call: CommandCall, job_id: options.JobId, yes: options.Yes = False, reason: options.JobReason = None
) -> None:
    """Give up an execution whose machine is gone for good. No worker will adopt it, and it counts as a failure. If it
    still runs after all, the next attempt runs beside it."""
    row = call.operations.call(jobs.get, call.operations.find_id(job_id))
    if row.orphan and not yes:
        where = f"{row.execution_name} may still run at {row.execution_site}"
        remedy = "give it only if that machine is gone for good"
        if not call.confirm(f"{where}. Is that machine gone for good?", f"is needed: {where}", remedy):
            return
    job = call.operations.call(jobs.abandon, row.id, reason=reason, actor=call.actor)
    call.report({"id": job.id, "state": job.state}, f"{job.id} {job.state}")
