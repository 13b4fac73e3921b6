"""Expiry: what happens to a job whose time is over, decided the same for the sweep and the claim."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from leasehold.domain.job import Job
from leasehold.domain.lanes import STARTED
from leasehold.domain.states import State
from leasehold.domain.transitions import Move


def time_is_over(job: Job, now: datetime) -> bool:
    return _past_deadline(job, now) or _past_start(job, now)


def expired(job: Job, now: datetime) -> Move | None:
    """Return the move that ends the job. None: it has time left."""
    if _past_deadline(job, now):
        after = replace(
            job,
            state=State.TIMED_OUT,
            finished_at=now,
            reason="the job's deadline has passed",
            held=False,
            halts_lane=_keeps_lane(job) and job.policy.on_failure == "halt",
        )
    elif _past_start(job, now):
        after = replace(
            job, state=State.CANCELLED, finished_at=now, reason="it was not started in time", held=False
        )
    else:
        return None
    return Move(job, after, "expired", detail=after.reason)


def granted_too_late(job: Job) -> bool:
    """Whether the job was granted after its time was over, and so never ran: the claim that took it died first."""
    if job.started_at is None or job.execution_site is not None:
        return False
    return time_is_over(before_grant(job), job.started_at)


def before_grant(job: Job) -> Job:
    """Return a running job as it was before a grant that was never used: the attempt's number is free again."""
    first = job.attempt == 1
    return replace(
        job,
        attempt=job.attempt - 1,
        started_at=None,
        first_started_at=None if first else job.first_started_at,
    )


def _keeps_lane(job: Job) -> bool:
    """Whether the job has started in its lane and still keeps it: after a skip, another job may run there."""
    return job.attempt > 0 and job.lane_at == STARTED


def _past_deadline(job: Job, now: datetime) -> bool:
    return job.deadline_at is not None and job.deadline_at <= now


def _past_start(job: Job, now: datetime) -> bool:
    return job.start_by is not None and job.start_by <= now and job.attempt == 0
