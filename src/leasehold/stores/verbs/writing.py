"""What every verb of the store stands on: the database, and writing decided moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from leasehold.domain.job import Job
from leasehold.domain.lanes import Ticket, tickets_after
from leasehold.domain.moves import Move
from leasehold.domain.states import State
from leasehold.stores.base.database import Database, Records, Session
from leasehold.stores.base.rows import job_from_row, record_from_job
from leasehold.stores.verbs.dependencies import moves_of_children

T = TypeVar("T")
BATCH = 500
"""Rows a short transaction may touch: on SQLite nobody else writes meanwhile."""


class Verbs:
    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def label(self) -> str:
        return self._database.label

    def close(self) -> None:
        self._database.close()


def lock(session: Session, ids: Iterable[str]) -> tuple[dict[str, Job], datetime | None]:
    """The rows as they stand, locked in id order, and the store's now (None when there is no row)."""
    rows = session.rows("lock_jobs", ids=sorted(set(ids)))
    jobs = {row["id"]: job_from_row(row) for row in rows}
    return jobs, rows[0]["now"] if rows else None


def write(session: Session, moves: Sequence[Move], now: datetime) -> None:
    """Write what was decided, and everything that goes with it: history, tickets, questions, group versions."""
    groups = write_moves(session, moves, now)
    if groups:
        session.run("bump_groups", names=sorted(groups))


def write_moves(session: Session, moves: Sequence[Move], now: datetime) -> set[str]:
    """As `write`, but the groups that shall be told are left to the caller: a transaction tells each of them once,
    and locks them last. Jobs that wait for an ended one are judged here, wave by wave."""
    groups: set[str] = set()
    while moves:
        groups |= _write_wave(session, moves, now)
        moves = moves_of_children(session, moves, now)
    return groups


def _write_wave(session: Session, moves: Sequence[Move], now: datetime) -> set[str]:
    changed = [move for move in moves if move.job != move.before]
    if changed:
        session.run("update_jobs", jobs=Records([record_from_job(move.job) for move in changed]))
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
    tickets = [ticket for move in changed for ticket in tickets_after(move.before, move.job, now)]
    write_tickets(session, tickets)
    closed = sorted(move.job.id for move in moves if move.closes_questions)
    if closed:
        session.run("close_questions", ids=closed)
    withdrawn = sorted(m.job.id for m in moves if m.before.stop_requested and not m.job.stop_requested)
    if withdrawn:
        # What a stop said about this run is not about the next one.
        session.run("clear_stop_marks", ids=withdrawn)
    for move in moves:
        if move.asks is not None:
            session.run(
                "open_question",
                id=move.job.id,
                key=move.asks.key,
                text=move.asks.text,
                schema=move.asks.schema,
                secret=move.asks.secret,
                seconds=move.asks.timeout,
            )
    # Watchers want to hear of endings, questions and stops; claims and adoptions would only wake them for nothing.
    return {m.job.group_name for m in moves if m.job.group_name is not None and _concerns_watchers(m)}


def _concerns_watchers(move: Move) -> bool:
    if move.job == move.before:
        return move.event == "answered"
    return move.job.state is not State.RUNNING or move.job.stop_requested != move.before.stop_requested


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
