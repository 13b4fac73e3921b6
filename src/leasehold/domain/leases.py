"""Leases as a list shows them: who runs what, since when, and for how long they are believed."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.frozen import frozen


@frozen
class LeaseRow:
    """A job that runs, and the worker that holds it."""

    job_id: str
    kind: str
    queue: str
    group_name: str | None
    attempt: int
    owner: str | None
    started_at: datetime
    expires_at: datetime
    expires_in: float
    """Seconds, by the database's clock. Below 0: it was missed, and a worker will take the job over."""
    stop_requested: str | None
    """`finish`, `pause` or `cancel`."""


@frozen
class LeasePage:
    """One page of leases."""

    leases: list[LeaseRow]
    next: str | None
    """The cursor of the page that follows; None at the end."""
