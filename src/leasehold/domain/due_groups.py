"""Due groups: which gates and priorities have jobs that are due, and in which order a claim takes from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Literal, NamedTuple

from leasehold.domain.frozen import frozen
from leasehold.domain.lanes import ANY_GATE

Source = Literal["plain", "lane", "limited", "limited lane"]
"""Where a claim finds jobs. The limited sources stand behind gates that also need slots or a rate: what those admit is
counted under a lock."""


class DueGroup(NamedTuple):
    """Jobs of one gate and priority, or tickets of such jobs' lanes, that are due."""

    gate: int
    priority: int
    due: Any
    """Since when, as the database gives instants."""
    first: int = 0
    """The number of the first job."""


@frozen
class DueGroups:
    """What one look at the claim's indexes has found."""

    open_gates: list[int]
    """Open gates without limits, with due jobs or without."""
    plain: list[DueGroup]
    lanes: list[DueGroup]
    limited: list[DueGroup] = field(default_factory=list)
    """Behind gates whose limits admitted a job at the time of the look."""
    limited_lanes: list[DueGroup] = field(default_factory=list)

    def in_turn(self) -> list[tuple[Source, list[DueGroup]]]:
        """The groups to take from, in order. A higher priority goes first, whatever its source; of one priority, the
        source whose oldest job has waited longest. So the order between sources is exact to a batch, and inside the
        sources without limits exact."""
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
        """For claims that use these groups again: what limits admit changes with every claim."""
        if self.limited or self.limited_lanes:
            return DueGroups(self.open_gates, self.plain, self.lanes)
        return self

    def unsorted_tickets(self) -> list[DueGroup]:
        """Tickets of lanes whose next head is unknown, and with the head its queue."""
        return [group for group in self.lanes if group.gate == ANY_GATE]

    def by_queue(self, queue_of: Mapping[int, str]) -> dict[str, DueGroups]:
        """The groups of each queue that has some."""
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
