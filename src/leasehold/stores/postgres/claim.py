"""Claim on PostgreSQL, where claims never wait for each other: find due groups, then take from them by a strategy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg

from leasehold.domain.errors import StoreError
from leasehold.domain.job import Grant
from leasehold.domain.lanes import DueGroup, DueGroups, Source, best_first
from leasehold.stores.postgres.database import PostgresDatabase, PostgresSession
from leasehold.stores.store import JobStore
from leasehold.stores.verbs.claim import (
    Admit,
    Claim,
    ClaimRequest,
    LimitedTake,
    Take,
    TakeFromEach,
    Taken,
    Where,
    grants_of,
)
from leasehold.stores.verbs.writing import batches

LOOK_LASTS, LOOK_LASTS_AT_MOST = 0.1, 1.0
"""Least and most seconds for which large claims that come back full reuse a look, which costs a fifth of a claim's
time. A busy worker sees a pause, or a job of a higher priority, that much later."""
LOOK_SHARE = 0.05
"""Most of the time that looks may take, as a share: a look slowed by many dead index entries serves for longer."""

LOOK_FIRST_SECONDS = 5.0
"""Seconds for which an idle worker looks before it takes, after it has met lanes or limits."""


class Recent(NamedTuple):
    until: float
    """When these groups are too old to use, on the monotonic clock."""
    found: DueGroups


class RecentGroups:
    """The due groups of the last large claims that came back full, for the next large claims. A claim for one free
    place says nothing about the next claim."""

    def __init__(self) -> None:
        self._recent: dict[tuple[object, ...], Recent] = {}

    def get(self, request: ClaimRequest, now: float) -> DueGroups | None:
        recent = self._recent.get(request.key)
        return (
            recent.found
            if recent is not None and request.limit >= LARGE_TAKE and now < recent.until
            else None
        )

    def keep(
        self, request: ClaimRequest, found: DueGroups, looked_at: float, seconds: float, *, full: bool
    ) -> None:
        """`seconds`: how long the look took."""
        if not full:
            self._recent.pop(request.key, None)
        elif request.limit >= LARGE_TAKE:
            lasts = min(max(LOOK_LASTS, seconds / LOOK_SHARE), LOOK_LASTS_AT_MOST)
            self._recent[request.key] = Recent(looked_at + lasts, found.without_limits())


class PostgresClaims(JobStore):
    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._postgres = database
        self._recent = RecentGroups()
        self._looks_first: dict[tuple[object, ...], float] = {}
        """Until when claims that met lanes or limits look before they take, even if idle."""

    def _claim(self, request: ClaimRequest, idle: bool) -> list[Grant]:
        waits: list[float] = []
        """Seconds until jobs are due, or rates open."""
        grants = None
        if idle and request.is_mixed:
            grants = self._past_refused(request, lambda: self._claim_at_once(request, waits))
        if grants is None:
            claim = Claim(
                request,
                PostgresStrategies(self._postgres, request.worker, self._admit, waits),
                lambda: self._find_due_groups(request.where, waits),
                lambda found: self._postgres.read(lambda session: self._queues_of(session, found)),
            )
            try:
                self._past_refused(request, lambda: self._find_and_take(request, claim))
            except (psycopg.Error, StoreError):
                # Each source has a transaction of its own. Grants of an earlier source are leased: if they are not
                # returned, their jobs lie idle until the leases expire. The next claim meets the error again.
                if claim.grants:
                    return claim.grants
                raise
            grants = claim.grants
        self._expect_opening(request.queues, request.tasks, waits)
        return grants

    def _claim_at_once(self, request: ClaimRequest, waits: list[float]) -> list[Grant] | None:
        """Look and take in one statement. None: lanes, limits or many groups require a look first."""
        if self._looks_first.get(request.key, -math.inf) > self._now():
            return None
        rows = self._postgres.single(
            lambda session: session.tuples(
                "claim_idle", worker=request.worker, limit=request.limit, **request.where
            )
        )
        if rows and rows[-1][0] is None:
            next_due = Grant(*rows.pop()).seconds_left
            if next_due is None:
                self._looks_first[request.key] = self._now() + LOOK_FIRST_SECONDS
                return None
            waits.append(next_due)
        return grants_of(rows)

    def _find_and_take(self, request: ClaimRequest, claim: Claim) -> None:
        recent = self._recent.get(request, self._now())
        if recent is not None:
            claim.take_from(recent)
        if claim.room > 0:
            began = self._now()
            found = claim.find()
            looked_at = self._now()
            claim.find_and_take(found)
            self._recent.keep(request, found, looked_at, looked_at - began, full=claim.room <= 0)

    def _now(self) -> float:
        return self._postgres.clock.monotonic()

    def _find_due_groups(self, where: Where, waits: list[float]) -> DueGroups:
        rows = self._postgres.read(lambda session: session.tuples("find_due_groups", **where))
        by_source: dict[str, list[DueGroup]] = {"gate": [], "limited": [], "plain": [], "lane": []}
        for source, gate, priority, due, first in _without_later(rows, waits):
            by_source[source].append(DueGroup(gate, priority, due, first))
        found = DueGroups([group.gate for group in by_source["gate"]], by_source["plain"], by_source["lane"])
        if by_source["limited"]:
            self._add_limited(found, [group.gate for group in by_source["limited"]], waits)
        return found

    def _add_limited(self, found: DueGroups, gates: list[int], waits: list[float]) -> None:
        """Looks only behind open gates: a million rows behind a full slot are not read."""
        open_gates, opening = self._postgres.read(lambda session: self._open_gates(session, gates))
        waits += opening
        if open_gates:
            rows = self._postgres.read(
                lambda session: session.tuples("find_limited_groups", gates=open_gates)
            )
            for source, gate, priority, due, first in _without_later(rows, waits):
                groups = found.limited if source == "plain" else found.limited_lanes
                groups.append(DueGroup(gate, priority, due, first))


def _without_later(rows: list[tuple[Any, ...]], waits: list[float]) -> list[tuple[Any, ...]]:
    """Drops the last row, which says in how many microseconds the next job will be due."""
    *groups, (_, _, _, _, microseconds) = rows
    if microseconds is not None:
        waits.append(microseconds / 1e6)
    return groups


# -- strategies --------------------------------------------------------------------------------------------------------

LARGE_TAKE = 100
"""A claim of this many jobs is a large one. One statement takes from at most this many groups, or from twice as many
groups as jobs it may take, if that is more."""


@dataclass(slots=True)
class PostgresStrategies:
    database: PostgresDatabase
    worker: str
    admit: Admit
    waits: list[float]

    def of(self, source: Source) -> Take:
        match source:
            case "plain":
                return PlainTake(self.database, self.worker)
            case "lane":
                return LaneTake(self.database, self.worker)
            case "limited":
                return self._limited(self._claim_plain)
            case "limited lane":
                return self._limited(self._claim_lane)

    def shared(self) -> TakeFromEach:
        return SharedTake(self.database, self.worker)

    def _limited(self, claim_group: Callable[[PostgresSession, DueGroup, int], list[Grant]]) -> LimitedTake:
        return LimitedTake(self.database.transact, self.admit, claim_group, self.waits)

    def _claim_plain(self, session: PostgresSession, group: DueGroup, room: int) -> list[Grant]:
        return claim_plain(session, self.worker, [group], room, limited=True)

    def _claim_lane(self, session: PostgresSession, group: DueGroup, room: int) -> list[Grant]:
        return claim_lanes(session, self.worker, [group], [group.gate], room, limited=True).grants


@dataclass(slots=True)
class PlainTake:
    database: PostgresDatabase
    worker: str

    def take(self, groups: list[DueGroup], open_gates: list[int], room: int) -> Taken:
        few = max(2 * room, LARGE_TAKE)
        if len(groups) <= few:
            return Taken(self._claim(groups, room))
        # At most `room` groups can have their turn. The others are needed only if another worker was quicker.
        grants: list[Grant] = []
        for some in batches(best_first(groups), few):
            grants += self._claim(some, room - len(grants))
            if len(grants) >= room:
                break
        return Taken(grants)

    def _claim(self, groups: Sequence[DueGroup], room: int) -> list[Grant]:
        return self.database.single(lambda session: claim_plain(session, self.worker, groups, room))


@dataclass(slots=True)
class LaneTake:
    """Takes the heads of lanes, by the lanes' tickets."""

    database: PostgresDatabase
    worker: str

    def take(self, groups: list[DueGroup], open_gates: list[int], room: int) -> Taken:
        return self.database.single(
            lambda session: claim_lanes(session, self.worker, groups, open_gates, room)
        )


