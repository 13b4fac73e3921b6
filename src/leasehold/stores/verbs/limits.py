"""Slots and rates, limits for all workers; and gates: a job's queue, task and limits as one number.

Units in use are counted from running jobs, never stored.

A claim locks the slots by name, then the rates by key, and only then counts, by a statement of its own: if
the locking statement counted, two claims could both see the last unit free.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

from leasehold.domain.errors import InvalidInput, LeaseLost
from leasehold.domain.job import Grant, NewJob
from leasehold.domain.lanes import DueGroup, DueGroups
from leasehold.domain.limits import DefaultLimit, Need, RateUse, Room, SlotCount, read_need, slots_text
from leasehold.domain.records import GateLimits, RateRow, SlotHolder, SlotNeed, SlotRow
from leasehold.stores.database.database import Database, Records, Row, Session
from leasehold.stores.results import Acquired
from leasehold.stores.verbs.audit import changed, unrecorded
from leasehold.stores.verbs.writing import Verbs, reading, transaction

MOST_HOLDERS = 20
MOST_LIMITED_GROUPS = 20
"""Limited groups that one transaction takes from: it holds the locks of all their slots and rates."""

ClaimGroup = Callable[[DueGroup, int], list[Grant]]
"""Claims up to this many jobs of a group, in an open transaction."""
Admitted = tuple[list[Grant], list[float]]
"""The jobs that limits admitted, and in how many seconds rates will open again."""
Claimed = tuple[frozenset[str], frozenset[str] | None]
"""The queues and tasks of a claim."""


class LimitVerbs(Verbs):
    """Slots and rates, which a job passes before it starts."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._needs: dict[int, Need] = {}
        """The need of each known gate. A gate never changes."""
        self._gate_queues: dict[int, str] = {}
        """The queue of each known gate."""
        self._rates: set[str] = set()
        """Names known to be rates. A rate never becomes a slot."""
        self._openings: dict[Claimed, float] = {}
        """When the next job of each claim is due or a rate may admit it, on the monotonic clock."""

    # -- operate ---------------------------------------------------------------------------------------------------
    @transaction
    def set_slot(self, session: Session, name: str, limit: int) -> None:
        """Allow at most `limit` units in use at once across all workers; 0 closes the slot. Units in use stay in
        use."""
        if session.rows("find_rates", keys=[name]):
            raise two_meanings(name, "a rate")
        session.run("set_slot", name=name, lim=limit)

    @transaction
    def set_rate(self, session: Session, key: str, limit: str, spacing: float, burst: int) -> None:
        """Allow one job every `spacing` seconds, and up to `burst` jobs at once after a silence."""
        if session.rows("find_slots", names=[key]):
            raise two_meanings(key, "a slot")
        session.run("set_rate", key=key, lim=limit, spacing=spacing, burst=burst)

    def close_rate(
        self,
        key: str,
        actor: str | None = None,
        reason: str | None = None,
        for_: float | None = None,
        until: datetime | None = None,
    ) -> None:
        """Let no job of this key start on any worker until the given time or until `open_rate`."""
        parameters = {"key": key, "actor": actor, "reason": reason, "seconds": for_, "until": until}
        if not self._database.single(lambda session: changed(session.rows("close_rate", **parameters))):
            raise unknown_rate("key", key)

    @transaction
    def open_rate(self, session: Session, key: str) -> bool:
        """Open a closed rate. False: the rate was not closed."""
        session.run("lock_rates", keys=[key])
        rows = session.rows("read_rates", keys=[key])
        if not rows:
            raise unknown_rate("key", key)
        session.run("open_rate", key=key)
        return changed(bool(rows[0]["closed"]))

    # -- inspect ---------------------------------------------------------------------------------------------------
    @reading
    def list_slots(self, session: Session) -> list[SlotRow]:
        """All slots, with the units in use and the jobs that hold them."""
        return [
            SlotRow(row["name"], row["lim"], row["used"], _holders(session, row["name"]))
            for row in session.rows("read_slots", names=None)
        ]

    def list_rates(self) -> list[RateRow]:
        """All rates, with the time until the next job of each may start."""
        return [_rate_row(row) for row in self._rows("read_rates", keys=None)]

    @reading
    def limits_of(self, session: Session, gate: int) -> GateLimits:
        """What jobs behind this gate need, how much of it is in use, and which jobs use it."""
        need = self._needs_of(session, [gate])[gate]
        units = dict(need.slots)
        slots = session.rows("read_slots", names=sorted(units)) if units else []
        rates = session.rows("read_rates", keys=[need.rate]) if need.rate is not None else []
        return GateLimits(
            [
                SlotNeed(r["name"], units[r["name"]], r["lim"], r["used"], _holders(session, r["name"]))
                for r in slots
            ],
            _rate_row(rates[0]) if rates else None,
        )

    # -- inside an attempt -----------------------------------------------------------------------------------------
    @transaction
    def acquire(
        self,
        session: Session,
        job_id: str,
        token: int,
        name: str,
        units: int = 1,
        default: DefaultLimit | None = None,
    ) -> Acquired:
        """Give the holder of this lease units of a slot until its attempt ends, or tokens of a rate; a missing rate is
        made from `default`. The call grants at once or not at all. Raises LeaseLost, and InvalidInput for a name that
        is neither a slot nor a rate."""
        if name not in self._rates and session.rows("lock_slots", names=[name]):
            if default is not None:
                raise two_meanings(name, "a slot")
            return _acquire_slot(session, job_id, token, name, units)
        found = session.rows("lock_rates", keys=[name])
        if not found and default is not None:
            make_defaults(session, [default])
            found = session.rows("lock_rates", keys=[name])
        if found:
            self._rates.add(name)
            return _acquire_rate(session, name, units)
        raise InvalidInput(
            "name",
            f"no slot and no rate is called {name!r}",
            f"make one: app.slots.set({name!r}, 4) or app.rates.set({name!r}, '60/min')",
        )

    def release_slot(self, job_id: str, attempt: int, name: str) -> int:
        """Give back what this attempt acquired of the slot; the result is the number of units."""
        rows = self._database.single(
            lambda session: session.rows("release_slot", id=job_id, attempt=attempt, name=name)
        )
        return sum(row["units"] for row in rows)

    # -- claim -----------------------------------------------------------------------------------------------------
    def opens_in(self, queues: Sequence[str], tasks: Sequence[str] | None = None) -> float | None:
        """Seconds until the next job may start, of the jobs that the last claims from these queues left because they
        were not due yet or a rate blocked them. None: there were no such jobs. The call reads only memory."""
        if not self._openings:
            return None
        now = self._database.clock.monotonic()
        queue_set, task_set = frozenset(queues), None if tasks is None else frozenset(tasks)
        found = []
        for claimed, at in list(self._openings.items()):
            of_queues, of_tasks = claimed
            if of_queues <= queue_set and (
                task_set is None or (of_tasks is not None and of_tasks <= task_set)
            ):
                found.append(max(0.0, at - now))
                if at <= now:
                    # Reported once: the next claim finds out anew.
                    self._openings.pop(claimed, None)
        return min(found, default=None)

    def _expect_opening(
        self, queues: Sequence[str], tasks: Sequence[str] | None, waits: Sequence[float]
    ) -> None:
        if not waits and not self._openings:
            return
        claimed = (frozenset(queues), None if tasks is None else frozenset(tasks))
        if waits:
            self._openings[claimed] = self._database.clock.monotonic() + min(waits)
        else:
            self._openings.pop(claimed, None)

    def _needs_of(self, session: Session, gates: Iterable[int]) -> Mapping[int, Need]:
        missing = sorted(set(gates) - self._needs.keys())
        if missing:
            self._read_gates(session, missing)
        return self._needs

    def _queues_of(self, session: Session, found: DueGroups) -> Mapping[int, str]:
        gates = {*found.open_gates, *(group.gate for group in (*found.limited, *found.limited_lanes))}
        missing = sorted(gates - self._gate_queues.keys())
        if missing:
            self._read_gates(session, missing)
        return self._gate_queues

    def _read_gates(self, session: Session, gates: Sequence[int]) -> None:
        for row in session.rows("read_gates", ids=gates):
            self._needs[row["id"]] = read_need(row["slots"], row["rate_key"])
            self._gate_queues[row["id"]] = row["queue"]

    def _open_gates(self, session: Session, gates: Sequence[int]) -> tuple[list[int], list[float]]:
        """Which of these limited gates a job could pass now, and when rates will open others. Takes no lock:
        the result only says where to look."""
        needs = self._needs_of(session, gates)
        room = read_room(session, [needs[gate] for gate in gates])
        waits = [room.opens_in(needs[gate]) for gate in gates]
        return [gate for gate in gates if room.fits(needs[gate]) > 0], [w for w in waits if w is not None]

    def _admit(
        self, session: Session, groups: Sequence[DueGroup], most: int, claim_group: ClaimGroup
    ) -> Admitted:
        """Claim what limits admit from at most MOST_LIMITED_GROUPS groups, best first."""
        needs = self._needs_of(session, [group.gate for group in groups])
        room = lock_room(session, [needs[group.gate] for group in groups])
        grants: list[Grant] = []
        for group in groups:
            need = needs[group.gate]
            fits = min(most - len(grants), room.fits(need))
            if fits > 0:
                claimed = claim_group(group, fits)
                room.take(need, len(claimed))
                grants += claimed
        move_rates(session, room)
        waits = [room.opens_in(needs[group.gate]) for group in groups]
        return grants, [wait for wait in waits if wait is not None]


