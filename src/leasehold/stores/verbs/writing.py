"""Writes decided moves, the only way to change a job except the hot statements, and notifies hooks.

A row inserted into a place was deleted from another place in the same transaction, and counted: a job is in
exactly one place.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

from leasehold.domain.checks.payload import check_text
from leasehold.domain.errors import DuplicateJob, StoreError
from leasehold.domain.hooks import Listener, PendingNotification, group_is_done, happened_in
from leasehold.domain.job import TIED, Job
from leasehold.domain.lanes import Ticket, tickets_after
from leasehold.domain.outcome import Move, clean_error
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import State
from leasehold.stores.database import places
from leasehold.stores.database.database import Columns, Database, Records, Row, Session
from leasehold.stores.database.places import Place, place_of, record_of
from leasehold.stores.verbs.dependencies import lock_descendants, moves_of_children

logger = logging.getLogger("leasehold.worker")

P = ParamSpec("P")
S = TypeVar("S", bound="Verbs")
T = TypeVar("T")
R = TypeVar("R")
BATCH = 500
"""Most rows that a short transaction touches: on SQLite no other transaction can write meanwhile."""

Groups = dict[str, int]
"""Groups that have changed, by name, each with the change of its number of live jobs."""


class Verbs:
    """Base class of all verbs: holds the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._worker_names: set[str] = set()
        """Names known to have a number, which never changes."""
        self._refusals: set[tuple[str, str]] = set()
        """The jobs and verbs whose refusal was logged."""

    @property
    def label(self) -> str:
        """The name of the database for messages, without a password."""
        return self._database.label

    def identity(self, job_id: str) -> str:
        """The identity of the job's database, a part of the names of its executions. A copy has another."""
        return self._database.identity()

    def close(self) -> None:
        """Close the store's connections."""
        self._database.close()

    def _rows(self, statement: str, /, **parameters: Any) -> list[Row]:
        """Run one statement for reading."""
        return self._database.read(lambda session: session.rows(statement, **parameters))

    def _tuples(self, statement: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement for reading, each row as a tuple."""
        return self._database.read(lambda session: session.tuples(statement, **parameters))

    def _run(self, statement: str, /, **parameters: Any) -> None:
        """Run one statement that writes; it is a transaction by itself."""
        self._database.single(lambda session: session.run(statement, **parameters))

    def _make_worker_name(self, worker: str) -> None:
        """Give the worker a number, in a transaction before its first claim: a lease stores only that number."""
        if worker not in self._worker_names:
            self._database.single(
                lambda session: session.run("insert_worker_name", worker=worker), idempotent=True
            )
            self._worker_names.add(worker)

    def _past_refusals(
        self,
        items: Sequence[T],
        work: Callable[[Sequence[T]], list[R]],
        on_refused: Callable[[T, Exception], object],
    ) -> list[R]:
        """Do the work for all items at once. If the database refuses a row, halve until its item is alone: that one is
        left out, and the others go through."""
        try:
            return work(items)
        except Exception as error:
            if not self._database.refuses_row(error):
                raise
            if len(items) < 2:
                for item in items:
                    on_refused(item, error)
                return []
        middle = len(items) // 2
        done = self._past_refusals(items[:middle], work, on_refused)
        return done + self._past_refusals(items[middle:], work, on_refused)

    def _note_refusal(self, job_id: str, verb: str, error: Exception) -> None:
        """Log, once, that the database refuses what must happen to a job. It is tried again at the next opportunity."""
        if (job_id, verb) not in self._refusals:
            self._refusals.add((job_id, verb))
            logger.error("the database refuses to %s job %s: %s", verb, job_id, str(error).strip())

    def _still_held(self, leases: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
        """The leases that are only locked, of those that a statement skipped; the other leases are lost."""
        tokens = dict(sorted(leases))  # of two leases of one job, only the later can be held
        if not tokens:
            return set()
        columns = Columns(ids=list(tokens), tokens=list(tokens.values()))
        rows = self._database.read(lambda session: session.tuples("find_leases", leases=columns))
        return {(job_id, tokens[job_id]) for job_id, _ in rows}


def transaction(verb: Callable[Concatenate[S, Session, P], T]) -> Callable[Concatenate[S, P], T]:
    """Make a verb one write transaction, which supplies the verb's `session`."""

    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.transact(lambda session: verb(self, session, *args, **kwargs))

    return _without_session(run, verb)


def reading(verb: Callable[Concatenate[S, Session, P], T]) -> Callable[Concatenate[S, P], T]:
    """Make a verb one read, which supplies the verb's `session`."""

    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.read(lambda session: verb(self, session, *args, **kwargs))

    return _without_session(run, verb)


def _without_session(run: Callable[P, T], verb: Callable[..., T]) -> Callable[P, T]:
    functools.update_wrapper(run, verb)
    signature = inspect.signature(verb)
    parameters = [one for name, one in signature.parameters.items() if name != "session"]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined] # read by inspect
    return run