@dataclass(slots=True)
class SharedTake:
    database: PostgresDatabase
    worker: str

    def take_from_each(self, queues: list[list[DueGroup]], share: int) -> list[Grant]:
        groups = [(turn, group) for turn, some in enumerate(queues) for group in some]
        rows = self.database.single(
            lambda session: session.tuples(
                "claim_shares",
                worker=self.worker,
                turns=[turn for turn, _ in groups],
                share=share,
                **_columns([group for _, group in groups]),
                **_begins([group for _, group in groups]),
            )
        )
        return grants_of(rows)


def claim_plain(
    session: PostgresSession, worker: str, groups: Sequence[DueGroup], room: int, limited: bool = False
) -> list[Grant]:
    rows = session.tuples(
        "claim_plain", worker=worker, limit=room, limited=limited, **_columns(groups), **_begins(groups)
    )
    return grants_of(rows)


def claim_lanes(
    session: PostgresSession,
    worker: str,
    groups: Sequence[DueGroup],
    open_gates: list[int],
    room: int,
    limited: bool = False,
) -> Taken:
    rows = session.tuples(
        "claim_lanes", worker=worker, open=open_gates, limit=room, limited=limited, **_columns(groups)
    )
    if rows and rows[0][0] is None:
        return Taken([], cleared=True)
    return Taken(grants_of(rows))


def _columns(groups: Sequence[DueGroup]) -> dict[str, list[Any]]:
    return {"gates": [group.gate for group in groups], "priorities": [group.priority for group in groups]}


def _begins(groups: Sequence[DueGroup]) -> dict[str, list[Any]]:
    """Where each group begins in its index, so that the statement does not walk past dead entries."""
    return {"dues": [group.due for group in groups], "firsts": [group.first for group in groups]}