def lock_room(session: Session, needs: Sequence[Need]) -> Room:
    """Lock the slots and rates that these needs name, then count."""
    lock_limits(session, needs)
    return read_room(session, needs)


def lock_limits(session: Session, needs: Sequence[Need]) -> None:
    """Lock in the order of the protocol: slots by name, rates by key, and jobs only after both."""
    names, keys = names_of(needs)
    if names:
        session.run("lock_slots", names=names)
    if keys:
        session.run("lock_rates", keys=keys)


def read_room(session: Session, needs: Sequence[Need]) -> Room:
    names, keys = names_of(needs)
    slots = session.rows("read_slots", names=names) if names else []
    rates = session.rows("read_rates", keys=keys) if keys else []
    return Room((SlotCount(row["name"], row["lim"], row["used"]) for row in slots), map(_rate_use, rates))


def move_rates(session: Session, room: Room) -> None:
    if room.taken:
        taken = [{"key": key, "jobs": jobs} for key, jobs in sorted(room.taken.items())]
        session.run("move_rates", taken=Records(taken))


def why_not(session: Session, need: Need) -> str | None:
    """Why a job with this need cannot start now."""
    names, keys = names_of([need])
    units = dict(need.slots)
    for row in session.rows("read_slots", names=names) if names else []:
        if row["lim"] - row["used"] < units[row["name"]]:
            return (
                f"it needs {units[row['name']]} of slot {row['name']!r}, of which {row['used']} of {row['lim']} "
                "are in use"
            )
    for row in session.rows("read_rates", keys=keys) if keys else []:
        if row["closed"]:
            until = (
                "it is opened"
                if row["closed_until"] is None
                else f"{row['closed_until']:%Y-%m-%d %H:%M:%S} UTC"
            )
            return f"rate {row['key']!r} is closed until {until}"
        rate = _rate_use(row)
        if rate.tokens < 1:
            return f"rate {row['key']!r} lets the next job start in {rate.opens_in() or 0.0:.3f} s"
    return None