def write(session: Session, moves: Sequence[Move], now: datetime) -> None:
    """Write decided moves with all that belongs to them: history, tickets, questions, group versions."""
    bump_groups(session, write_moves(session, moves, now))


def write_moves(session: Session, moves: Sequence[Move], now: datetime) -> Groups:
    """As `write`, but returns the changed groups to the caller: a transaction counts each group once, and
    locks groups last. Jobs that wait for an ended job are judged here, wave by wave."""
    groups: Groups = {}
    written: list[Move] = []
    lock_descendants(session, moves)
    while moves:
        moves = [_with_ties(move) for move in moves]
        _write_wave(session, moves, now)
        for move in moves:
            _count(groups, move)
        written += moves
        moves = moves_of_children(session, moves, now)
    write_outbox(session, happened_in(written))
    return groups


def try_places(session: Session, moves: Sequence[Move], now: datetime) -> None:
    """Write only the places of these moves, and check what the database would check at the commit: an error shows what
    it refuses. For a transaction that is rolled back."""
    rows = _Rows()
    for move in moves:
        _move(rows, move, now)
    _write_places(session, rows)
    session.run("check_constraints")


def postpone(session: Session, job_id: str, seconds: float, why: str, actor: str) -> State | None:
    """Change the due time of a queued job where its row stands, so that no trigger runs. The job is not read, because
    that may be what fails. None: it is not queued any more."""
    places = [
        row
        for statement in ("postpone_ready", "postpone_lane_places")
        for row in session.rows(statement, id=job_id, seconds=seconds)
    ]
    if not places:
        return None
    row = places[0]
    if row["lane"] is not None:
        write_tickets(session, [Ticket(row["lane"], row["gate"], row["priority"], row["available_at"])])
    known = session.rows("list_history", id=job_id)
    if not any(entry["event"] == "refused" and entry["detail"] == why for entry in known):
        queued = State.QUEUED.value
        entry = {"job_id": job_id, "event": "refused", "from_state": queued, "to_state": queued}
        entry |= {"token": row["token"], "attempt": row["attempt"], "actor": actor, "detail": why}
        session.run("insert_history", entries=Records([entry]))
    return State.QUEUED


def bump_groups(session: Session, groups: Mapping[str, int]) -> None:
    if groups:
        write_outbox_of_groups(session, session.tuples("bump_groups", groups=group_records(groups)), groups)


def group_records(groups: Mapping[str, int]) -> Records:
    return Records([{"name": name, "live": live} for name, live in sorted(groups.items())])


def _with_ties(move: Move) -> Move:
    """Mark a job with a question as tied: its end has to close the question."""
    if move.asks is None or move.job.special >= TIED:
        return move
    return replace(move, job=replace(move.job, special=TIED))


def _count(groups: Groups, move: Move) -> None:
    name = move.job.group
    if name is not None and _concerns_watchers(move):
        change = places.counts_as_live(move.job) - places.counts_as_live(move.before)
        groups[name] = groups.get(name, 0) + change


def _concerns_watchers(move: Move) -> bool:
    """Whether watchers need the move: an ending, question or stop. Claims and adoptions would wake them for nothing."""
    if move.job == move.before:
        return move.event == "answered"
    return move.job.state is not State.RUNNING or move.job.stop_requested != move.before.stop_requested


@dataclass(slots=True)
class _Rows:
    """The rows that a wave of moves deletes and inserts, by place or statement."""

    gone: dict[Place, list[dict[str, Any]]] = field(default_factory=dict)
    made: dict[Place, list[dict[str, Any]]] = field(default_factory=dict)
    flagged: list[dict[str, Any]] = field(default_factory=list)
    side: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, statement: str, record: Mapping[str, Any] | None) -> None:
        if record is not None:
            self.side.setdefault(statement, []).append(dict(record))


