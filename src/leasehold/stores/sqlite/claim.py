"""Claim on SQLite: with one writer at a time it may read first and take then, in one transaction."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from leasehold.domain.job import Grant
from leasehold.domain.lanes import ANY_GATE, Ticket
from leasehold.stores.answers import Order
from leasehold.stores.base.database import Records, Row, Session
from leasehold.stores.sqlite.database import SqliteDatabase, SqliteSession
from leasehold.stores.store import JobStore
from leasehold.stores.verbs.claim import (
    SEES_TICKETS,
    Look,
    LookedAt,
    Source,
    claim_by_looks,
    grants_of,
    take_by,
    take_by_queue,
)
from leasehold.stores.verbs.limits import AT_ONCE
from leasehold.stores.verbs.writing import batches, write_tickets

Due = tuple[int, int, int]
"""The priority, negative; since when it is due, in microseconds; the job's number. In the order of claims."""


class SqliteClaims(JobStore):
    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self._sqlite = database

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
        return self._claim_in_time(lambda: self._claim(owner, queues, limit, kinds, order))

    def _claim(
        self, owner: str, queues: Sequence[str], limit: int, kinds: Sequence[str] | None, order: Order
    ) -> list[Grant]:
        waits: list[float] = []

        def take(
            session: SqliteSession, source: Source, groups: list[LookedAt], look: Look, room: int
        ) -> list[Grant] | None:
            if source in ("plain", "lane"):
                return _take_groups(session, owner, source, groups, look.gates, room)
            return self._take_behind_limits(session, owner, source, groups, room, waits)

        def work(session: SqliteSession) -> list[Grant]:
            def take_here(
                source: Source, groups: list[LookedAt], look: Look, room: int
            ) -> list[Grant] | None:
                return take(session, source, groups, look, room)

            def take_all(seen: Look, room: int) -> tuple[list[Grant], bool]:
                if order == "mixed" or len(queues) == 1:
                    return take_by(seen, room, take_here)
                return take_by_queue(
                    seen,
                    room,
                    take_here,
                    lambda parts, share: _take_shares(session, owner, parts, share),
                    queues=queues,
                    queue_of=self._queues_of(session, seen),
                    strict=order == "strict",
                )

            return claim_by_looks(limit, lambda: self._look(session, queues, kinds, waits), take_all)

        grants = self._sqlite.transact(work)
        self._expect_opening(queues, kinds, waits)
        return grants

    def _look(
        self, session: SqliteSession, queues: Sequence[str], kinds: Sequence[str] | None, waits: list[float]
    ) -> Look:
        """Of the gates with limits only those that are open."""
        rows = session.tuples(
            "list_open_gates", queues=list(queues), tasks=None if kinds is None else list(kinds)
        )
        gates = [gate for gate, limited in rows if not limited]
        now = session.now()
        look = Look(
            gates,
            _probe(session, "look_ready", gates, now, waits),
            _probe(session, "look_tickets", [*gates, ANY_GATE], now, waits),
        )
        if len(gates) < len(rows):
            limited, opening = self._open_gates(session, [gate for gate, has_limits in rows if has_limits])
            waits += opening
            look.limited.extend(_probe(session, "look_ready", limited, now, waits))
            look.limited_lanes.extend(_probe(session, "look_tickets", limited, now, waits))
        return look

    def _take_behind_limits(
        self,
        session: SqliteSession,
        owner: str,
        source: Source,
        groups: list[LookedAt],
        room: int,
        waits: list[float],
    ) -> list[Grant]:
        def take(group: LookedAt, fits: int) -> list[Grant]:
            return _take_groups(session, owner, source, [group], [group.gate], fits) or []

        grants: list[Grant] = []
        for some in batches(groups, AT_ONCE):
            taken, opening = self._take_limited(session, some, room - len(grants), take)
            grants += taken
            waits += opening
            if len(grants) >= room:
                break
        return grants


def _take_groups(
    session: SqliteSession,
    owner: str,
    source: Source,
    groups: Sequence[LookedAt],
    open_gates: Sequence[int],
    room: int,
) -> list[Grant] | None:
    limited = source in ("limited", "limited lane")
    if source in ("lane", "limited lane"):
        heads, cleared = _heads(session, groups, open_gates, room)
        if not heads:
            return None if cleared else []
        session.run("lease_lane_heads", worker=owner, heads=Records(heads))
        session.run("hold_lanes", heads=Records(heads))
        session.run("leave_lanes", heads=Records(heads))
        since = [round(head["available_at"].timestamp() * 1e6) for head in heads]
        return _grants(session, [head["seq"] for head in heads], since, limited)
    return _lease(session, owner, _due(session, groups, room), limited)


