"""Claim on PostgreSQL, where claims never wait for each other: look which groups have work, then take from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg

from leasehold.domain.job import Grant
from leasehold.stores.answers import Order
from leasehold.stores.postgres.database import PostgresDatabase, PostgresSession
from leasehold.stores.store import JobStore
from leasehold.stores.verbs.claim import (
    Look,
    LookedAt,
    Source,
    best_first,
    claim_by_looks,
    grants_of,
    take_by,
    take_by_queue,
)
from leasehold.stores.verbs.limits import AT_ONCE
from leasehold.stores.verbs.writing import batches

LARGE = 100
LOOK_LASTS, LOOK_LASTS_AT_MOST = 0.1, 1.0
"""While large claims come back full, a look serves for so many seconds: it costs a claim a fifth of its time. A pause,
or a job of a higher priority, is seen that much later by a worker that is busy."""
LOOK_SHARE = 0.05
"""Of the time, for looks: one that had to walk past many dead index entries, before a vacuum, serves for longer."""

LOOKS_LAST = 5.0
"""Seconds for which an idle worker looks first, after it has met lanes or limits."""


class Seen(NamedTuple):
    until: float
    look: Look


class PostgresClaims(JobStore):
    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._postgres = database
        self._seen_full: dict[tuple[object, ...], Seen] = {}
        """The last look of large claims that came back full. One job for one free place says nothing about the next."""
        self._looks_first: dict[tuple[object, ...], float] = {}
        """Claims beside which there were lanes or limits, and until when they look first, though idle."""

    def claim(
        self,
        owner: str,
        queues: Sequence[str],
        limit: int,
        kinds: Sequence[str] | None = None,
        *,
        idle: bool = False,
        order: Order = "mixed",
    ) -> list[Grant]:
        if limit < 1:
            return []
        self._make_owner(owner)
        if len(queues) < 2:
            order = "mixed"
        return self._claim_in_time(lambda: self._claim_or_keep(owner, queues, limit, kinds, idle, order))

    def _claim_or_keep(
        self,
        owner: str,
        queues: Sequence[str],
        limit: int,
        kinds: Sequence[str] | None,
        idle: bool,
        order: Order,
    ) -> list[Grant]:
        taken: list[Grant] = []
        try:
            return self._claim(owner, queues, limit, kinds, idle, order, taken)
        except psycopg.Error:
            # Each source is a transaction of its own. What an earlier one gave is held: unheard of, it would lie until
            # its leases run out. The trouble comes up again with the next claim.
            if taken:
                return taken
            raise

    def _claim(
        self,
        owner: str,
        queues: Sequence[str],
        limit: int,
        kinds: Sequence[str] | None,
        idle: bool,
        order: Order,
        taken: list[Grant],
    ) -> list[Grant]:
        waits: list[float] = []

        def look_again() -> Look:
            return self._look(queues, kinds, waits)

        def take(source: Source, groups: list[LookedAt], look: Look, room: int) -> list[Grant] | None:
            if source in ("plain", "lane"):
                grants: list[Grant] | None = self._take(owner, source, groups, look, room)
            else:
                grants = self._take_behind_limits(owner, source, groups, room, waits)
            taken.extend(grants or [])
            return grants

        def take_shares(parts: list[list[LookedAt]], share: int) -> list[Grant]:
            grants = self._postgres.single(lambda session: _take_shares(session, owner, parts, share))
            taken.extend(grants)
            return grants

        def take_all(seen: Look, room: int) -> tuple[list[Grant], bool]:
            if order == "mixed":
                return take_by(seen, room, take)
            return take_by_queue(
                seen,
                room,
                take,
                take_shares,
                queues=queues,
                queue_of=self._postgres.read(lambda session: self._queues_of(session, seen)),
                strict=order == "strict",
            )

        # Queues that take turns come in another order each time.
        asked = tuple(queues) if order == "mixed" else frozenset(queues)
        key = (asked, None if kinds is None else tuple(kinds))
        if idle and order == "mixed" and self._looks_first.get(key, -math.inf) <= self._now():
            at_once = self._look_and_take(owner, queues, kinds, limit, waits)
            if at_once is not None:
                self._expect_opening(queues, kinds, waits)
                return at_once
            self._looks_first[key] = self._now() + LOOKS_LAST
        grants: list[Grant] = []
        seen = self._seen_full.get(key)
        if seen is not None and limit >= LARGE and self._now() < seen.until:
            grants, _ = take_all(seen.look, limit)
        if len(grants) < limit:
            began = self._now()
            look = look_again()
            looked = self._now()
            lasts = min(max(LOOK_LASTS, (looked - began) / LOOK_SHARE), LOOK_LASTS_AT_MOST)
            grants += claim_by_looks(limit - len(grants), look_again, take_all, look)
            if len(grants) < limit:
                self._seen_full.pop(key, None)
            elif limit >= LARGE:
                self._seen_full[key] = Seen(looked + lasts, look.without_limits())
        self._expect_opening(queues, kinds, waits)
        return grants

    def _look_and_take(
        self,
        owner: str,
        queues: Sequence[str],
        kinds: Sequence[str] | None,
        limit: int,
        waits: list[float],
    ) -> list[Grant] | None:
        """None: there is more than plain jobs, which takes a look first."""
        rows = self._postgres.single(
            lambda session: session.tuples(
                "claim_idle",
                worker=owner,
                queues=list(queues),
                tasks=None if kinds is None else list(kinds),
                limit=limit,
            )
        )
        if rows and rows[-1][0] is None:
            told = Grant(*rows.pop())
            if told.seconds_left is None:
                return None
            waits.append(told.seconds_left)
        return grants_of(rows)

    def _now(self) -> float:
        return self._postgres.clock.monotonic()

    def _look(self, queues: Sequence[str], kinds: Sequence[str] | None, waits: list[float]) -> Look:
        rows = self._postgres.read(
            lambda session: session.tuples(
                "look", queues=list(queues), tasks=None if kinds is None else list(kinds)
            )
        )
        found: dict[str, list[LookedAt]] = {"gate": [], "limited": [], "plain": [], "lane": []}
        for source, gate, priority, due, first in _without_later(rows, waits):
            found[source].append(LookedAt(gate, priority, due, first))
        look = Look([group.gate for group in found["gate"]], found["plain"], found["lane"])
        if found["limited"]:
            self._look_behind_limits(look, [group.gate for group in found["limited"]], waits)
        return look

    def _look_behind_limits(self, look: Look, gates: list[int], waits: list[float]) -> None:
        """Only gates that are open are looked at: a million rows behind a full slot are not touched."""
        open_gates, opening = self._postgres.read(lambda session: self._open_gates(session, gates))
        waits += opening
        if open_gates:
            rows = self._postgres.read(lambda session: session.tuples("look_limited", gates=open_gates))
            for source, gate, priority, due, first in _without_later(rows, waits):
                groups = look.limited if source == "plain" else look.limited_lanes
                groups.append(LookedAt(gate, priority, due, first))

    def _take_behind_limits(
        self, owner: str, source: Source, groups: list[LookedAt], room: int, waits: list[float]
    ) -> list[Grant]:
        grants: list[Grant] = []
        for some in batches(groups, AT_ONCE):

            def work(
                session: PostgresSession, some: Sequence[LookedAt] = some, left: int = room - len(grants)
            ) -> tuple[list[Grant], list[float]]:
                def take(group: LookedAt, fits: int) -> list[Grant]:
                    return _take(session, owner, source, [group], [group.gate], fits) or []

                return self._take_limited(session, some, left, take)

            taken, opening = self._postgres.transact(work)
            grants += taken
            waits += opening
            if len(grants) >= room:
                break
        return grants

    def _take(
        self, owner: str, source: Source, groups: list[LookedAt], look: Look, room: int
    ) -> list[Grant] | None:
        few = max(2 * room, LARGE)
        if source == "lane" or len(groups) <= few:
            return self._take_some(owner, source, groups, look, room)
        # No more than `room` of them can have their turn; behind those are others, if somebody was quicker.
        grants: list[Grant] = []
        for some in batches(best_first(groups), few):
            grants += self._take_some(owner, source, some, look, room - len(grants)) or []
            if len(grants) >= room:
                break
        return grants

    def _take_some(
        self, owner: str, source: Source, groups: Sequence[LookedAt], look: Look, room: int
    ) -> list[Grant] | None:
        return self._postgres.single(lambda session: _take(session, owner, source, groups, look.gates, room))


def _without_later(rows: list[tuple[Any, ...]], waits: list[float]) -> list[tuple[Any, ...]]:
    """The last row tells when the next job that is not due yet will be."""
    *groups, (_, _, _, _, microseconds) = rows
    if microseconds is not None:
        waits.append(microseconds / 1e6)
    return groups


def _take_shares(
    session: PostgresSession, owner: str, parts: list[list[LookedAt]], share: int
) -> list[Grant]:
    groups = [(turn, group) for turn, some in enumerate(parts) for group in some]
    rows = session.tuples(
        "claim_shares",
        worker=owner,
        turns=[turn for turn, _ in groups],
        gates=[group.gate for _, group in groups],
        priorities=[group.priority for _, group in groups],
        dues=[group.due for _, group in groups],
        firsts=[group.first for _, group in groups],
        share=share,
    )
    return grants_of(rows)


def _take(
    session: PostgresSession,
    owner: str,
    source: Source,
    groups: Sequence[LookedAt],
    open_gates: list[int],
    room: int,
) -> list[Grant] | None:
    asked: dict[str, Any] = {
        "worker": owner,
        "gates": [group.gate for group in groups],
        "priorities": [group.priority for group in groups],
        "limit": room,
        "limited": source in ("limited", "limited lane"),
    }
    if source in ("lane", "limited lane"):
        rows = session.tuples("claim_lanes", open=open_gates, **asked)
        if rows and rows[0][0] is None:
            return None
    else:
        begins = {"dues": [group.due for group in groups], "firsts": [group.first for group in groups]}
        rows = session.tuples("claim_plain", **begins, **asked)
    return grants_of(rows)
