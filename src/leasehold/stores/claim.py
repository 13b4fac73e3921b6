"""Look, then take: what a look at the claim's indexes says, and in which order to take from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

SEES_TICKETS = 200
"""Tickets a claim looks at however small its room, so that a small worker clears a heap of stale ones at once."""

Source = Literal["plain", "lane"]


class LookedAt(NamedTuple):
    """A group of rows of one gate and priority that has due work, and since when."""

    gate: int
    priority: int
    due: Any


@dataclass(frozen=True, slots=True)
class Look:
    gates: list[int]
    """Open ones, with work or without."""
    plain: list[LookedAt]
    lanes: list[LookedAt]

    def order(self) -> list[Source]:
        """Which source goes first: the one with the higher priority, then with the longer wait. Inside a source the
        order is exact; between the two it is exact to a batch."""
        best = [(_rank(groups), source) for source, groups in self._sources() if groups]
        return [source for _, source in sorted(best)]

    def _sources(self) -> list[tuple[Source, list[LookedAt]]]:
        return [("plain", self.plain), ("lane", self.lanes)]


def _rank(groups: list[LookedAt]) -> tuple[int, Any]:
    return min((-group.priority, group.due) for group in groups)
