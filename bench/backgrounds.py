"""Rows that are in the way: what a database holds besides the work at hand, and that work itself.

A background is a heap of rows that a claim must not walk past, renew or settle must not read. The same texts serve
both databases: only times, ids and series are spelled differently (`Dialect`). Rows go in by one statement per kind
of row, through the real schema with all its indexes and checks.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from leasehold.stores.verbs.enqueue import gate_id

QUEUE, KIND = "default", "work"
GATE = gate_id(QUEUE, KIND)
OWNER = "worker-1"
SITE = "site-1"

Run = Callable[[str], Any]
"""Executes a statement in which tables are called leasehold.job, leasehold.ticket and so on."""


@dataclass(frozen=True)
class Dialect:
    """Spells times and ids. Both are given as an expression for the seconds from `epoch` on; `i` is the row."""

    name: Literal["sqlite", "postgres"]
    epoch: float = field(default_factory=time.time)

    def time(self, seconds: object) -> str:
        if self.name == "postgres":
            return f"to_timestamp({self.epoch!r} + ({seconds}))"
        return f"({int(self.epoch * 1e6)} + CAST(({seconds}) * 1000000 AS INTEGER))"

    def id(self, block: int, seconds: object) -> str:
        """A UUIDv7: ids are in time order, as those of producers are."""
        if self.name == "postgres":
            moment = f"lpad(to_hex((({self.epoch!r} + ({seconds})) * 1000)::bigint), 12, '0')"
            return f"({moment} || '7{block:03x}8000' || lpad(to_hex(i), 12, '0'))::uuid"
        moment = f"CAST(({self.epoch!r} + ({seconds})) * 1000 AS INTEGER)"
        return f"printf('%08x-%04x-7{block:03x}-8000-%012x', {moment} >> 16, {moment} & 65535, i)"

    def series(self, count: int) -> str:
        if self.name == "postgres":
            return f"generate_series(1, {count}) AS i"
        return f"(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n)"


@dataclass(frozen=True)
class Rows:
    """`count` rows of a table; a column's text is an SQL expression over `i` = 1, 2, 3 …"""

    table: str
    count: int
    columns: dict[str, str]

    def insert(self, dialect: Dialect) -> str:
        names, values = ", ".join(self.columns), ", ".join(self.columns.values())
        return (
            f"INSERT INTO leasehold.{self.table} ({names}) SELECT {values} FROM {dialect.series(self.count)}"
        )


# --- Kinds of rows --------------------------------------------------------------------------------------------------

_DAY = 86_400
_HOUR = 3_600
_STRIDE = 7_919
"""A prime, so that its multiples visit every row of a round number."""


def _job(
    d: Dialect,
    block: int,
    count: int,
    *,
    queue: str = QUEUE,
    kind: str = KIND,
    shuffled: bool = False,
    **columns: str,
) -> Rows:
    """Queued and due since a while, unless `columns` say otherwise. `shuffled`: the rows do not lie in the order of
    their ids, as those do not that were updated."""
    place = f"(i * {_STRIDE} % {count})" if shuffled else "i"
    since = f"{-_DAY} + {place} * {0.5 * _DAY / max(count, 1)!r}"
    values = {
        "id": d.id(block, since),
        "kind": f"'{kind}'",
        "queue": f"'{queue}'",
        "gate": str(gate_id(queue, kind)),
        "state": "'queued'",
        "args": """'{"customer": ' || i || ', "template": "welcome", "address": "someone@example.org"}'""",
        "created_at": d.time(since),
        "available_at": d.time(since),
    } | columns
    if "lane" in columns:
        values.setdefault("lane_at", values["available_at"])
    values["args"] = f"({values['args']}){'::json' if d.name == 'postgres' else ''}"
    return Rows("job", count, values)


def _ticket(d: Dialect, count: int, lane: str, due: str = f"{-_HOUR} + i * 0.01") -> Rows:
    columns = {"gate": str(GATE), "priority": "0", "available_at": d.time(due), "lane": lane}
    return Rows("ticket", count, columns)


def _leased(d: Dialect, owner: str = OWNER, expires: object = 10 * _HOUR) -> dict[str, str]:
    return {
        "state": "'running'",
        "lease_owner": f"'{owner}'",
        "lease_expires_at": d.time(expires),
        "lease_token": "1",
        "attempt": "1",
        "first_started_at": d.time(-60),
        "started_at": d.time(-60),
    }


