"""Whether a job that is being lost had progressed since it was lost before."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.domain.job import Job
from leasehold.stores.database.database import Session


def find_progress(session: Session, jobs: Iterable[Job]) -> set[int]:
    """The numbers of the jobs that have kept a step or a checkpoint since their last crash. Only jobs that have crashed
    before are looked up: a first crash counts as one whatever was kept."""
    requested = sorted(job.seq for job in jobs if job.crashes > 0)
    return {row[0] for row in session.tuples("find_progress", seqs=requested)} if requested else set()
