"""Lanes: at most one running job each, in order; what blocks one, and who must write a ticket.

A ticket means "look at this lane from this time on". Too many are harmless, none is the only error. The rule:
whoever commits a lane job into a state that does not block the lane writes one in the same transaction, without
looking. Only the claim deletes tickets, and only those it has locked.
"""

from __future__ import annotations

from datetime import UTC, datetime

from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job
from leasehold.domain.states import State

ANY_GATE = 0
"""A ticket whose next head is unknown. Every claimer looks at it and files it anew where the head belongs: filed
under the leaving job's own gate it would sleep with that gate when its kind is paused, and the lane with it."""

STARTED = datetime(1970, 1, 1, tzinfo=UTC)
"""The `lane_at` of a job that has started: it stays first in its lane through backoff, snooze and hand-back, even
if a job with an earlier place is committed late by a slow producer."""


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
    """The tickets that a move of a lane job owes its lane."""
    if after.lane is None or blocks_lane(after):
        return []
    owed = []
    if (
        not (before.state is State.RUNNING and after.state is State.QUEUED)
        and before.state is not State.PENDING
    ):
        # It blocked the lane, or left its place in it: whoever is first now has to be looked for. (A job that goes
        # from running to queued is itself the first; a pending one was not in the lane yet.)
        owed.append(Ticket(after.lane, ANY_GATE, after.priority, now))
    if after.state is State.QUEUED:
        due = max(after.available_at, after.lane_at or after.available_at)
        owed.append(Ticket(after.lane, after.gate, after.priority, due))
    return owed
