"""Cap and reject: who holds the places of a task, and when it may be worth to ask again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from leasehold.domain.frozen import frozen

SHORTEST_HINT = 1.0
LONGEST_HINT = 60.0


@frozen
class Holder:
    """A run that takes one of the places. Without owner and end of lease it is an orphan: its execution may live."""

    job_id: str
    owner: str | None
    since: datetime | None
    lease_until: datetime | None


def retry_hint(holders: Sequence[Holder], now: datetime) -> float:
    """Seconds after which a place may be free. A guess: runs that are met at random have on average done half of
    their time, so the first of n ends after twice their age by n + 1. Should an owner be dead, its place is free when
    its lease has run out, so the guess goes no further than that."""
    ages = [(now - holder.since).total_seconds() for holder in holders if holder.since is not None]
    guess = 2.0 * sum(ages) / len(ages) / (len(ages) + 1) if ages else LONGEST_HINT
    ends = [(holder.lease_until - now).total_seconds() for holder in holders if holder.lease_until]
    return round(max(SHORTEST_HINT, min([guess, LONGEST_HINT, *ends])), 1)
