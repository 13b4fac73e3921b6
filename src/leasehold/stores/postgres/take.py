"""Strategies by which a claim on PostgreSQL takes jobs: one statement moves them from their places to leases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from leasehold.domain.due_groups import DueGroup, Source, best_first
from leasehold.domain.job import Grant
from leasehold.stores.postgres.database import PostgresDatabase, PostgresSession
from leasehold.stores.verbs.claim import Admit, LimitedTake, Take, TakeFromEach, Taken, grants_of
from leasehold.stores.verbs.writing import batches

LARGE = 100
"""Jobs: a claim of as many is a large one. Groups: one statement takes from as many, and from twice as many as the
jobs it may take."""


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
        few = max(2 * room, LARGE)
        if len(groups) <= few:
            return Taken(self._claim(groups, room))
        # No more than `room` groups can have their turn. The others are needed if another worker was quicker.
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
    """Where each group begins in its index: the statement need not walk past what is gone."""
    return {"dues": [group.due for group in groups], "firsts": [group.first for group in groups]}
