"""Lanes: at most one running job each, in order; what blocks a lane, and when a ticket must be written.

A ticket means "look at this lane from this time on". Too many tickets do no harm, a missing one stops the lane. The
rule: a transaction that puts a lane job into a state that does not block the lane also writes a ticket, without
checking. Only the claim deletes tickets, and only those it has locked.
"""

from __future__ import annotations

from datetime import UTC, datetime

from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job
from leasehold.domain.states import State

ANY_GATE = 0
"""The gate of a ticket whose next head is unknown. Every claimer looks at it and refiles it under the head's gate:
under the gate of the job that left, a pause of that task would stop the ticket, and the lane with it."""

STARTED = datetime(1970, 1, 1, tzinfo=UTC)
"""The `lane_at` of a job that has started: it stays first in its lane through backoff, snooze and hand-back, even if a
slow producer commits a job with an earlier place late."""


@frozen
class Ticket:
    lane: str
    gate: int
    priority: int
    available_at: datetime


def blocks_lane(job: Job) -> bool:
    match job.state:
        case State.RUNNING | State.WAITING | State.PAUSED:
            return True
        case State.FAILED | State.TIMED_OUT:
            return job.halts_lane
        case _:
            return False


def tickets_after(before: Job, after: Job, now: datetime) -> list[Ticket]:
    """Return the tickets that a transition of a lane job must write."""
    if after.lane is None or blocks_lane(after):
        return []
    tickets = []
    if (
        not (before.state is State.RUNNING and after.state is State.QUEUED)
        and before.state is not State.PENDING
    ):
        # The job blocked the lane, or left its place in it: some claimer must find the new head. (A job that goes from
        # running to queued is the head itself; a pending one was not in the lane yet.)
        tickets.append(Ticket(after.lane, ANY_GATE, after.priority, now))
    if after.state is State.QUEUED:
        due = max(after.available_at, after.lane_at or after.available_at)
        tickets.append(Ticket(after.lane, after.gate, after.priority, due))
    return tickets
