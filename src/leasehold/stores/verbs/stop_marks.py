"""Follow-ups of runs that a stop has reached: those in its scope are created cancelled, with its reason.

They are created, and not left out, so that the record shows what would have come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from leasehold.domain import operate
from leasehold.domain.job import NewJob
from leasehold.domain.stop import StopMark, StopScope
from leasehold.domain.transitions import Move
from leasehold.stores.database.database import Session
from leasehold.stores.verbs.locking import lock

Marks = Mapping[str, Sequence[StopMark]]
"""By the id of the run's job."""


def find_marks(session: Session, parents: Iterable[str]) -> Marks:
    ids = sorted(set(parents))
    found: dict[str, list[StopMark]] = {}
    for row in session.rows("find_stop_marks", ids=ids) if ids else ():
        mark = StopMark(StopScope.load(row["scope"]), row["reason"], row["actor"])
        found.setdefault(row["job_id"], []).append(mark)
    return found


def find_marks_of_running(session: Session, parents: Iterable[str]) -> Marks:
    """For follow-ups that are stored while their parents run. Under a lock on the parents: a stop that comes later
    finds the follow-ups, one that came before is seen here."""
    ids = sorted(set(parents))
    seqs = [row[0] for row in session.tuples("lock_runs", ids=ids)] if ids else []
    return find_marks(session, [row[0] for row in session.tuples("find_flagged", seqs=seqs)] if seqs else [])


def stopped_follow_ups(jobs: Iterable[NewJob], marks: Marks) -> dict[str, StopMark]:
    """Which of these new jobs a stop of their parent covers."""
    found = {}
    for job in jobs:
        mark = next((m for m in marks.get(job.follow_up_of or "", ()) if m.scope.covers(job)), None)
        if mark is not None:
            found[job.id] = mark
    return found


def end_stopped(session: Session, stopped: Mapping[str, StopMark]) -> tuple[list[Move], datetime | None]:
    """The moves that cancel them, and the store's now."""
    jobs, now = lock(session, stopped) if stopped else ({}, None)
    if now is None:
        return [], None
    moves = [
        operate.cancel(job, now=now, actor=stopped[job.id].actor, reason=stopped[job.id].reason)
        for job in jobs.values()
    ]
    return moves, now
