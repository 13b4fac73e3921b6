"""Logs the life of jobs at the logger `leasehold.jobs`: one line for a start, an end, a retry, a loss.

Each line carries job, task, attempt, queue and, unless it was lost, lease as fields. For a level that is off nothing is
formatted: a worker ends thousands of jobs a second.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from leasehold.domain.job import Grant, Job
from leasehold.domain.outcome import Outcome, Snoozed, Success
from leasehold.domain.records import Reaped
from leasehold.domain.states import State
from leasehold.run.attempt import Attempt

logger = logging.getLogger("leasehold.jobs")

_SAID = {State.FAILED: "failed", State.TIMED_OUT: "timed out"}


def fields_of(job: Grant | Reaped) -> dict[str, Any]:
    details = {"job": job.id, "task": job.task, "attempt": job.attempt, "queue": job.queue}
    if isinstance(job, Grant):
        details["lease"] = job.token
    return details


def say(level: int, job: Grant | Reaped, text: str, *values: object) -> None:
    if logger.isEnabledFor(level):
        logger.log(level, f"job %s (%s): {text}", job.id, job.task, *values, extra=fields_of(job))


def log_starts(grants: Sequence[Grant]) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        for grant in grants:
            say(logging.DEBUG, grant, "attempt %d starts", grant.attempt)


def log_ends(
    batch: Sequence[tuple[Attempt, Outcome]], decided: Mapping[str, Job], fenced: Container[Attempt]
) -> None:
    """Log the endings that the database accepted. `decided`: the present rows of jobs that did not plainly succeed."""
    if not decided and not logger.isEnabledFor(logging.INFO):
        return
    for run, outcome in batch:
        job = decided.get(run.grant.id)
        if run in fenced:
            continue
        if job is not None and job.state is not State.SUCCEEDED:
            _log_decided(run.grant, outcome, job)
        elif type(outcome) is Success:
            log_success(run)
        else:
            # An earlier try was stored, but its reply was lost.
            say(logging.INFO, run.grant, "attempt %d has ended", run.grant.attempt)


def log_success(run: Attempt) -> None:
    took = time.monotonic() - run.started_at
    say(logging.INFO, run.grant, "attempt %d succeeded after %.3f s", run.grant.attempt, took)


def _log_decided(grant: Grant, outcome: Outcome, job: Job) -> None:
    error = getattr(outcome, "error", None)
    why = job.reason or (error and (job.error or "").partition("\n")[0]) or ""
    details = f": {why}" if why else ""
    if job.state in _SAID:
        said = _SAID[job.state]
        say(logging.ERROR, grant, "attempt %d %s: %s", grant.attempt, said, job.error or job.reason)
    elif job.state is State.QUEUED:
        ended = "snoozed" if isinstance(outcome, Snoozed) else "failed" if error else "was given back"
        level = logging.WARNING if error else logging.INFO
        say(
            level,
            grant,
            "attempt %d %s, next try %s%s",
            grant.attempt,
            ended,
            _when(job.available_at),
            details,
        )
    elif job.orphan:
        say(logging.INFO, grant, "attempt %d lives on without this worker%s", grant.attempt, details)
    else:
        said = "was cancelled" if job.state is State.CANCELLED else f"is {job.state.value}"
        say(logging.INFO, grant, "attempt %d %s%s", grant.attempt, said, details)


def log_loss(lost: Reaped) -> None:
    now = "orphaned: its run may still be alive" if lost.orphan else lost.state.value
    text = "attempt %d was lost with its worker %s; now %s"
    say(logging.WARNING, lost, text, lost.attempt, lost.worker, now)


def _when(due: datetime) -> str:
    return "at once" if due <= datetime.now(UTC) else f"at {due.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
