"""One job by its id: what a caller is told who may not run it now, and when to come back."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job
from leasehold.domain.states import State

SOON = 5.0
"""Seconds, where nobody knows when: a lane, a slot, a rate, a pause, another job."""
ELSEWHERE = 30.0
"""Seconds, for a task that is not known here: as long as a worker leaves such a job to others."""


@frozen
class NotRun:
    """`run_by_id` has left the job as it was. `retry_in`: seconds after which it is worth asking again; None: it is at
    rest, waits for somebody's word, or is not there, so a message that brought its id is done with."""

    job_id: str
    state: State | None
    """None: there is no such job."""
    why: str
    retry_in: float | None


def ask_again_in(job: Job, now: datetime) -> float | None:
    """Seconds after which a claim of this job may have more luck; None: not before somebody acts."""
    match job.state:
        case State.QUEUED:
            return (job.available_at - now).total_seconds() if job.available_at > now else SOON
        case State.RUNNING:
            left = 0.0 if job.lease_expires_at is None else (job.lease_expires_at - now).total_seconds()
            return left if left > 0 else SOON
        case State.PENDING:
            return SOON if job.unmet and not job.held else None
        case _:
            return None
