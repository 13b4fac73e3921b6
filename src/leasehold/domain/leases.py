"""Leases as a list shows them: which worker runs which job, since when, and until when its lease holds."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.frozen import frozen


@frozen
class LeaseRow:
    """A running job and the worker that holds its lease."""

    job_id: str
    task: str
    queue: str
    group: str | None
    attempt: int
    worker: str | None
    started_at: datetime
    expires_at: datetime
    expires_in: float
    """Seconds until it expires, by the database's clock. Below 0: it was missed, and a worker will take the job."""
    stop_requested: str | None
    """`finish`, `pause` or `cancel`."""


@frozen
class LeasePage:
    """One page of leases."""

    leases: list[LeaseRow]
    next: str | None
    """The cursor of the next page; None at the end."""
