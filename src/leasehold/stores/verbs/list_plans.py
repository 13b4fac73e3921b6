"""Walks: jobs found by number (seq), the newest first, without reading more than a page is about.

Every criterion that an index serves is a way by itself. The others are conditions on the way: such a walk looks at so
many rows and no more, and says where to go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from leasehold.domain.frozen import frozen
from leasehold.domain.states import State
from leasehold.stores.database.database import Row, Session

TOP = 2**63 - 1
"""Above every number."""
FIRST = 1000
"""Rows that a walk reads before it goes further: mostly the page is full by then. And a small number is read along an
index even by a server that knows nothing of the table yet."""

FETCHED = 2500
"""Rows that a walk looks at when it has to fetch the job of each: that costs several times as much as the row."""


@frozen
class Way:
    """One way to find jobs."""

    name: str
    serves: frozenset[str] = frozenset()
    """Criteria that need no condition here."""
    always: tuple[str, ...] = ()
    """Conditions that go with it."""
    brings_job: bool = False
    ordered: bool = True
    """It goes through the numbers in their order, and can be stopped. Else all of it is read and sorted."""


JOBS = Way("jobs", brings_job=True)
QUEUED, LANES = Way("queued"), Way("lanes", ordered=False)
GATED = Way("gated", brings_job=True, ordered=False)
GATED_LANES = Way("gated_lanes", brings_job=True, ordered=False)
RUNNING, ORPHANS = Way("running"), Way("orphans")
PENDING, WAITING, PAUSED = Way("pending"), Way("waiting"), Way("paused")
IN_LANE = Way("in_lane", frozenset({"lane"}), ordered=False)
LANE_HOLDERS = Way("lane_holders", frozenset({"lane"}), ordered=False)
MEMBERS = Way("members", frozenset({"group"}))
TAGGED = Way("tagged", brings_job=True, ordered=False)
IDS = Way("ids", frozenset({"ids"}), brings_job=True, ordered=False)

BY_STATE: dict[State, tuple[Way, ...]] = {
    State.QUEUED: (QUEUED, LANES),
    State.RUNNING: (RUNNING, ORPHANS),
    State.PENDING: (PENDING,),
    State.WAITING: (WAITING,),
    State.PAUSED: (PAUSED,),
    State.SUCCEEDED: (Way("ended", always=("succeeded",)),),
    State.CANCELLED: (Way("cancelled"),),
    State.FAILED: (Way("failed"),),
    State.TIMED_OUT: (Way("timed_out"),),
}

_IN_THE_JOB = frozenset({"queue", "tasks", "lane", "group", "tags", "ids", "created_since", "created_until"})


class Walked(NamedTuple):
    rows: list[Row]
    more: str | None
    """The id of the job to go on from, if the walk had to stop before the end."""


@frozen
class Walk:
    session: Session
    requested: Mapping[str, Any]
    """What every job must meet: `queue`, `tasks`, `lane`, `group`, `tags`, `states`, `live`; `ids` (the lowest and the
    highest), `created_since`, `created_until`."""
    size: int
    """How many rows each way may read."""
    floor: int = 0
    top: int = TOP
    """It goes through numbers from `floor` on and below `top`."""

    def ways_to(self, states: Sequence[State]) -> list[Way]:
        ways = [way for state in dict.fromkeys(states) for way in BY_STATE[state]]
        if QUEUED not in ways:
            return ways
        if "lane" in self.requested:
            # A job queued in a lane is nowhere else.
            return [IN_LANE if way is LANES else way for way in ways if way is not QUEUED]
        if self.requested and self.requested.keys() <= {"queue", "tasks"}:
            # A gate knows queue and task of its jobs, and nothing else.
            few = self._few("walk.gated", "walk.where", *(f"walk.where_{name}" for name in self.requested))
            gated = {QUEUED: GATED if few else QUEUED, LANES: GATED_LANES}
            return [gated.get(way, way) for way in ways]
        return ways

    def few_tagged(self) -> bool:
        """Whether the jobs with the (first) tag are few enough to be read and sorted."""
        return self._few("walk.tag")

    def few_ids(self) -> bool:
        """The same for the jobs whose ids are in the range."""
        return self._few("walk.id_range")

    def go(
        self, head: str, ways: Sequence[Way], tail: str, limit: int, before: str | None, **values: Any
    ) -> Walked:
        """One page. It shows each job as it was when it was found. `values` are for the head."""
        below = self.top
        if before is not None:
            below = min(below, self.session.rows("find_cursor", before=before)[0]["below"])
        branches = [[f"walk.{way.name}", *self._conditions(way), "walk.cut"] for way in ways]
        parts = [head, *_either(branches), tail]
        found: list[Row] = []
        left = step = self.size
        if all(way.ordered for way in ways):
            step = FIRST
            if any(self._needs_job(way) for way in ways):
                left = min(left, FETCHED)
        while True:
            step = min(step, left)
            since, more = self._window(ways, below, step)
            bounds = {"below": below, "since": since, "limit": limit - len(found)}
            found += self.session.listing(parts, **self._values() | bounds | values)
            left -= step
            if more is None or not left or len(found) == limit:
                return Walked(found, more)
            below, step = since, 2 * step

    def _conditions(self, way: Way) -> list[str]:
        join = ["walk.with_job"] if self._needs_job(way) else []
        return [*join, "walk.where", *(f"walk.where_{name}" for name in (*way.always, *self._open_to(way)))]

    def _open_to(self, way: Way) -> list[str]:
        """The criteria that this way does not serve."""
        return [name for name in self.requested if not self._serves(way, name)]

    def _needs_job(self, way: Way) -> bool:
        return not way.brings_job and not _IN_THE_JOB.isdisjoint(self._open_to(way))

    def _serves(self, way: Way, criterion: str) -> bool:
        if way is TAGGED and criterion == "tags":
            return len(set(self.requested["tags"])) == 1
        return criterion in way.serves

    def _window(self, ways: Sequence[Way], below: int, size: int) -> tuple[int, str | None]:
        """Where all ways stop, because one of them has read so much by then."""
        picky = [way for way in ways if way.ordered and (way.always or self.requested.keys() - way.serves)]
        if not picky:
            return self.floor, None
        branches = [[f"walk.{way.name}", "walk.past"] for way in picky]
        values = self._values() | {"below": below, "since": self.floor, "size": size - 1}
        (row,) = self.session.listing(["walk.window", *_either(branches), "walk.window_end"], **values)
        return (self.floor, None) if row["number"] is None else (row["number"], row["id"])

    def _few(self, *parts: str) -> bool:
        values = self._values() | {"below": TOP, "since": 0, "size": self.size}
        rows = self.session.listing(["walk.size", *parts, "walk.size_end"], **values)
        return bool(rows[0]["jobs"] < self.size)

    def _values(self) -> dict[str, Any]:
        tags, ids = self.requested.get("tags"), self.requested.get("ids")
        return {
            **self.requested,
            **({"tag": tags[0], "tag_count": len(set(tags))} if tags else {}),
            **({"low": ids[0], "high": ids[1]} if ids else {}),
        }


def _either(branches: Sequence[Sequence[str]]) -> list[str]:
    first, *others = branches
    return [*first, *(part for branch in others for part in ("walk.or", *branch))]