def _halter(d: Dialect, block: int, count: int, lane: str) -> Rows:
    return _job(
        d,
        block,
        count,
        lane=lane,
        lane_at=d.time(-d.epoch),
        state="'failed'",
        halts_lane="true",
        error="'RuntimeError: no'",
        attempt="3",
        failures="3",
        lease_token="6",
        finished_at=d.time(-_HOUR),
    )


# --- Backgrounds ----------------------------------------------------------------------------------------------------


def _nothing(d: Dialect, n: int) -> Iterator[Rows]:
    yield from ()


def _finished(d: Dialect, n: int) -> Iterator[Rows]:
    yield _job(
        d,
        1,
        n,
        state="'succeeded'",
        attempt="1",
        lease_token="2",
        first_started_at=d.time(-_HOUR),
        started_at=d.time(-_HOUR),
        finished_at=d.time(f"{-_HOUR} + i * 0.0001"),
        settled_by="'worker-' || (i % 20)",
        settled_token="1",
        group_name="CASE WHEN i % 10 = 0 THEN 'group-' || (i % 1000) END",
        result="""'{"sent": true}'""" + ("::json" if d.name == "postgres" else ""),
    )


def _delayed(d: Dialect, n: int) -> Iterator[Rows]:
    yield _job(d, 2, n, available_at=d.time(f"{_DAY} + i * 0.01"))


def _delayed_higher(d: Dialect, n: int) -> Iterator[Rows]:
    yield _job(d, 3, n, priority="10", available_at=d.time(f"{_DAY} + i * 0.01"))


def _one_halted_lane(d: Dialect, n: int) -> Iterator[Rows]:
    yield _halter(d, 4, 1, "'halted'")
    yield _job(d, 5, n, lane="'halted'")
    yield _ticket(d, 1, "'halted'")


def _halted_lanes(d: Dialect, n: int) -> Iterator[Rows]:
    yield _halter(d, 6, 1000, "'halted-' || (i % 1000)")
    yield _job(d, 7, n, lane="'halted-' || (i % 1000)")
    yield _ticket(d, 1000, "'halted-' || (i % 1000)")


def _running_lane(d: Dialect, n: int) -> Iterator[Rows]:
    yield _job(d, 8, 1, lane="'busy'", lane_at=d.time(-d.epoch), **_leased(d, "worker-2"))
    yield _job(d, 9, n, lane="'busy'")
    yield _ticket(d, 1, "'busy'")


def _delayed_lanes(d: Dialect, n: int) -> Iterator[Rows]:
    yield _job(d, 12, n, lane="'later-' || i", available_at=d.time(f"{_DAY} + i * 0.01"))
    yield _ticket(d, n, "'later-' || i", due=f"{_DAY} + i * 0.01")


def _other_queue(d: Dialect, n: int) -> Iterator[Rows]:
    yield _gate("other", KIND)
    yield _job(d, 10, n, queue="other")


def _paused_kind(d: Dialect, n: int) -> Iterator[Rows]:
    yield _gate(QUEUE, "held")
    yield _job(d, 11, n, kind="held", priority="10")
    yield Rows("pause", 1, {"scope": "'kind'", "name": "'held'", "paused_at": d.time(0)})


def _full_slot(d: Dialect, n: int) -> Iterator[Rows]:
    behind = {"gate": str(LIMITED_GATE), "limited": "true", "priority": "10"}
    yield _gate(QUEUE, "limited", SLOTS)
    yield Rows("slot", 1, {"name": "'browser'", "lim": "4"})
    yield _job(d, 13, 4, kind="limited", **_leased(d, "worker-2"), **behind)
    yield _job(d, 14, n, kind="limited", **behind)


def _closed_key(d: Dialect, n: int) -> Iterator[Rows]:
    yield _gate(QUEUE, "rated", rate=KEY)
    yield Rows(
        "rate",
        1,
        {
            "key": f"'{KEY}'",
            "lim": "'60/min'",
            "spacing": "1.0",
            "burst": "1",
            "next_at": d.time(0),
            "closed": "true",
        },
    )
    yield _job(d, 15, n, kind="rated", gate=str(gate_id(QUEUE, "rated", None, KEY)), priority="10")


