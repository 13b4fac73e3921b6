"""Capacity of `run_now`: which attempts take the places of a task, and when to try again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from leasehold.domain.frozen import frozen

SHORTEST_HINT = 1.0
LONGEST_HINT = 60.0


@frozen
class RunningJob:
    """An attempt that takes one place. Without worker and lease end it is an orphan: its execution may still run."""

    job_id: str
    worker: str | None
    started_at: datetime | None
    lease_expires_at: datetime | None


def retry_hint(holders: Sequence[RunningJob], now: datetime) -> float:
    """Estimate the seconds until a place is free. Attempts observed at a random moment have on average done half of
    their time, so the first of n ends after twice their mean age divided by n + 1. If a worker is dead, its place is
    free when its lease runs out, so the estimate is capped at that time."""
    ages = [
        (now - running.started_at).total_seconds() for running in holders if running.started_at is not None
    ]
    guess = 2.0 * sum(ages) / len(ages) / (len(ages) + 1) if ages else LONGEST_HINT
    ends = [
        (running.lease_expires_at - now).total_seconds() for running in holders if running.lease_expires_at
    ]
    return round(max(SHORTEST_HINT, min([guess, LONGEST_HINT, *ends])), 1)
