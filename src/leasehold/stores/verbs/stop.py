"""Stop: finds the jobs in a scope, stops them in short transactions, and marks the attempts that it reached.

Finding is a read and locks nothing; each batch is decided under its rows' locks, so a job that was claimed
meanwhile gets a stop request instead of being cancelled, and a job that has ended is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from leasehold.domain import operate
from leasehold.domain.job import NewJob
from leasehold.domain.outcome import Move
from leasehold.domain.states import State
from leasehold.domain.stop import STOPPABLE, StopMark, StopMode, StoppedJob, StopScope, decide
from leasehold.stores.database.database import Session
from leasehold.stores.results import Stoppable
from leasehold.stores.verbs.audit import changed
from leasehold.stores.verbs.groups import keep_stopping, note_stops
from leasehold.stores.verbs.inspect import IN_LANE, LANE_HOLDERS, MEMBERS, PENDING, TAGGED, Walk, Way
from leasehold.stores.verbs.locking import lock
from leasehold.stores.verbs.writing import Verbs, bump_groups, transaction, write_moves

PAGE = 10_000
"""Jobs that one read finds; they are stopped in smaller batches."""


class StopVerbs(Verbs):
    """Stop many jobs at once."""

    def find_stoppable(self, scope: StopScope, before: str | None = None, running: bool = False) -> Stoppable:
        """Jobs in the scope that a stop would change, newest first; with `running` the running jobs, by their leases.
        The call only reads: `stop_jobs` decides."""
        return self._database.read(lambda session: _find(session, scope, before, running))

    @transaction
    def stop_jobs(
        self,
        session: Session,
        ids: Sequence[str],
        scope: StopScope,
        mode: StopMode,
        actor: str | None = None,
        reason: str | None = None,
    ) -> list[StoppedJob]:
        """Stop these jobs in one short transaction: cancel them at once, or request a stop of the running ones, whose
        follow-ups in the scope will then be stored as cancelled. The result leaves out jobs that have ended. A group
        that the scope does not name, and whose jobs were stopped, records this as its last stop."""
        jobs, now = lock(session, ids)
        if now is None:
            return []
        decided = (decide(job, mode, now=now, actor=actor, reason=reason) for job in jobs.values())
        moves: list[Move] = [move for move in decided if move is not None]
        running = sorted(move.job.id for move in moves if move.before.state is State.RUNNING)
        if running:
            session.run("insert_stop_marks", ids=running, scope=scope.dump(), reason=reason, actor=actor)
        groups = write_moves(session, moves, now)
        bump_groups(session, groups)
        if scope.group in groups:
            keep_stopping(session, scope.group or "")
        if scope.group is None:
            met = {move.job.group for move in moves} & groups.keys()
            note_stops(session, [name for name in met if name is not None], scope, mode, actor, reason)
        return changed([StoppedJob(move.job.id, move.job.task, move.before.state) for move in moves])

    def still_running(self, ids: Sequence[str]) -> list[str]:
        """Which of these jobs still run."""
        return [row[0] for row in self._tuples("still_running", ids=sorted(ids))]


def _find(session: Session, scope: StopScope, before: str | None, running: bool) -> Stoppable:
    given: dict[str, Any] = {
        "group": scope.group,
        "queue": scope.queue,
        "tasks": None if scope.tasks is None else list(scope.tasks),
        "lane": scope.lane,
        "tags": list(scope.tags) or None,
    }
    criteria = {name: value for name, value in given.items() if value is not None}
    walk = Walk(session, criteria, PAGE)
    ways = _ways(walk, running)
    if ways[0] in (MEMBERS, TAGGED):
        walk = replace(walk, criteria={**criteria, "live": True})
    rows, more = walk.go("find_stoppable", ways, "find_stoppable.page", PAGE, before)
    jobs = [StoppedJob(row["id"], row["task"], State(row["state"])) for row in rows]
    return Stoppable(jobs, jobs[-1].id if len(jobs) == PAGE else more)


def _ways(walk: Walk, running: bool) -> list[Way]:
    """The ways that read the least."""
    if running:
        return walk.ways_to([State.RUNNING])
    if "group" in walk.criteria:
        return [MEMBERS]
    if "lane" in walk.criteria:
        return [IN_LANE, LANE_HOLDERS, PENDING]
    if "tags" in walk.criteria and walk.few_tagged():
        return [TAGGED]
    return walk.ways_to(STOPPABLE)


# -- marks: follow-ups of attempts that a stop has reached -------------------------------------------------------------
# Such follow-ups are stored as cancelled and not left out, so that lists show what would have run.

Marks = Mapping[str, Sequence[StopMark]]
"""Stop marks, by the id of the job whose attempt was stopped."""


def find_marks(session: Session, parents: Iterable[str]) -> Marks:
    ids = sorted(set(parents))
    found: dict[str, list[StopMark]] = {}
    for row in session.rows("find_stop_marks", ids=ids) if ids else ():
        mark = StopMark(StopScope.load(row["scope"]), row["reason"], row["actor"])
        found.setdefault(row["job_id"], []).append(mark)
    return found


def find_marks_of_running(session: Session, parents: Iterable[str]) -> Marks:
    """The marks for follow-ups that are stored while their parents run. The parents are locked: a later stop
    finds the follow-ups, an earlier stop is seen here."""
    ids = sorted(set(parents))
    seqs = [row[0] for row in session.tuples("lock_parents", ids=ids)] if ids else []
    return find_marks(
        session, [row[0] for row in session.tuples("find_stop_requested", seqs=seqs)] if seqs else []
    )


def find_stopping(session: Session, jobs: Iterable[NewJob]) -> Mapping[str, StopMark]:
    """The stops at work on the groups of these new jobs, by the group. Without them a stop would never catch up with
    jobs that enqueue more jobs as fast as it cancels them."""
    names = sorted({job.group for job in jobs if job.group is not None})
    rows = session.rows("find_stopping", names=names) if names else ()
    return {row["name"]: StopMark(StopScope.load(row["scope"]), row["reason"], row["actor"]) for row in rows}


def stopped_follow_ups(
    jobs: Iterable[NewJob], marks: Marks, stopping: Mapping[str, StopMark] | None = None
) -> dict[str, StopMark]:
    """Which of these new jobs a stop covers: one that has reached their parent, or one at work on their group."""
    found = {}
    for job in jobs:
        of_group = (stopping or {}).get(job.group or "")
        all_marks = (*marks.get(job.follow_up_of or "", ()), *([of_group] if of_group is not None else ()))
        mark = next((m for m in all_marks if m.scope.covers(job)), None)
        if mark is not None:
            found[job.id] = mark
    return found


def end_stopped(session: Session, stopped: Mapping[str, StopMark]) -> tuple[list[Move], datetime | None]:
    """The moves that cancel these jobs, and the store's now."""
    jobs, now = lock(session, stopped) if stopped else ({}, None)
    if now is None:
        return [], None
    moves = [
        operate.cancel(job, now=now, actor=stopped[job.id].actor, reason=stopped[job.id].reason)
        for job in jobs.values()
    ]
    return moves, now