def _write_wave(session: Session, moves: Sequence[Move], now: datetime) -> None:
    changed = [move for move in moves if move.job != move.before]
    rows = _Rows()
    for move in changed:
        _move(rows, move, now)
        _sides(rows, move, now)
    for statement in _BEFORE:
        if statement in rows.side:
            session.run(statement, rows=Records(rows.side[statement]))
    _write_places(session, rows)
    for statement in _SIDES:
        if statement in rows.side:
            session.run(statement, rows=Records(rows.side[statement]))
    _keep_keys(session, rows.side.get("insert_keys", []))
    _write_notes(session, moves)
    write_tickets(session, [ticket for m in changed for ticket in tickets_after(m.before, m.job, now)])


def _move(rows: _Rows, move: Move, now: datetime) -> None:
    was, will = place_of(move.before), place_of(move.job)
    record = places.row_of(move.job, now)
    if was is will is Place.LEASE:
        # Updated in place: a renewal that waits for the row must still find it.
        rows.flagged.append(record)
        return
    gone: dict[str, Any] = {"seq": move.before.seq, "token": move.before.lease_token}
    if was is Place.LANE:
        gone |= {"lane": move.before.lane, "lane_at": move.before.lane_at}
    rows.gone.setdefault(was, []).append(gone)
    rows.made.setdefault(will, []).append(record)


def _sides(rows: _Rows, move: Move, now: datetime) -> None:
    before, after = move.before, move.job
    rows.add("write_failure_states", places.failure_state_of(before, after))
    rows.add("insert_attempts", places.attempt_of(before, after, move.event, now))
    if after.args != before.args:
        rows.add("update_arguments", {"seq": after.seq, "args": after.args})
    for holds, drop, keep, record in (
        (
            places.holds_slots,
            "drop_lease_slots",
            "insert_lease_slots",
            {"job": after.seq, "gate": after.gate},
        ),
        (places.holds_lane, "drop_lane_holds", "insert_lane_holds", {"job": after.seq, "lane": after.lane}),
        (places.stops_lane, "drop_lane_stops", "insert_lane_stops", {"job": after.seq, "lane": after.lane}),
        (places.holds_key, "drop_keys", "insert_keys", _key(after)),
    ):
        if holds(before) != holds(after):
            rows.add(keep if holds(after) else drop, record)
    was, will = places.time_limits_of(before), places.time_limits_of(after)
    for what, due_at in sorted(was - will):
        rows.add("drop_time_limits", {"job": after.seq, "what": what, "due_at": due_at})
    for what, due_at in sorted(will - was):
        rows.add("insert_time_limits", {"job": after.seq, "what": what, "due_at": due_at})


def _key(job: Job) -> dict[str, Any]:
    return {
        "task": job.task,
        "key": job.unique_key,
        "job_id": job.id,
        "for_ever": job.unique_for == "ever",
    }


_BEFORE = ("update_arguments", "write_failure_states")
"""Run before the places, under the anchors' locks: mirror triggers read these rows when a job enters a place."""
_SIDES = (
    "insert_attempts",
    "drop_time_limits",
    "insert_time_limits",
    "drop_lease_slots",
    "insert_lease_slots",
    "drop_lane_holds",
    "insert_lane_holds",
    "drop_lane_stops",
    "insert_lane_stops",
    "drop_keys",
)
"""Run after the places, in the order of locks: lanes, then keys. Groups come last of all."""


def find_key_owners(session: Session, keys: Sequence[tuple[str, str]]) -> list[Row]:
    """The jobs that hold these unique keys, each given with its task."""
    pairs = Columns(tasks=[task for task, _ in keys], keys=[key for _, key in keys])
    return session.rows("find_key_holders", pairs=pairs)


def _keep_keys(session: Session, keys: Sequence[dict[str, Any]]) -> None:
    """Insert the keys of jobs that become live again. Raises DuplicateJob if another job has taken one meanwhile."""
    if not keys:
        return
    got = {row[0] for row in session.tuples("insert_keys", keys=Records(keys))}
    for key in keys:
        if key["job_id"] not in got:
            rows = find_key_owners(session, [(key["task"], key["key"])])
            holder = rows[0]["id"] if rows else "of another transaction"
            raise DuplicateJob(holder, key["task"], key["key"])


