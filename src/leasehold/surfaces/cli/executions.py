"""`executions list|abandon`: commands and containers outside the workers, and orphans to give up."""

from __future__ import annotations

from leasehold.domain.records import ExecutionRow
from leasehold.operations import workers as verbs
from leasehold.surfaces.cli import options, render
from leasehold.surfaces.cli.command import Call, command, noun
from leasehold.surfaces.cli.verbs import add

executions = noun("executions")


def _watcher(row: ExecutionRow) -> str:
    watcher = row.worker or "none (orphan)"
    return watcher if row.stop_requested is None else f"{watcher}, {row.stop_requested} requested"


add(
    executions,
    verbs.list_executions,
    columns={
        "id": "job_id",
        "task": "task",
        "attempt": "attempt",
        "started": lambda row: "not yet" if row.started_at is None else render.ago(row.started_at),
        "watched by": _watcher,
        "at": "site",
    },
    empty="no commands or containers are running",
    ids=True,
)


@command(executions, acts=True)
def abandon(
    call: Call, job_id: options.JobId, yes: options.Yes = False, reason: options.JobReason = None
) -> None:
    """Give up on an orphan whose machine is gone for good. No worker will adopt it, and it counts as a failure. If it
    still runs after all, the next attempt runs beside it."""
    row = call.operations.get(call.operations.find_id(job_id))
    if row.orphan and not yes:
        where = f"{row.execution_name} may still run at {row.execution_site}"
        remedy = "give it only if that machine is gone for good"
        if not call.confirm(f"{where}. Is that machine gone for good?", f"is needed: {where}", remedy):
            return
    job = call.operations.abandon(row.id, reason=reason, actor=call.actor)
    call.report({"id": job.id, "state": job.state}, f"{job.id} {job.state}")
