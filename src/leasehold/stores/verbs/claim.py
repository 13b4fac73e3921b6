"""Look, then take: what a look at the claim's indexes says, and in which order to take from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple

from leasehold.domain.frozen import frozen
from leasehold.domain.job import Grant
from leasehold.domain.lanes import ANY_GATE

SEES_TICKETS = 200
"""Tickets a claim looks at however small its room, so that a small worker clears a heap of stale ones at once."""

LOOKS = 4
"""A ticket filed anew belongs to another group, which only the next look sees. An empty answer must mean that there is
nothing to do: a worker that is told so goes to sleep."""

_TOLD_LATER = tuple(Grant._field_defaults.values())[Grant._fields.index("waited") - len(Grant._fields) + 1 :]
"""What a claim does not tell of a grant."""

Source = Literal["plain", "lane", "limited", "limited lane"]
"""The last two stand behind gates that need slots or a rate besides: what they admit is counted under a lock."""


def grants_of(rows: Iterable[tuple[Any, ...]]) -> list[Grant]:
    """Of rows with its columns up to `waited`. By the tuple's own constructor: that of Grant takes twice as long, and
    this is done for every job."""
    new = tuple.__new__
    return [new(Grant, row + _TOLD_LATER) for row in rows]


class LookedAt(NamedTuple):
    """A group of rows of one gate and priority that has due work, since when, and its first row."""

    gate: int
    priority: int
    due: Any
    first: int = 0


@frozen
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

    def unsorted(self) -> list[LookedAt]:
        """Tickets whose lane's next head is unknown, and with it the queue that it belongs to."""
        return [group for group in self.lanes if group.gate == ANY_GATE]

    def by_queue(self, queue_of: Mapping[int, str]) -> dict[str, Look]:
        """What each queue has of it, those that have work."""
        parts: dict[str, Look] = {}
        for name in ("plain", "lanes", "limited", "limited_lanes"):
            for group in getattr(self, name):
                if group.gate != ANY_GATE:
                    part = parts.setdefault(queue_of[group.gate], Look([], [], []))
                    getattr(part, name).append(group)
        for gate in self.gates:
            if (found := parts.get(queue_of[gate])) is not None:
                found.gates.append(gate)
        return parts

    @property
    def only_plain(self) -> bool:
        return not (self.lanes or self.limited or self.limited_lanes)

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


TakeAll = Callable[[Look, int], tuple[list[Grant], bool]]
"""From a whole look; as `take_by`."""

TakeShares = Callable[[list[list[LookedAt]], int], list[Grant]]
"""Of several queues with nothing but plain jobs: so many of each, best first."""


def take_by_queue(
    seen: Look,
    limit: int,
    take: Take,
    take_shares: TakeShares,
    *,
    queues: Sequence[str],
    queue_of: Mapping[int, str],
    strict: bool,
) -> tuple[list[Grant], bool]:
    """As `take_by`, queue by queue. In turn, each gets an equal share of the room, and those that could fill theirs
    share what the others have left. Queues without lanes and limits are taken from together: however many there are, a
    claim is a few statements."""
    if (tickets := seen.unsorted()) and take("lane", tickets, Look([], [], tickets), limit) is None:
        return (
            [],
            True,
        )  # they are filed under their heads' own gates now, and the next look knows their queues
    parts = seen.by_queue(queue_of)
    waiting = [(queue, parts[queue]) for queue in dict.fromkeys(queues) if queue in parts]
    grants: list[Grant] = []
    cleared = False
    while waiting and len(grants) < limit:
        room = limit - len(grants)
        asked = waiting[: 1 if strict else room]
        share = room // len(asked)
        gave: dict[str, int] = {}
        plain = [part.plain for _, part in asked if part.only_plain]
        taken = take_shares(plain, share) if len(plain) > 1 else []
        for _, part in asked:
            if not part.only_plain or len(plain) == 1:
                some, threw = take_by(part, share, take)
                taken += some
                cleared |= threw
        for grant in taken:
            gave[grant.queue] = gave.get(grant.queue, 0) + 1
        grants += taken
        more = [] if strict else [one for one in asked if gave.get(one[0], 0) >= share]
        waiting = waiting[len(asked) :] + more
    return grants, cleared


def best_first(groups: Sequence[LookedAt]) -> list[LookedAt]:
    return sorted(groups, key=lambda group: (-group.priority, group.due, group.first))


def claim_by_looks(
    limit: int, look: Callable[[], Look], take_all: TakeAll, first: Look | None = None
) -> list[Grant]:
    """Look, then take, until there is no room or nothing more to take."""
    grants: list[Grant] = []
    before: set[tuple[int, int]] = set()
    looks = 0
    while looks < LOOKS:
        seen, first = first or look(), None
        taken, cleared = take_all(seen, limit - len(grants))
        grants += taken
        groups = seen.lane_groups
        stuck = not taken and not cleared and groups == before
        if len(grants) >= limit or not groups or stuck:
            break
        before = groups
        looks += not cleared  # a heap of stale tickets ends by itself
    return grants