_DELETES = {
    Place.READY: "delete_ready",
    Place.LANE: "delete_lane_places",
    Place.LEASE: "delete_leases",
    Place.PARKED: "delete_parked",
    Place.OUTCOME: "delete_outcomes",
}
_INSERTS = {
    Place.READY: "insert_ready",
    Place.LANE: "insert_lane_places",
    Place.LEASE: "insert_leases",
    Place.PARKED: "insert_parked",
    Place.OUTCOME: "insert_outcomes",
}


def _write_places(session: Session, rows: _Rows) -> None:
    for place, records in rows.gone.items():
        gone = session.tuples(_DELETES[place], rows=Records(records))
        if len(gone) != len(records):
            raise StoreError(f"{len(records) - len(gone)} job(s) left {place.value} under their locks")
    if rows.flagged:
        session.run("update_leases", rows=Records(rows.flagged))
    for place, records in rows.made.items():
        session.run(_INSERTS[place], rows=Records(records))


def _write_notes(session: Session, moves: Sequence[Move]) -> None:
    entries = [
        {
            "job_id": move.job.id,
            "event": move.event,
            "from_state": move.before.state.value,
            "to_state": move.job.state.value,
            "token": move.before.lease_token,
            "attempt": move.job.attempt,
            "actor": move.actor,
            "detail": move.detail,
        }
        for move in moves
        if move.event is not None
    ]
    if entries:
        session.run("insert_history", entries=Records(entries))
    closed = sorted(move.job.id for move in moves if move.closes_questions)
    if closed:
        session.run("close_questions", ids=closed)
    withdrawn = sorted(m.job.id for m in moves if m.before.stop_requested and not m.job.stop_requested)
    if withdrawn:
        # A stop mark is about this attempt, not about the next one.
        session.run("clear_stop_marks", ids=withdrawn)
    for move in moves:
        if move.asks is not None:
            _open_questions(session, move.job.id, move.asks.questions)


def _open_questions(session: Session, job_id: str, questions: Sequence[QuestionAsked]) -> None:
    """Open these questions and withdraw all others: a question that only an earlier attempt asked would keep
    the job waiting."""
    session.run("withdraw_questions", id=job_id, keys=sorted({question.key for question in questions}))
    for question in questions:
        session.run(
            "open_question",
            id=job_id,
            key=question.key,
            text=question.text,
            schema=question.schema,
            secret=question.secret,
            seconds=question.timeout,
        )


def write_tickets(session: Session, tickets: Sequence[Ticket]) -> None:
    if tickets:
        session.run(
            "insert_tickets",
            tickets=Records(
                [
                    {"lane": t.lane, "gate": t.gate, "priority": t.priority, "available_at": t.available_at}
                    for t in tickets
                ]
            ),
        )


def batches(items: Sequence[T], size: int = BATCH) -> Iterable[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


# -- the outbox --------------------------------------------------------------------------------------------------------

SILENT_FOR = 86_400.0
"""Seconds after which a listener that no process has touched gets no more events. settle.sql repeats this time."""


def write_outbox(session: Session, happened: Sequence[PendingNotification]) -> None:
    """Store these notifications for the listeners that want them."""
    if not happened:
        return
    listeners = read_listeners(session, {one.event for one in happened})
    rows = [_row(listener, one) for one in happened for listener in listeners if listener.wants(one)]
    if rows:
        session.run("insert_outbox", rows=Records(rows))


def write_outbox_of_groups(
    session: Session, rows: Sequence[tuple[Any, ...]], ended: Mapping[str, int] | None = None
) -> None:
    """Notify about groups without a live job. `ended` has the change of each group's live jobs: a group that
    has lost none was done before."""
    done = [
        (name, version) for name, live, version in rows if live == 0 and (ended is None or ended[name] < 0)
    ]
    write_outbox(session, [group_is_done(name, version) for name, version in done])


def read_listeners(session: Session, events: set[str]) -> list[Listener]:
    rows = session.rows("read_listeners", events=sorted(events), age=SILENT_FOR)
    return [record_of(Listener, row) for row in rows]


def _row(listener: Listener, one: PendingNotification) -> dict[str, Any]:
    return {
        "id": secrets.token_hex(16),
        "listener": listener.name,
        "event": one.event,
        "job_id": one.job_id,
        "task": one.task,
        "queue": one.queue,
        "attempt": one.attempt,
        "group_name": one.group,
        "detail": clean_error(one.detail),
        "data": check_text(json.dumps(one.data), "data"),
    }
