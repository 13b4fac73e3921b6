"""Rows that are in the way: what a database holds besides the work at hand, and that work itself.

A background is a heap of rows that a claim must not walk past, renew or settle must not read. The same texts serve
both databases: only times, ids and series are spelled differently (`Dialect`). Rows go in by one statement per table,
through the real schema with all its indexes and checks, and as the store would leave them: every job in exactly one
place, with what it holds beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from leasehold.domain.job import AWAITED, PLAIN, TIED
from leasehold.domain.states import State
from leasehold.stores.database.places import DEADLINE, ENDED_STATES, PARKED_STATES, Place
from leasehold.stores.verbs.limits import gate_id

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
    identity: str
    """Of the database, as the one that has placed its executions."""
    epoch: float = field(default_factory=time.time)

    def time(self, seconds: object) -> str:
        if self.name == "postgres":
            return f"to_timestamp({self.epoch!r} + ({seconds}))"
        return f"({int(self.epoch * 1e6)} + CAST(({seconds}) * 1000000 AS INTEGER))"

    def json(self, text: str) -> str:
        return f"({text})::json" if self.name == "postgres" else f"({text})"

    def id(self, block: int, seconds: object) -> str:
        """A UUIDv7: ids are in time order, as those of producers are."""
        if self.name == "postgres":
            moment = f"lpad(to_hex((({self.epoch!r} + ({seconds})) * 1000)::bigint), 12, '0')"
            return f"({moment} || '7{block:03x}8000' || lpad(to_hex(i), 12, '0'))::uuid"
        moment = f"CAST(({self.epoch!r} + ({seconds})) * 1000 AS INTEGER)"
        return f"printf('%08x-%04x-7{block:03x}-8000-%012x', {moment} >> 16, {moment} & 65535, i)"

    def series(self, count: int) -> str:
        """A table with one column i."""
        if self.name == "postgres":
            return f"generate_series(1, {count}) AS s(i)"
        numbers = f"n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        return f"(WITH RECURSIVE {numbers} SELECT i FROM n) AS s"


@dataclass(frozen=True)
class Rows:
    """`count` rows of a table. A column's text is an SQL expression over `i` = 1, 2, 3 … and over `n`, which is the
    number (seq) of the job that the row is about."""

    table: str
    count: int
    columns: dict[str, str]
    where: str = "true"
    shuffled: bool = False
    """They do not lie in the order of their numbers, as rows do not that have moved."""

    def insert(self, dialect: Dialect, after: int) -> str:
        names, values = ", ".join(self.columns), ", ".join(self.columns.values())
        i = f"1 + i * {_STRIDE} % {self.count}" if self.shuffled else "i"
        rows = f"SELECT {i} AS i FROM {dialect.series(self.count)}"
        return (
            f"INSERT INTO leasehold.{self.table} ({names})"
            f" SELECT {values} FROM (SELECT i, {after} + i AS n FROM ({rows}) AS r) AS r WHERE {self.where}"
            f"{' ON CONFLICT DO NOTHING' if self.table in _KNOWN_TO_MANY else ''}"
        )


@dataclass(frozen=True)
class Jobs:
    """New jobs, and the rows that go with each of them. The numbers of the jobs follow those that are there."""

    requested: Rows
    beside: tuple[Rows, ...]


Block = Rows | Jobs
_KNOWN_TO_MANY = ("worker_name", "gate")

# --- Kinds of rows --------------------------------------------------------------------------------------------------

_DAY = 86_400
_HOUR = 3_600
_STRIDE = 7_919
"""A prime, so that its multiples visit every row of a round number."""


@dataclass(frozen=True)
class Kind:
    """How jobs are asked for that are alike. `lane`, `group` and `key` are expressions over `i`."""

    queue: str = QUEUE
    task: str = KIND
    slots: str | None = None
    rate: str | None = None
    priority: int = 0
    lane: str | None = None
    group: str | None = None
    key: str | None = None
    due: str | None = None
    """Seconds from the epoch on, if they are not due at once."""
    deadline: str | None = None
    awaited: bool = False
    shuffled: bool = False

    @property
    def gate(self) -> int:
        return gate_id(self.queue, self.task, self.slots, self.rate)

    @property
    def special(self) -> str:
        if self.awaited:
            return str(AWAITED)
        if self.lane or self.key or self.slots or self.deadline:
            return str(TIED)
        return f"CASE WHEN {self.group} IS NULL THEN {PLAIN} ELSE {TIED} END" if self.group else str(PLAIN)


PLAIN_KIND = Kind()


def _jobs(d: Dialect, block: int, count: int, task: Kind, place: Rows, *beside: Rows) -> Jobs:
    """Asked for a while ago. The columns of `place` and those beside it are added to what all such rows have."""
    since = _since(count)
    requested = {
        "seq": "n",
        "id": d.id(block, since),
        "task": f"'{task.task}'",
        "queue": f"'{task.queue}'",
        "gate": str(task.gate),
        "priority": str(task.priority),
        "created_at": d.time(since),
        "args": d.json(
            """'{"customer": ' || i || ', "template": "welcome", "address": "someone@example.org"}'"""
        ),
        "available_at": "NULL" if task.due is None else d.time(task.due),
    }
    rows = [place, *beside]
    if task.lane is not None:
        requested["lane"] = task.lane
    if task.group is not None:
        requested["group_name"] = task.group
        member = {"group_name": task.group, "job": "n"}
        rows.append(Rows("member", count, member, where=f"{task.group} IS NOT NULL"))
    if task.key is not None:
        requested["unique_key"] = task.key
        holder = {"task": f"'{task.task}'", "key": task.key, "job_id": requested["id"], "for_ever": "false"}
        rows.append(Rows("unique_key", count, holder))
    if task.deadline is not None:
        requested["deadline_at"] = d.time(task.deadline)
        limit = {"job": "n", "what": str(DEADLINE), "due_at": d.time(task.deadline)}
        rows.append(Rows("time_limit", count, limit))
    return Jobs(Rows("job", count, requested), tuple(replace(one, shuffled=task.shuffled) for one in rows))


def _since(count: int) -> str:
    return f"{-_DAY} + i * {0.5 * _DAY / max(count, 1)!r}"


def _queued(d: Dialect, block: int, count: int, task: Kind = PLAIN_KIND) -> Jobs:
    due = d.time(_since(count) if task.due is None else task.due)
    place = {
        "seq": "n",
        "gate": str(task.gate),
        "priority": str(task.priority),
        "available_at": due,
        "lease_seconds": "30",
        "special": task.special,
    }
    if task.lane is None:
        return _jobs(d, block, count, task, Rows(Place.READY, count, place))
    in_lane = place | {"lane": task.lane, "lane_at": due}
    return _jobs(d, block, count, task, Rows(Place.LANE, count, in_lane))


def _leased(
    d: Dialect,
    block: int,
    count: int,
    task: Kind = PLAIN_KIND,
    worker: str = OWNER,
    expires: object = 10 * _HOUR,
) -> Jobs:
    place = {
        "job": "n",
        "token": "1",
        "expires_at": d.time(expires),
        "started_at": d.time(-60),
        "attempt": "1",
        "worker": _worker(f"'{worker}'"),
        "lease_seconds": "30",
        "special": task.special,
    }
    beside = [Rows("lane_hold", count, {"lane": task.lane, "job": "n"})] if task.lane else []
    if task.slots:
        beside.append(Rows("lease_slot", count, {"job": "n", "gate": str(task.gate)}))
    return _jobs(d, block, count, task, Rows(Place.LEASE, count, place), *beside)


def _parked(d: Dialect, block: int, count: int, state: State, task: Kind = PLAIN_KIND) -> Jobs:
    """Pending ones are held, paused ones were paused while they were queued; the others have run once."""
    ran = state in (State.WAITING, State.RUNNING)
    place = {
        "job": "n",
        "state": str(PARKED_STATES[state]),
        "token": "1" if ran else "0",
        "attempt": "1" if ran else "0",
        "special": str(TIED) if ran else task.special,
        "since": d.time(-_HOUR),
        "held": "true" if state is State.PENDING else "false",
        "started_at": d.time(-_HOUR) if ran else "NULL",
    }
    beside = [_attempt(d, count, state.value), _trouble(d, count, failures=0)] if ran else []
    if task.lane is not None:
        place["lane_at"] = d.time(_since(count))
        beside.append(Rows("lane_stop", count, {"lane": task.lane, "job": "n"}))
    if state is State.WAITING:
        beside.append(_question(d, block, count))
    if state is State.RUNNING:
        run = {
            "job": "n",
            "attempt": "1",
            "site": f"'{SITE}'",
            "name": "'run-' || i",
            "origin": f"'{d.identity}'",
            "placed_at": d.time(-_HOUR),
        }
        beside.append(Rows("execution", count, run))
    return _jobs(d, block, count, task, Rows(Place.PARKED, count, place), *beside)


def _ended(
    d: Dialect,
    block: int,
    count: int,
    state: str,
    task: Kind = PLAIN_KIND,
    *beside: Rows,
    worker: str = f"'{OWNER}'",
) -> Jobs:
    """After one run. `state` is an expression for the number of the state."""
    place = {
        "job": "n",
        "token": "1",
        "finished_at": d.time(f"{-_HOUR} + i * 0.0001"),
        "started_at": d.time(-_HOUR),
        "attempt": "1",
        "worker": _worker(worker),
        "state": state,
        "special": task.special,
        "result": d.json(f"""CASE WHEN {state} = 1 THEN '{{"sent": true}}' END"""),
        "error": f"CASE WHEN {state} > 2 THEN 'RuntimeError: no' END",
    }
    return _jobs(d, block, count, task, Rows(Place.OUTCOME, count, place), *beside)


def _halter(d: Dialect, block: int, count: int, lane: str) -> Jobs:
    hold = Rows("lane_hold", count, {"lane": lane, "job": "n"})
    failed = str(ENDED_STATES[State.FAILED])
    return _ended(d, block, count, failed, Kind(lane=lane), hold, _trouble(d, count))


def _trouble(d: Dialect, count: int, failures: int = 1, where: str = "true") -> Rows:
    started = d.time(-_HOUR)
    columns = {"job": "n", "failures": str(failures), "crashes": "0", "changed_at": started}
    return Rows("failure_state", count, columns | {"first_started_at": started, "started_at": started}, where)


def _attempt(d: Dialect, count: int, ended: str) -> Rows:
    columns = {"job": "n", "token": "1", "number": "1", "worker": _worker(f"'{OWNER}'"), "settled": "true"}
    times = {"started_at": d.time(-_HOUR), "ended_at": d.time(-_HOUR + 1)}
    return Rows("attempt", count, columns | times | {"ended": f"'{ended}'"})


def _question(d: Dialect, block: int, count: int) -> Rows:
    columns = {"job_id": d.id(block, _since(count)), "key": "'go'", "text": "'Shall it?'"}
    return Rows("question", count, columns | {"asked_at": d.time(f"{-_HOUR} + i * 0.0001")})


def _ticket(d: Dialect, count: int, lane: str, due: str = f"{-_HOUR} + i * 0.01", gate: int = GATE) -> Rows:
    columns = {"gate": str(gate), "priority": "0", "available_at": d.time(due), "lane": lane}
    return Rows("ticket", count, columns)


def _worker(name: str) -> str:
    return f"(SELECT o.number FROM leasehold.worker_name AS o WHERE o.name = {name})"


def _worker_names() -> Rows:
    return Rows("worker_name", 20, {"name": "'worker-' || (i - 1)"})


def _gate(task: Kind) -> Rows:
    columns = {"id": str(task.gate), "queue": f"'{task.queue}'", "task": f"'{task.task}'"}
    if task.slots is not None:
        columns["slots"] = f"'{task.slots}'"
    if task.rate is not None:
        columns["rate_key"] = f"'{task.rate}'"
    return Rows("gate", 1, columns)


# --- Backgrounds ----------------------------------------------------------------------------------------------------

SLOTS, KEY = '{"browser": 1}', "api"
LIMITED = Kind(task="limited", slots=SLOTS, priority=10)
RATED = Kind(task="rated", rate=KEY, priority=10)
LIMITED_GATE = LIMITED.gate


def _nothing(d: Dialect, n: int) -> Iterator[Block]:
    yield from ()


def _finished(d: Dialect, n: int) -> Iterator[Block]:
    grouped = Kind(group="CASE WHEN i % 10 = 0 THEN 'group-' || (i % 1000) END")
    yield Rows("job_group", 100, {"name": "'group-' || (i * 10 % 1000)", "live": "0"})
    yield _ended(d, 1, n, str(ENDED_STATES[State.SUCCEEDED]), grouped, worker="'worker-' || (i % 20)")


def _delayed(d: Dialect, n: int) -> Iterator[Block]:
    yield _queued(d, 2, n, Kind(due=f"{_DAY} + i * 0.01"))


def _delayed_higher(d: Dialect, n: int) -> Iterator[Block]:
    yield _queued(d, 3, n, Kind(priority=10, due=f"{_DAY} + i * 0.01"))


def _parked_ones(d: Dialect, n: int) -> Iterator[Block]:
    for number, state in enumerate((State.PENDING, State.WAITING, State.PAUSED)):
        yield _parked(d, 16 + number, n // 3, state)


def _one_halted_lane(d: Dialect, n: int) -> Iterator[Block]:
    yield _halter(d, 4, 1, "'halted'")
    yield _queued(d, 5, n, Kind(lane="'halted'"))
    yield _ticket(d, 1, "'halted'")


def _halted_lanes(d: Dialect, n: int) -> Iterator[Block]:
    lane = "'halted-' || (i % 1000)"
    yield _halter(d, 6, 1000, lane)
    yield _queued(d, 7, n, Kind(lane=lane))
    yield _ticket(d, 1000, lane)


def _running_lane(d: Dialect, n: int) -> Iterator[Block]:
    busy = Kind(lane="'busy'")
    yield _leased(d, 8, 1, busy, "worker-2")
    yield _queued(d, 9, n, busy)
    yield _ticket(d, 1, "'busy'")


def _delayed_lanes(d: Dialect, n: int) -> Iterator[Block]:
    later = f"{_DAY} + i * 0.01"
    yield _queued(d, 12, n, Kind(lane="'later-' || i", due=later))
    yield _ticket(d, n, "'later-' || i", due=later)


def _other_queue(d: Dialect, n: int) -> Iterator[Block]:
    other = Kind(queue="other")
    yield _gate(other)
    yield _queued(d, 10, n, other)


def _paused_kind(d: Dialect, n: int) -> Iterator[Block]:
    held = Kind(task="held", priority=10)
    yield _gate(held)
    yield _queued(d, 11, n, held)
    yield Rows("pause", 1, {"scope": "'task'", "name": "'held'", "paused_at": d.time(0)})


def _full_slot(d: Dialect, n: int) -> Iterator[Block]:
    yield _gate(LIMITED)
    yield Rows("slot", 1, {"name": "'browser'", "lim": "4"})
    yield _leased(d, 13, 4, LIMITED, "worker-2")
    yield _queued(d, 14, n, LIMITED)


def _closed_key(d: Dialect, n: int) -> Iterator[Block]:
    yield _gate(RATED)
    rate = {"key": f"'{KEY}'", "lim": "'60/min'", "spacing": "1.0", "burst": "1"}
    yield Rows("rate", 1, rate | {"next_at": d.time(0), "closed": "true"})
    yield _queued(d, 15, n, RATED)


BACKGROUNDS: dict[str, Callable[[Dialect, int], Iterable[Block]]] = {
    "nothing": _nothing,
    "finished": _finished,
    "delayed": _delayed,
    "delayed, higher priority": _delayed_higher,
    "parked": _parked_ones,
    "behind one halted lane": _one_halted_lane,
    "behind 1,000 halted lanes": _halted_lanes,
    "behind one running lane": _running_lane,
    "delayed in lanes, a ticket each": _delayed_lanes,
    "in another queue": _other_queue,
    "of a paused task, higher priority": _paused_kind,
    "behind a full slot, higher priority": _full_slot,
    "behind a closed key, higher priority": _closed_key,
}
NOTHING, ALL = "nothing", "all together"
NAMES = (*BACKGROUNDS, ALL)
CROWDED = tuple(name for name in NAMES if name != NOTHING)


def load_background(run: Run, dialect: Dialect, name: str, count: int) -> None:
    """The gate of the work at hand, and `count` rows of the background (of each, for all together)."""
    _load(run, dialect, [_worker_names(), _gate(PLAIN_KIND)])
    for task in BACKGROUNDS if name == ALL else [name]:
        _load(run, dialect, BACKGROUNDS[task](dialect, count))


RARE_QUEUE, RARE_KIND = "rare", "seldom"


def load_history(run: Run, dialect: Dialect, count: int) -> None:
    """`count` ended jobs for those who look into the past: of a hundred three have not gone well, one in ten is in one
    of a hundred groups. The oldest thousand are of another queue and kind: whoever asks for those has to go far."""
    d = dialect
    grouped = "CASE WHEN i % 10 = 0 THEN 'group-' || (i % 1000) END"
    state = "CASE WHEN i % 100 IN (3, 33, 63) THEN 2 + i % 100 / 30 ELSE 1 END"
    old = Kind(queue=RARE_QUEUE, task=RARE_KIND)
    groups = Rows("job_group", 100, {"name": "'group-' || (i * 10 % 1000)", "live": "0"})
    _load(run, d, [_worker_names(), _gate(PLAIN_KIND), _gate(old), groups])
    trouble = _trouble(d, count, where=f"{state} > 2")
    _load(run, d, [_ended(d, 30, 1000, "1", old), _ended(d, 31, count, state, Kind(group=grouped), trouble)])


# --- The work at hand -----------------------------------------------------------------------------------------------

BATCH = 500
FEW = 20


def load_work(run: Run, dialect: Dialect, count: int = BATCH) -> None:
    """`count` each of: plain jobs that are due, lanes whose head is due, plain jobs and lane jobs that run under
    OWNER, leases that have run out, holders of unique keys, ended ones. And a few each of: orphans of SITE, jobs whose
    time is over, paused ones, lanes that are halted or stopped, running jobs that one other waits for, units of a slot
    that are in use and units that were left behind."""
    d = dialect
    keyed = Kind(task="keyed", key="'key-' || i", due=f"{_DAY}", shuffled=True)
    running_lanes = Kind(lane="'taken-' || i", group="'batch-' || (i % 10)", shuffled=True)
    plain, overdue = Kind(shuffled=True), Kind(deadline="-60", shuffled=True)
    units = {"name": "'gpu'", "attempt": "1", "units": "1"}
    using = _leased(d, 107, FEW, worker="worker-2")
    waiting = _parked(d, 114, FEW, State.PENDING)
    waiting.beside[0].columns.update(held="false", unmet="1")
    ids = {"child_id": d.id(114, _since(FEW)), "parent_id": d.id(113, _since(FEW))}
    ties = Rows("dependency", FEW, {**ids, "position": "0", "on_failure": "'run'"})
    _load(
        run,
        d,
        [
            _worker_names(),
            _gate(keyed),
            Rows("job_group", 10, {"name": "'batch-' || (i - 1)", "live": str(count // 10)}),
            Rows("slot", 1, {"name": "'gpu'", "lim": str(2 * FEW)}),
            _queued(d, 100, count, plain),
            _queued(d, 101, count, Kind(lane="'lane-' || i", shuffled=True)),
            _ticket(d, count, "'lane-' || i"),
            _leased(d, 102, count, plain),
            _leased(d, 103, count, running_lanes),
            _leased(d, 104, count, plain, "worker-3", -30),
            _parked(d, 105, FEW, State.RUNNING),
            _queued(d, 106, count, keyed),
            Jobs(using.requested, (*using.beside, Rows("slot_hold", FEW, {**units, "job": "n"}))),
            Rows("slot_hold", FEW, {**units, "job": "-i"}),
            _queued(d, 108, FEW, overdue),
            _parked(d, 109, FEW, State.PAUSED),
            _halter(d, 110, FEW, "'stuck-' || i"),
            _parked(d, 111, FEW, State.PAUSED, Kind(lane="'stopped-' || i")),
            Rows("job_group", 10, {"name": "'done-' || (i - 1)", "live": "0"}),
            _ended(d, 112, count, "1", Kind(group="'done-' || (i % 10)", shuffled=True)),
            _leased(d, 113, FEW, Kind(awaited=True), "worker-4"),
            waiting,
            ties,
        ],
    )


def load_many_gates(run: Run, dialect: Dialect, gates: int, count: int = BATCH) -> list[int]:
    """Kinds of which each has `count` plain jobs and `count` lanes that are due; their gates."""
    d = dialect
    tasks = [Kind(task=f"kind-{number}") for number in range(gates)]
    _load(run, d, [_worker_names()])
    for number, task in enumerate(tasks):
        lane = f"'lane-{number}-' || i"
        in_lanes = _queued(d, 300 + number, count, replace(task, lane=lane))
        tickets = _ticket(d, count, lane, gate=task.gate)
        _load(run, d, [_gate(task), _queued(d, 200 + number, count, task), in_lanes, tickets])
    return [task.gate for task in tasks]


def _load(run: Run, dialect: Dialect, blocks: Iterable[Block]) -> None:
    for block in blocks:
        after = run("SELECT coalesce(max(seq), 0) FROM leasehold.job")[0][0]
        rows = (block.requested, *block.beside) if isinstance(block, Jobs) else (block,)
        for one in rows:
            run(one.insert(dialect, after))
    if dialect.name == "postgres":
        # The numbers were given here, not taken from the sequence.
        run("SELECT setval(pg_get_serial_sequence('leasehold.job', 'seq'), max(seq)) FROM leasehold.job")
