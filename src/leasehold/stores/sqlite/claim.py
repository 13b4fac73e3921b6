"""Claim on SQLite: with one writer at a time, one transaction finds due groups and then takes from them."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from leasehold.domain.job import Grant
from leasehold.domain.lanes import ANY_GATE, DueGroup, DueGroups, Source, Ticket
from leasehold.stores.database.database import Records, Row, Session
from leasehold.stores.sqlite.database import SqliteDatabase, SqliteSession
from leasehold.stores.store import JobStore
from leasehold.stores.verbs.claim import (
    SEES_TICKETS,
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
from leasehold.stores.verbs.writing import write_tickets

Due = tuple[int, int, int]
"""A due job, in the order of claims: its negative priority, since when it is due (in microseconds), its number."""

_HEAD_COLUMNS = ("lane", "lane_at", "seq", "available_at")


class SqliteClaims(JobStore):
    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self._sqlite = database

    def _claim(self, request: ClaimRequest, idle: bool) -> list[Grant]:
        waits: list[float] = []
        """Seconds until jobs are due, or rates open."""

        def work(session: SqliteSession) -> list[Grant]:
            claim = Claim(
                request,
                SqliteStrategies(session, request.worker, self._admit, waits),
                lambda: self._find_due_groups(session, request.where, waits),
                lambda found: self._queues_of(session, found),
            )
            claim.find_and_take()
            return claim.grants

        grants = self._past_refused(request, lambda: self._sqlite.transact(work))
        self._expect_opening(request.queues, request.tasks, waits)
        return grants

    def _find_due_groups(self, session: SqliteSession, where: Where, waits: list[float]) -> DueGroups:
        """Find due groups; of the gates with limits, only behind open ones."""
        rows = session.tuples("list_unpaused_gates", **where)
        gates = [gate for gate, limited in rows if not limited]
        now = session.now()
        found = DueGroups(
            gates,
            _probe(session, "find_ready_groups", gates, now, waits),
            _probe(session, "find_ticket_groups", [*gates, ANY_GATE], now, waits),
        )
        if len(gates) < len(rows):
            limited, opening = self._open_gates(session, [gate for gate, has_limits in rows if has_limits])
            waits += opening
            found.limited.extend(_probe(session, "find_ready_groups", limited, now, waits))
            found.limited_lanes.extend(_probe(session, "find_ticket_groups", limited, now, waits))
        return found


@dataclass(slots=True)
class SqliteStrategies:
    session: SqliteSession
    worker: str
    admit: Admit
    waits: list[float]

    def of(self, source: Source) -> Take:
        match source:
            case "plain":
                return PlainTake(self.session, self.worker)
            case "lane":
                return LaneTake(self.session, self.worker)
            case "limited":
                return self._limited(PlainTake(self.session, self.worker, limited=True))
            case "limited lane":
                return self._limited(LaneTake(self.session, self.worker, limited=True))

    def shared(self) -> TakeFromEach:
        return SharedTake(self.session, self.worker)

    def _limited(self, inner: Take) -> LimitedTake:
        """Takes in the transaction that is open."""
        return LimitedTake(
            lambda work: work(self.session),
            self.admit,
            lambda _, group, fits: inner.take([group], [group.gate], fits).grants,
            self.waits,
        )


@dataclass(slots=True)
class PlainTake:
    session: SqliteSession
    worker: str
    limited: bool = False

    def take(self, groups: list[DueGroup], open_gates: list[int], room: int) -> Taken:
        return Taken(_lease(self.session, self.worker, _due(self.session, groups, room), self.limited))


@dataclass(slots=True)
class LaneTake:
    """Takes the heads of lanes, by the lanes' tickets."""

    session: SqliteSession
    worker: str
    limited: bool = False

    def take(self, groups: list[DueGroup], open_gates: list[int], room: int) -> Taken:
        session = self.session
        heads, cleared = _heads(session, groups, open_gates, room)
        if not heads:
            return Taken([], cleared)
        session.run("claim_lane_heads", worker=self.worker, heads=Records(heads))
        session.run("hold_lanes", heads=Records(heads))
        session.run("leave_lanes", heads=Records(heads))
        since = [round(head["available_at"].timestamp() * 1e6) for head in heads]
        return Taken(_grants(session, [head["seq"] for head in heads], since, self.limited))


@dataclass(slots=True)
class SharedTake:
    session: SqliteSession
    worker: str

    def take_from_each(self, queues: list[list[DueGroup]], share: int) -> list[Grant]:
        found = [due for groups in queues for due in _due(self.session, groups, share)]
        return _lease(self.session, self.worker, found, limited=False)


def _lease(session: SqliteSession, worker: str, found: Sequence[Due], limited: bool) -> list[Grant]:
    if not found:
        return []
    seqs = [seq for _, _, seq in found]
    session.run("insert_leases_of_ready", worker=worker, seqs=seqs)
    session.run("drop_ready", seqs=seqs)
    return _grants(session, seqs, [at for _, at, _ in found], limited)


def _probe(
    session: Session, statement: str, gates: Sequence[int], now: int, waits: list[float]
) -> list[DueGroup]:
    """The groups that have due work. `waits` gets the seconds until the next of the other groups has some."""
    if not gates:
        return []
    groups = [DueGroup(*row) for row in session.tuples(statement, gates=gates)]
    later = [group.due for group in groups if group.due > now]
    if not later:
        return groups
    waits.append((min(later) - now) / 1e6)
    return [group for group in groups if group.due <= now]


def _due(session: Session, groups: Sequence[DueGroup], room: int) -> list[Due]:
    """The first due jobs of all groups together. A group is read when its head's turn comes: of hundreds of groups, at
    most `room` are read."""

    def read(group: DueGroup) -> list[Due]:
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
        # Take until a job of another group comes first.
        while line and len(found) < room and (not turns or line[-1] <= turns[0][:3]):
            found.append(line.pop())
        if line:
            heapq.heappush(turns, (*line[-1], number))
    return found


def _heads(
    session: Session, groups: Sequence[DueGroup], open_gates: Sequence[int], room: int
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
            if row["seq"] is None or row["blocked"] or not row["is_due"]:
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
    heads = [{name: fits[lane][name] for name in _HEAD_COLUMNS} for lane in taken]
    return heads, bool(dropped)


def _rank(head: Row) -> tuple[Any, ...]:
    return -head["priority"], head["available_at"], head["seq"]


def _grants(session: SqliteSession, seqs: Sequence[int], since: Sequence[int], limited: bool) -> list[Grant]:
    if limited:
        session.run("use_slots", seqs=seqs)
    now, rows = session.now(), session.tuples("read_grants", seqs=seqs)
    return grants_of([(*row, (now - at) / 1e6) for row, at in zip(rows, since, strict=True)])
