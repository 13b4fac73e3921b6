"""Lanes, which run their jobs one at a time and in order, and due groups: where a claim takes jobs first.

A ticket means "look at this lane from this time on". Too many tickets do no harm, a missing one stops the lane. The
rule: a transaction that puts a lane job into a state that does not block the lane also writes a ticket, without
checking. Only the claim deletes tickets, and only those it has locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job
from leasehold.domain.states import State

ANY_GATE = 0
"""The gate of a ticket of a lane whose next head is unknown. Every claimer looks at the ticket and refiles it under
the head's gate. Under the gate of the job that left, a pause of that task would stop the ticket, and so the lane."""

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


# -- due groups --------------------------------------------------------------------------------------------------------

Source = Literal["plain", "lane", "limited", "limited lane"]
"""Where a claim finds jobs. Limited sources stand behind gates that also need slots or a rate; a claim counts
under a lock how many jobs such gates admit."""


class DueGroup(NamedTuple):
    """Jobs of one gate and priority, or tickets of such jobs' lanes, that are due."""

    gate: int
    priority: int
    due: Any
    """The time since which they are due, as the database gives instants."""
    first: int = 0
    """The number of the first job."""


@frozen
class DueGroups:
    """The due groups that one look at the indexes of the claim has found."""

    open_gates: list[int]
    """Open gates without limits, whether they have due jobs or not."""
    plain: list[DueGroup]
    lanes: list[DueGroup]
    limited: list[DueGroup] = field(default_factory=list)
    """Groups behind gates whose limits admitted a job at the time of the look."""
    limited_lanes: list[DueGroup] = field(default_factory=list)

    def in_turn(self) -> list[tuple[Source, list[DueGroup]]]:
        """The groups to take from, in order. A higher priority goes first, whatever its source; within one
        priority, the source whose oldest job has waited longest. So the order between sources is exact to a
        batch; inside a source without limits it is exact."""
        by_source: list[tuple[Source, list[DueGroup]]] = [("plain", self.plain), ("lane", self.lanes)]
        if self.limited or self.limited_lanes:
            by_source += [("limited", self.limited), ("limited lane", self.limited_lanes)]
        levels: dict[tuple[int, Source], list[DueGroup]] = {}
        for source, groups in by_source:
            for group in groups:
                levels.setdefault((group.priority, source), []).append(group)
        if len(levels) == 1:
            (_, source), groups = levels.popitem()
            return [(source, groups)]
        ranked = sorted(
            (-priority, min(g.due for g in found), source) for (priority, source), found in levels.items()
        )
        turns: list[tuple[Source, list[DueGroup]]] = []
        for negative, _, source in ranked:
            found = levels[-negative, source]
            if turns and turns[-1][0] == source:
                turns[-1][1].extend(found)
            else:
                turns.append((source, list(found)))
        return turns

    def without_limits(self) -> DueGroups:
        """Return the groups that other claims can use again: what limits admit changes with every claim."""
        if self.limited or self.limited_lanes:
            return DueGroups(self.open_gates, self.plain, self.lanes)
        return self

    def unsorted_tickets(self) -> list[DueGroup]:
        """Return the tickets of lanes whose next head is unknown; the queue of the head is unknown too."""
        return [group for group in self.lanes if group.gate == ANY_GATE]

    def by_queue(self, queue_of: Mapping[int, str]) -> dict[str, DueGroups]:
        """Return the groups by queue, without the tickets whose queue is unknown."""
        parts: dict[str, DueGroups] = {}
        for name in ("plain", "lanes", "limited", "limited_lanes"):
            for group in getattr(self, name):
                if group.gate != ANY_GATE:
                    part = parts.setdefault(queue_of[group.gate], DueGroups([], [], []))
                    getattr(part, name).append(group)
        for gate in self.open_gates:
            if (found := parts.get(queue_of[gate])) is not None:
                found.open_gates.append(gate)
        return parts

    @property
    def only_plain(self) -> bool:
        return not (self.lanes or self.limited or self.limited_lanes)

    @property
    def lane_groups(self) -> set[tuple[int, int]]:
        return {(group.gate, group.priority) for group in (*self.lanes, *self.limited_lanes)}


def best_first(groups: Iterable[DueGroup]) -> list[DueGroup]:
    return sorted(groups, key=lambda group: (-group.priority, group.due, group.first))
