"""The document's words for what Leasehold tells of a job."""

from __future__ import annotations

from typing import Any

from leasehold import Job, State
from leasehold.types import Summary

STATUS = {
    State.PENDING: "PENDING",
    State.QUEUED: "QUEUED",
    State.RUNNING: "RUNNING",
    State.PAUSED: "PAUSED",
    State.WAITING: "PAUSED",  # no agent here asks questions; one that did would stand still as well
    State.FAILED: "ERROR",
    State.TIMED_OUT: "ERROR",
    State.SUCCEEDED: "SUCCESS",
    State.CANCELLED: "CANCELED",
}

INTERRUPTED = "Job was interrupted by user"


def job_fields(job: Job[Any] | Summary) -> dict[str, Any]:
    """Of one job, or of a row of a list."""
    return {
        "id": job.id,
        "status": STATUS[job.state],
        "message": message(job),
        "attempt": job.attempt,
        "lease_owner": job.worker,
        "lease_expires_at": job.lease_expires_at,
        "cancel_requested": job.stop_requested is not None,
        "updated_at": job.updated_at,
    }


def message(job: Job[Any] | Summary) -> str | None:
    """Why it stands still or has ended badly. The stack that follows the first line of an error is for
    `leasehold jobs show`."""
    if job.state in (State.FAILED, State.TIMED_OUT):
        return (job.error or "").partition("\n")[0]
    return job.reason if job.state in (State.PAUSED, State.CANCELLED) else None
