"""Dependencies: jobs that wait for parents, judged in the transaction that ends a parent.

`write_moves` writes the moves and calls this module for the children, then for their children, until no job
is left to judge. So every ending of a job passes through here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from leasehold.domain.dependencies import EndedParent, judge
from leasehold.domain.errors import InvalidInput, JobNotFound
from leasehold.domain.job import AWAITED, Job, NewJob, OnParentFailure
from leasehold.domain.outcome import Move
from leasehold.domain.states import ENDED
from leasehold.stores.database.database import Records, Session
from leasehold.stores.database.places import Place, place_of
from leasehold.stores.verbs.locking import lock


def lock_descendants(session: Session, moves: Sequence[Move]) -> None:
    """Lock all jobs that these endings may concern, children's children too, at once and in the order of seq:
    locking wave by wave, two transactions could deadlock."""
    if ended := _ended_parents(moves):
        session.run("lock_descendants", ids=ended)


def lock_free_descendants(session: Session, moves: Sequence[Move]) -> bool:
    """As `lock_descendants`, but without waiting. False: one of these jobs is locked."""
    ended = _ended_parents(moves)
    return not ended or not session.tuples("lock_free_descendants", ids=ended)


def without_locked_children(session: Session, moves: Sequence[Move]) -> list[Move]:
    """The moves that can be written without waiting: the jobs to judge with them are not locked."""
    if lock_free_descendants(session, moves):
        return list(moves)
    return [move for move in moves if lock_free_descendants(session, [move])]


def moves_of_children(session: Session, moves: Sequence[Move], now: datetime) -> list[Move]:
    """Judge the jobs that wait for the endings among these moves; returns their moves."""
    ended = [
        EndedParent(move.job.id, move.job.task, move.job.state, move.job.reason)
        for move in moves
        if move.job.awaited and _ends(move)
    ]
    return _judge_children(session, ended, now) if ended else []


def wait_for_parents(
    session: Session, made: Sequence[NewJob], standing_for: Mapping[str, str]
) -> tuple[list[Move], datetime | None]:
    """Tie new jobs to their parents; returns the moves of jobs whose parents have ended already. `standing_for` maps an
    id of this batch to the job that stands for it: itself, or the holder of its unique key."""
    parents_of = {job.id: _parents(job, standing_for) for job in made if job.after}
    if not parents_of:
        return [], None
    wanted = {parent for parents in parents_of.values() for parent in parents}
    there, now = lock(session, wanted)
    for parent in sorted(wanted - there.keys()):
        raise JobNotFound(parent)
    _mark_awaited(session, there.values())
    how = {job.id: job for job in made}
    edges = [
        {
            "child_id": child,
            "parent_id": parent,
            "position": position,
            "on_failure": how[child].on_parent_failure,
        }
        for child, parents in parents_of.items()
        for position, parent in enumerate(parents)
    ]
    session.run("insert_dependencies", dependencies=Records(edges))
    children = [
        {"id": child, "unmet": len(parents), "held": how[child].hold}
        for child, parents in sorted(parents_of.items())
    ]
    session.run("hold_for_parents", children=Records(children))
    assert now is not None
    parents = [EndedParent(job.id, job.task, job.state, job.reason) for job in there.values()]
    ended = [parent for parent in parents if parent.state in ENDED]
    return _judge_children(session, ended, now) if ended else [], now


_MARKS = {
    Place.READY: "await_ready",
    Place.LANE: "await_lane_places",
    Place.LEASE: "await_leases",
    Place.PARKED: "await_parked",
    Place.OUTCOME: "await_outcomes",
}


def _mark_awaited(session: Session, parents: Iterable[Job]) -> None:
    """Mark each parent's moving row, which every ending deletes, under its lock: a transaction that ends the
    parent from now on judges its children too."""
    by_place: dict[Place, list[Job]] = {}
    for job in parents:
        if job.special < AWAITED:
            by_place.setdefault(place_of(job), []).append(job)
    for place, jobs in by_place.items():
        lanes = {"lanes": [job.lane for job in jobs]} if place is Place.LANE else {}
        session.run(_MARKS[place], seqs=[job.seq for job in jobs], **lanes)


def check_order(jobs: Sequence[NewJob]) -> None:
    """Raise InvalidInput unless each parent in the batch comes before its child: no cycle may be stored."""
    if not any(job.after for job in jobs):
        return
    place = {job.id: number for number, job in enumerate(jobs)}
    for number, job in enumerate(jobs):
        for parent in job.after:
            if place.get(parent, -1) >= number:
                raise InvalidInput(
                    "after", f"job {job.id} waits for {parent}, which comes later", "enqueue parents first"
                )


def _judge_children(session: Session, ended: Sequence[EndedParent], now: datetime) -> list[Move]:
    parents = {parent.id: parent for parent in ended}
    waiting: dict[str, list[tuple[EndedParent, OnParentFailure]]] = {}
    for row in session.rows("find_dependents", ids=sorted(parents)):
        waiting.setdefault(row["child_id"], []).append((parents[row["parent_id"]], row["on_failure"]))
    if not waiting:
        return []
    children = list(lock(session, waiting)[0].values())
    met = [
        {"child_id": child.id, "parent_id": parent.id}
        for child in children
        for parent, on_failure in waiting[child.id]
        if parent.meets(on_failure)
    ]
    if met:
        session.run("meet_dependencies", met=Records(met))
    judged = [judge(child, waiting[child.id], now) for child in children]
    return [move for move in judged if move is not None]


def _ended_parents(moves: Sequence[Move]) -> list[str]:
    return sorted(move.job.id for move in moves if move.job.awaited and _ends(move))


def _ends(move: Move) -> bool:
    return move.job.state in ENDED and move.before.state is not move.job.state


def _parents(job: NewJob, standing_for: Mapping[str, str]) -> list[str]:
    """The job's parents, each once, in the order given."""
    return list(dict.fromkeys(standing_for.get(parent, parent) for parent in job.after))