# -- helpers ----------------------------------------------------------------------------------------------------------


def _acquire_slot(session: Session, job_id: str, token: int, name: str, units: int) -> Acquired:
    session.run("sweep_holds", name=name)
    (row,) = session.rows("read_slots", names=[name])
    if units > row["lim"] > 0:
        raise InvalidInput(
            "units",
            f"{units} units of {name!r} can never be free, its limit is {row['lim']}",
            f"ask for less, or raise it: app.slots.set({name!r}, {units})",
        )
    if row["lim"] - row["used"] < units:
        return Acquired("slot", granted=False)
    if not session.rows("hold_slot", id=job_id, token=token, name=name, units=units):
        raise LeaseLost(job_id, token)
    return Acquired("slot", granted=True)


def _acquire_rate(session: Session, key: str, units: int) -> Acquired:
    (row,) = session.rows("read_rates", keys=[key])
    rate = _rate_use(row)
    if units > rate.burst:
        raise InvalidInput(
            "units",
            f"{units} at once are more than the burst of {rate.burst} that {key!r} allows",
            "ask for less at a time, or allow a larger burst",
        )
    if rate.tokens < units:
        return Acquired("rate", granted=False, wait=rate.opens_in(units))
    session.run("move_rates", taken=Records([{"key": key, "jobs": units}]))
    return Acquired("rate", granted=True)