SLOTS, KEY = '{"browser": 1}', "api"
LIMITED_GATE = gate_id(QUEUE, "limited", SLOTS)


def _gate(queue: str, kind: str, slots: str | None = None, rate: str | None = None) -> Rows:
    columns = {
        "id": str(gate_id(queue, kind, slots, rate)),
        "queue": f"'{queue}'",
        "kind": f"'{kind}'",
    }
    if slots is not None:
        columns["slots"] = f"'{slots}'"
    if rate is not None:
        columns["rate_key"] = f"'{rate}'"
    return Rows("gate", 1, columns)


BACKGROUNDS: dict[str, Callable[[Dialect, int], Iterable[Rows]]] = {
    "nothing": _nothing,
    "finished": _finished,
    "delayed": _delayed,
    "delayed, higher priority": _delayed_higher,
    "behind one halted lane": _one_halted_lane,
    "behind 1,000 halted lanes": _halted_lanes,
    "behind one running lane": _running_lane,
    "delayed in lanes, a ticket each": _delayed_lanes,
    "in another queue": _other_queue,
    "of a paused kind, higher priority": _paused_kind,
    "behind a full slot, higher priority": _full_slot,
    "behind a closed key, higher priority": _closed_key,
}
NOTHING, ALL = "nothing", "all together"
NAMES = (*BACKGROUNDS, ALL)
CROWDED = tuple(name for name in NAMES if name != NOTHING)


def load_background(run: Run, dialect: Dialect, name: str, count: int) -> None:
    """The gate of the work at hand, and `count` rows of the background (of each, for all together)."""
    _load(run, dialect, [_gate(QUEUE, KIND)])
    for kind in BACKGROUNDS if name == ALL else [name]:
        _load(run, dialect, BACKGROUNDS[kind](dialect, count))


# --- The work at hand -----------------------------------------------------------------------------------------------

BATCH = 500


def load_work(run: Run, dialect: Dialect, count: int = BATCH) -> None:
    """`count` each of: plain jobs that are due, lanes whose head is due, plain jobs and lane jobs that run under
    OWNER, leases that have run out, holders of unique keys; and a few orphans of SITE."""
    d = dialect
    at_hand = functools.partial(_job, d, shuffled=True)
    orphan = {
        "state": "'running'",
        "attempt": "1",
        "lease_token": "2",
        "execution_site": f"'{SITE}'",
        "execution_name": "'run-' || i",
    }
    in_lane = {
        "lane": "'taken-' || i",
        "lane_at": d.time(-d.epoch),
        "group_name": "'batch-' || (i % 10)",
    }
    _load(
        run,
        d,
        [
            at_hand(100, count),
            at_hand(101, count, lane="'lane-' || i"),
            _ticket(d, count, "'lane-' || i"),
            at_hand(102, count, **_leased(d)),
            at_hand(103, count, **in_lane, **_leased(d)),
            Rows("job_group", 10, {"name": "'batch-' || (i - 1)"}),
            at_hand(104, count, **_leased(d, "worker-3", -30)),
            at_hand(105, 20, **orphan),
            at_hand(106, count, kind="keyed", available_at=d.time(_DAY), unique_key="'key-' || i"),
        ],
    )


def load_many_gates(run: Run, dialect: Dialect, gates: int, count: int = BATCH) -> list[int]:
    """Kinds of which each has `count` plain jobs and `count` lanes that are due; their gates."""
    d = dialect
    for number in range(gates):
        kind, lane = f"kind-{number}", f"'lane-{number}-' || i"
        in_lane = _job(d, 300 + number, count, kind=kind, lane=lane)
        tickets = _ticket(d, count, lane)
        tickets.columns["gate"] = in_lane.columns["gate"]
        _load(run, d, [_gate(QUEUE, kind), _job(d, 200 + number, count, kind=kind), in_lane, tickets])
    return [gate_id(QUEUE, f"kind-{number}") for number in range(gates)]


def _load(run: Run, dialect: Dialect, blocks: Iterable[Rows]) -> None:
    for rows in blocks:
        run(rows.insert(dialect))