def _take_shares(session: SqliteSession, owner: str, parts: list[list[LookedAt]], share: int) -> list[Grant]:
    found = [due for groups in parts for due in _due(session, groups, share)]
    return _lease(session, owner, found, limited=False)


def _lease(session: SqliteSession, owner: str, found: Sequence[Due], limited: bool) -> list[Grant]:
    if not found:
        return []
    seqs = [seq for _, _, seq in found]
    session.run("lease_ready", worker=owner, seqs=seqs)
    session.run("leave_ready", seqs=seqs)
    return _grants(session, seqs, [at for _, at, _ in found], limited)


def _probe(
    session: Session, statement: str, gates: Sequence[int], now: int, waits: list[float]
) -> list[LookedAt]:
    """The groups that have due work; and when the next of the others will have some."""
    if not gates:
        return []
    groups = [LookedAt(*row) for row in session.tuples(statement, gates=gates)]
    later = [group.due for group in groups if group.due > now]
    if not later:
        return groups
    waits.append((min(later) - now) / 1e6)
    return [group for group in groups if group.due <= now]


def _due(session: Session, groups: Sequence[LookedAt], room: int) -> list[Due]:
    """The first of all groups together. A group is read when its head's turn comes: of hundreds of groups those are as
    many as there is room."""

    def read(group: LookedAt) -> list[Due]:
        due = session.tuples("list_due", gate=group.gate, priority=group.priority, limit=room - len(found))
        return [(-group.priority, available_at, seq) for seq, available_at in reversed(due)]

    found: list[Due] = []
    turns = [(-group.priority, group.due, group.first, number) for number, group in enumerate(groups)]
    heapq.heapify(turns)
    lines: dict[int, list[Due]] = {}
    while turns and len(found) < room:
        number = heapq.heappop(turns)[-1]
        if number not in lines:
            lines[number] = read(groups[number])
        line = lines[number]
        # Up to where another group has one that comes before.
        while line and len(found) < room and (not turns or line[-1] <= turns[0][:3]):
            found.append(line.pop())
        if line:
            heapq.heappush(turns, (*line[-1], number))
    return found


def _heads(
    session: Session, groups: Sequence[LookedAt], open_gates: Sequence[int], room: int
) -> tuple[list[dict[str, Any]], bool]:
    """Lane heads to take, and whether tickets were dropped. A ticket is dropped when its lane's head is taken,
    blocked, absent or not due, filed anew when the head belongs to another gate or rank, and kept when there was no
    room for it."""
    opened = set(open_gates)
    floor = min(group.priority for group in groups)
    fits: dict[str, Row] = {}
    tickets: dict[str, list[int]] = {}
    dropped: list[int] = []
    filed: dict[str, Ticket] = {}
    for group in groups:
        rows = session.rows(
            "list_tickets", gate=group.gate, priority=group.priority, limit=max(room, SEES_TICKETS)
        )
        for row in rows:
            lane = row["lane"]
            if row["seq"] is None or row["blocked"] or not row["due"]:
                dropped.append(row["ticket"])
            elif row["gate"] not in opened or row["priority"] < floor:
                dropped.append(row["ticket"])
                filed[lane] = Ticket(lane, row["gate"], row["priority"], row["available_at"])
            else:
                tickets.setdefault(lane, []).append(row["ticket"])
                fits[lane] = row
    order = sorted(fits, key=lambda lane: _rank(fits[lane]))
    taken = order[:room]
    for lane in taken:
        dropped += tickets[lane]
    if dropped:
        session.run("drop_tickets", tickets=dropped)
    write_tickets(session, list(filed.values()))
    told = ("lane", "lane_at", "seq", "available_at")
    heads = [{name: fits[lane][name] for name in told} for lane in taken]
    return heads, bool(dropped)


def _rank(head: Row) -> tuple[Any, ...]:
    return -head["priority"], head["available_at"], head["seq"]


def _grants(session: SqliteSession, seqs: Sequence[int], since: Sequence[int], limited: bool) -> list[Grant]:
    if limited:
        session.run("use_slots", seqs=seqs)
    now, rows = session.now(), session.tuples("read_grants", seqs=seqs)
    return grants_of([(*row, (now - at) / 1e6) for row, at in zip(rows, since, strict=True)])