def _rate_use(row: Row) -> RateUse:
    now = row["now"]
    until = row["closed_until"]
    return RateUse(
        row["key"],
        row["spacing"],
        row["burst"],
        max(0.0, (row["next_at"] - now).total_seconds()),
        bool(row["closed"]),
        (until - now).total_seconds() if row["closed"] and until is not None else None,
    )


def _rate_row(row: Row) -> RateRow:
    rate = _rate_use(row)
    closed = rate.closed
    return RateRow(
        key=row["key"],
        limit=row["lim"],
        burst=row["burst"],
        next_in=rate.opens_in(),
        closed=closed,
        closed_until=row["closed_until"] if closed else None,
        closed_by=row["closed_by"] if closed else None,
        closed_reason=row["closed_reason"] if closed else None,
    )


def _holders(session: Session, name: str) -> list[SlotHolder]:
    rows = session.rows("list_slot_holders", name=name, limit=MOST_HOLDERS)
    return [SlotHolder(row["job_id"], row["units"], row["task"], row["worker"]) for row in rows]


# -- limits that jobs and attempts name --------------------------------------------------------------------------------


def make_limits(session: Session, jobs: Iterable[NewJob]) -> None:
    """Create the limits that tasks declare, unless they exist. A name that is taken for the other kind of
    limit is skipped: `limit_problems` reports the jobs that use it."""
    make_defaults(session, {limit.name: limit for job in jobs for limit in job.limits}.values())


def make_defaults(session: Session, defaults: Collection[DefaultLimit]) -> None:
    slots = [{"name": d.name, "lim": d.limit} for d in defaults if d.spacing is None]
    rates = [
        {"key": d.name, "lim": d.text, "spacing": d.spacing, "burst": d.burst}
        for d in defaults
        if d.spacing is not None
    ]
    if slots:
        taken = {row["key"] for row in session.rows("find_rates", keys=[slot["name"] for slot in slots])}
        session.run("make_slots", slots=Records([slot for slot in slots if slot["name"] not in taken]))
    if rates:
        taken = {row["name"] for row in session.rows("find_slots", names=[rate["key"] for rate in rates])}
        session.run("make_rates", rates=Records([rate for rate in rates if rate["key"] not in taken]))


def limit_problems(session: Session, jobs: Iterable[NewJob]) -> dict[str, InvalidInput]:
    """The problems of jobs that name a missing or ambiguous limit, or need more units than it allows; by id."""
    limited = [job for job in jobs if job.slots or job.rate is not None]
    if not limited:
        return {}
    names, keys = names_of([Need(job.slots, job.rate) for job in limited])
    needed = [*names, *keys]
    limits = {row["name"]: row["lim"] for row in session.rows("find_slots", names=needed)}
    known = {row["key"] for row in session.rows("find_rates", keys=needed)}
    found = {job.id: _problem(job, limits, known) for job in limited}
    return {job_id: problem for job_id, problem in found.items() if problem is not None}


