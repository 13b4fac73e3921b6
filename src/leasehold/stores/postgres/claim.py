"""Claim on PostgreSQL, where claims never wait for each other: find due groups, then take from them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import psycopg

from leasehold.domain.due_groups import DueGroup, DueGroups
from leasehold.domain.job import Grant
from leasehold.stores.postgres.database import PostgresDatabase
from leasehold.stores.postgres.take import LARGE, PostgresStrategies
from leasehold.stores.store import JobStore
from leasehold.stores.verbs.claim import Claim, ClaimRequest, Where, grants_of

LOOK_LASTS, LOOK_LASTS_AT_MOST = 0.1, 1.0
"""While large claims come back full, a look serves for so many seconds: it costs a claim a fifth of its time. A pause,
or a job of a higher priority, is seen that much later by a worker that is busy."""
LOOK_SHARE = 0.05
"""Of the time, for looks: one that had to walk past many dead index entries, before a vacuum, serves for longer."""

LOOKS_LAST = 5.0
"""Seconds for which an idle worker looks first, after it has met lanes or limits."""


class Recent(NamedTuple):
    until: float
    """On the monotonic clock."""
    found: DueGroups


class RecentGroups:
    """The due groups of the last large claims that came back full, for the claims that follow. One job for one free
    place says nothing about the next."""

    def __init__(self) -> None:
        self._recent: dict[tuple[object, ...], Recent] = {}

    def get(self, request: ClaimRequest, now: float) -> DueGroups | None:
        recent = self._recent.get(request.key)
        return recent.found if recent is not None and request.limit >= LARGE and now < recent.until else None

    def keep(
        self, request: ClaimRequest, found: DueGroups, looked_at: float, seconds: float, *, full: bool
    ) -> None:
        """`seconds`: how long the look took."""
        if not full:
            self._recent.pop(request.key, None)
        elif request.limit >= LARGE:
            lasts = min(max(LOOK_LASTS, seconds / LOOK_SHARE), LOOK_LASTS_AT_MOST)
            self._recent[request.key] = Recent(looked_at + lasts, found.without_limits())


class PostgresClaims(JobStore):
    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._postgres = database
        self._recent = RecentGroups()
        self._looks_first: dict[tuple[object, ...], float] = {}
        """Claims beside which there were lanes or limits, and until when they look first, though idle."""

    def _claim(self, request: ClaimRequest, idle: bool) -> list[Grant]:
        waits: list[float] = []
        """Seconds until jobs are due, or rates open."""
        grants = self._claim_at_once(request, waits) if idle and request.is_mixed else None
        if grants is None:
            claim = Claim(
                request,
                PostgresStrategies(self._postgres, request.worker, self._admit, waits),
                lambda: self._find_due_groups(request.where, waits),
                lambda found: self._postgres.read(lambda session: self._queues_of(session, found)),
            )
            try:
                self._find_and_take(request, claim)
            except psycopg.Error:
                # Each source is a transaction of its own. What an earlier one gave is held: unless it is returned, it
                # lies until its leases run out. The error comes up again with the next claim.
                if claim.grants:
                    return claim.grants
                raise
            grants = claim.grants
        self._expect_opening(request.queues, request.tasks, waits)
        return grants

    def _claim_at_once(self, request: ClaimRequest, waits: list[float]) -> list[Grant] | None:
        """Look and take in one statement. None: there is more than plain jobs, which takes a look first."""
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
                self._looks_first[request.key] = self._now() + LOOKS_LAST
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
        rows = self._postgres.read(lambda session: session.tuples("look", **where))
        by_source: dict[str, list[DueGroup]] = {"gate": [], "limited": [], "plain": [], "lane": []}
        for source, gate, priority, due, first in _without_later(rows, waits):
            by_source[source].append(DueGroup(gate, priority, due, first))
        found = DueGroups([group.gate for group in by_source["gate"]], by_source["plain"], by_source["lane"])
        if by_source["limited"]:
            self._add_limited(found, [group.gate for group in by_source["limited"]], waits)
        return found

    def _add_limited(self, found: DueGroups, gates: list[int], waits: list[float]) -> None:
        """Looks only behind gates that are open: a million rows behind a full slot are not touched."""
        open_gates, opening = self._postgres.read(lambda session: self._open_gates(session, gates))
        waits += opening
        if open_gates:
            rows = self._postgres.read(lambda session: session.tuples("look_limited", gates=open_gates))
            for source, gate, priority, due, first in _without_later(rows, waits):
                groups = found.limited if source == "plain" else found.limited_lanes
                groups.append(DueGroup(gate, priority, due, first))


def _without_later(rows: list[tuple[Any, ...]], waits: list[float]) -> list[tuple[Any, ...]]:
    """The last row says in how many microseconds the next job will be due."""
    *groups, (_, _, _, _, microseconds) = rows
    if microseconds is not None:
        waits.append(microseconds / 1e6)
    return groups
