"""Look, then take: what a look at the claim's indexes says, and in which order to take from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from leasehold.domain.job import Grant

SEES_TICKETS = 200
"""Tickets a claim looks at however small its room, so that a small worker clears a heap of stale ones at once."""

LOOKS = 4
"""A ticket filed anew belongs to another group, which only the next look sees. An empty answer must mean that there is
nothing to do: a worker that is told so goes to sleep."""

Source = Literal["plain", "lane", "limited", "limited lane"]
"""The last two stand behind gates that need slots or a rate besides: what they admit is counted under a lock."""


class LookedAt(NamedTuple):
    """A group of rows of one gate and priority that has due work, since when, and its first row."""

    gate: int
    priority: int
    due: Any
    first: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    gates: list[int]
    """Open ones without limits, with work or without."""
    plain: list[LookedAt]
    lanes: list[LookedAt]
    limited: list[LookedAt] = field(default_factory=list)
    """Behind gates whose limits admitted somebody when they were looked at."""
    limited_lanes: list[LookedAt] = field(default_factory=list)

    def order(self) -> list[tuple[Source, list[LookedAt]]]:
        """What to take from, in turn. A higher priority goes first, whatever its source; of one priority, the source
        whose oldest job has waited longest. So the order between sources is exact to a batch, and inside the
        first two of them exact."""
        levels: dict[tuple[int, Source], list[LookedAt]] = {}
        for source, groups in self._sources():
            for group in groups:
                levels.setdefault((group.priority, source), []).append(group)
        ranked = sorted(
            (-priority, min(g.due for g in found), source) for (priority, source), found in levels.items()
        )
        turns: list[tuple[Source, list[LookedAt]]] = []
        for negative, _, source in ranked:
            found = levels[-negative, source]
            if turns and turns[-1][0] == source:
                turns[-1][1].extend(found)
            else:
                turns.append((source, list(found)))
        return turns

    def without_limits(self) -> Look:
        """For claims that use it again: what limits admit changes with every claim."""
        return Look(self.gates, self.plain, self.lanes) if self.limited or self.limited_lanes else self

    def _sources(self) -> list[tuple[Source, list[LookedAt]]]:
        found: list[tuple[Source, list[LookedAt]]] = [("plain", self.plain), ("lane", self.lanes)]
        if self.limited or self.limited_lanes:
            found += [("limited", self.limited), ("limited lane", self.limited_lanes)]
        return found

    @property
    def lane_groups(self) -> set[tuple[int, int]]:
        return {(group.gate, group.priority) for group in (*self.lanes, *self.limited_lanes)}


Take = Callable[[Source, list[LookedAt], Look, int], list[Grant] | None]
"""None: nothing was taken, but stale tickets were thrown away. Behind them others may stand."""


def take_by(seen: Look, limit: int, take: Take) -> tuple[list[Grant], bool]:
    """Take what a look has seen, best first, until there is no room. Whether stale tickets stood in the way."""
    grants: list[Grant] = []
    cleared = False
    for source, groups in seen.order():
        if len(grants) < limit:
            taken = take(source, groups, seen, limit - len(grants))
            cleared |= taken is None
            grants += taken or []
    return grants, cleared


def claim_by_looks(
    limit: int, look: Callable[[], Look], take: Take, first: Look | None = None
) -> list[Grant]:
    """Look, then take, until there is no room or nothing more to take."""
    grants: list[Grant] = []
    before: set[tuple[int, int]] = set()
    looks = 0
    while looks < LOOKS:
        seen, first = first or look(), None
        taken, cleared = take_by(seen, limit - len(grants), take)
        grants += taken
        groups = seen.lane_groups
        stuck = not taken and not cleared and groups == before
        if len(grants) >= limit or not groups or stuck:
            break
        before = groups
        looks += not cleared  # a heap of stale tickets ends by itself
    return grants
