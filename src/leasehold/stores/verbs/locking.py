"""Locks jobs by their anchors and reads their current state.

`lock` locks a job's anchor (its row of `job`), then looks for its moving row place by place, in the order of a job's
life, each probe with a snapshot of its own. Hot statements only move the row forward, and every other move holds the
anchor's lock: a row that left a place while a probe waited is in a later place, so one pass finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from leasehold.domain.errors import StoreError
from leasehold.domain.job import Job
from leasehold.stores.database.database import Row, Session
from leasehold.stores.database.places import Place, assemble


def lock(session: Session, ids: Iterable[str]) -> tuple[dict[str, Job], datetime | None]:
    """Lock the jobs in the order of seq; returns them, and the store's now (None when there is no such job)."""
    return _lock(session, ids, tuple(Place))


def lock_held(session: Session, ids: Iterable[str]) -> tuple[dict[str, Job], datetime | None]:
    """As `lock`, but only jobs under a lease."""
    return _lock(session, ids, (Place.LEASE,))


def lock_skip_locked(session: Session, ids: Iterable[str]) -> tuple[dict[str, Job], datetime | None]:
    """As `lock`, but without waiting: jobs that are locked are left out."""
    return _assembled(session, session.rows("lock_anchors_skip_locked", ids=sorted(set(ids))), tuple(Place))


def lock_held_skip_locked(session: Session, ids: Iterable[str]) -> tuple[dict[str, Job], datetime | None]:
    """As `lock_held`, but without waiting: the holder of a locked job may be about to settle it."""
    anchors = session.rows("lock_anchors_skip_locked", ids=sorted(set(ids)))
    return _assembled(session, anchors, (Place.LEASE,), "probe_leases_skip_locked")


def _lock(
    session: Session, ids: Iterable[str], order: Sequence[Place]
) -> tuple[dict[str, Job], datetime | None]:
    return _assembled(session, session.rows("lock_anchors", ids=sorted(set(ids))), order)


def _assembled(
    session: Session, anchors: Sequence[Row], order: Sequence[Place], leases: str = "probe_leases"
) -> tuple[dict[str, Job], datetime | None]:
    if not anchors:
        return {}, None
    found: dict[int, tuple[Place, Row]] = {}
    for place in order:
        missing = [anchor for anchor in anchors if anchor["seq"] not in found]
        if place is Place.LANE:
            missing = [anchor for anchor in missing if anchor["lane"] is not None]
        if missing:
            statement = leases if place is Place.LEASE else _PROBES[place]
            found |= {row["seq"]: (place, row) for row in _probe(session, place, statement, missing)}
    if len(order) == len(Place):
        for anchor in anchors:
            if anchor["seq"] not in found:
                raise StoreError(f"job {anchor['id']} is in no place; run `leasehold doctor`")
    # A statement of its own: a statement that waited for a lock may see older rows beside the job.
    sides = {row["seq"]: row for row in session.rows("read_sides", seqs=sorted(found))} if found else {}
    jobs = {
        anchor["id"]: assemble(anchor, *found[anchor["seq"]], sides[anchor["seq"]])
        for anchor in anchors
        if anchor["seq"] in found
    }
    return jobs, anchors[0]["now"]


_PROBES = {
    Place.READY: "probe_ready",
    Place.LANE: "probe_lane_places",
    Place.PARKED: "probe_parked",
    Place.OUTCOME: "probe_outcomes",
}


def _probe(session: Session, place: Place, statement: str, anchors: Sequence[Row]) -> list[Row]:
    seqs = [anchor["seq"] for anchor in anchors]
    if place is Place.LANE:
        return session.rows(statement, seqs=seqs, lanes=[anchor["lane"] for anchor in anchors])
    return session.rows(statement, seqs=seqs)


# -- progress ----------------------------------------------------------------------------------------------------------


def find_progress(session: Session, jobs: Iterable[Job]) -> set[int]:
    """The numbers of the jobs that have stored a step or a checkpoint since their last crash. Only jobs that
    crashed before are looked up: a first crash counts as one, whatever was stored."""
    crashed = sorted(job.seq for job in jobs if job.crashes > 0)
    return {row[0] for row in session.tuples("find_progress", seqs=crashed)} if crashed else set()
