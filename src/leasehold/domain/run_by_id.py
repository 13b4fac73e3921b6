"""Results of `run_by_id`: why a job cannot run now, and when to try again."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job
from leasehold.domain.states import State

SOON = 5.0
"""Seconds to wait when no time is known: the job waits for a lane, a slot, a rate, a pause or another job."""
ELSEWHERE = 30.0
"""Seconds to wait for a task not registered here: as long as a worker leaves such a job to others."""


@frozen
class NotRun:
    """`run_by_id` left the job unchanged. `retry_in`: seconds after which to try again. None: the job is at rest,
    waits for a person, or does not exist, so a message that carried its id can be acknowledged."""

    job_id: str
    state: State | None
    """None: there is no such job."""
    why: str
    retry_in: float | None


def ask_again_in(job: Job, now: datetime) -> float | None:
    """Seconds after which a claim of this job may succeed. None: not before someone acts on the job."""
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