def _problem(job: NewJob, limits: Mapping[str, int], rates: set[str]) -> InvalidInput | None:
    for name, units in job.slots:
        if name in rates:
            return two_meanings(name, "a rate")
        if name not in limits:
            return InvalidInput(
                "slots", f"no slot is called {name!r}", f"set its limit first: app.slots.set({name!r}, 4)"
            )
        # A limit of 0 closes a slot for a while: jobs may wait for it.
        if units > limits[name] > 0:
            return InvalidInput(
                "slots",
                f"{units} units of {name!r} can never be free, its limit is {limits[name]}",
                f"ask for less, or raise it: app.slots.set({name!r}, {units})",
            )
    if job.rate in limits:
        return two_meanings(job.rate or "", "a slot")
    if job.rate is not None and job.rate not in rates:
        return unknown_rate("rate", job.rate)
    return None


def names_of(needs: Iterable[Need]) -> tuple[list[str], list[str]]:
    names: set[str] = set()
    keys: set[str] = set()
    for need in needs:
        names.update(name for name, _ in need.slots)
        if need.rate is not None:
            keys.add(need.rate)
    return sorted(names), sorted(keys)


def two_meanings(name: str, other: str) -> InvalidInput:
    return InvalidInput("name", f"{name!r} is {other} already", "give one of them another name")


def unknown_rate(field: str, key: str) -> InvalidInput:
    return InvalidInput(
        field, f"no rate has the key {key!r}", f"set its limit first: app.rates.set({key!r}, '60/min')"
    )


# -- gates -------------------------------------------------------------------------------------------------------------


class GateVerbs(LimitVerbs):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._known_gates: set[int] = set()

    def _make_gates(self, jobs: Sequence[NewJob], strict: bool = True) -> None:
        """Store missing gates in a transaction of their own, before the jobs: producers in long transactions
        must not wait for each other to store the same gate."""
        missing = self._unknown_gates(jobs)
        if not missing:
            return
        with unrecorded():
            if any(job.slots or job.rate is not None for job in missing.values()):
                made = self._database.transact(lambda session: make_limited_gates(session, missing, strict))
                self._known_gates.update(made)
            else:
                self._database.single(lambda session: make_gates(session, missing), idempotent=True)
                self._known_gates.update(missing)

    def _unknown_gates(self, jobs: Sequence[NewJob]) -> dict[int, NewJob]:
        """Gates that are not known to be stored, each with one of its jobs."""
        missing = {}
        for job in jobs:
            number = gate_of(job)
            if number not in self._known_gates:
                missing[number] = job
        return missing


def make_limited_gates(session: Session, missing: Mapping[int, NewJob], strict: bool = True) -> set[int]:
    """Store gates and the limits that their jobs declare; returns the gates stored. With `strict` a missing
    limit raises. The limits of a stored gate exist: their rows are never deleted."""
    make_limits(session, missing.values())
    problems = limit_problems(session, missing.values())
    for problem in problems.values() if strict else ():
        raise problem
    good = {number: job for number, job in missing.items() if job.id not in problems}
    make_gates(session, good)
    return set(good)


def make_gates(session: Session, missing: Mapping[int, NewJob]) -> None:
    records = [
        {
            "id": number,
            "queue": job.queue,
            "task": job.task,
            "slots": slots_text(job.slots),
            "rate_key": job.rate,
        }
        for number, job in sorted(missing.items())
    ]
    session.run("insert_gates", gates=Records(records))


@lru_cache(maxsize=4096)
def gate_id(queue: str, task: str, slots: str | None = None, rate_key: str | None = None) -> int:
    """A positive 63-bit hash of a job's queue, task, slots and rate. 0 stands for "any gate"."""
    text = json.dumps([queue, task, slots, rate_key])
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
    return number or 1


def gate_of(job: NewJob) -> int:
    return gate_id(job.queue, job.task, slots_text(job.slots) if job.slots else None, job.rate)
