"""Run now: store a job and claim it at once if its task has a place, else store nothing. One transaction decides."""

from __future__ import annotations

from leasehold.domain.capacity import Holder, retry_hint
from leasehold.domain.errors import InvalidState
from leasehold.domain.job import Grant, NewJob
from leasehold.domain.limits import Need
from leasehold.stores.database.database import Row, Session
from leasehold.stores.results import Denied, Enqueued, Full
from leasehold.stores.verbs.claim import claim_in, grant_of
from leasehold.stores.verbs.enqueue import EnqueueVerbs, enqueue_in
from leasehold.stores.verbs.limits import lock_limits
from leasehold.stores.verbs.locking import lock
from leasehold.stores.verbs.writing import find_holders


class RunNowVerbs(EnqueueVerbs):
    """Store a job and run it in the calling process."""

    def run_now(self, job: NewJob, worker: str, cap: int) -> Grant | Full | Enqueued:
        """Store this job and claim it in one transaction if fewer than `cap` jobs of its task run; running jobs are
        those with a live lease of any worker, and orphans. Otherwise return Full and store nothing. Calls for one task
        decide one after the other. If another job holds the unique key, the result is as in `enqueue`. A job that
        cannot be claimed (its lane is taken, its task is paused) raises InvalidState and is not stored. The same id
        from the same worker returns the same grant again."""
        self._make_gates([job])
        self._make_worker_name(worker)
        monotonic = self._database.clock.monotonic()
        return self._database.transact(lambda session: _run_now(session, job, worker, cap, monotonic))


def _run_now(
    session: Session, job: NewJob, worker: str, cap: int, monotonic: float
) -> Grant | Full | Enqueued:
    _take_turn(session, job.task)
    # Counted by a statement of its own: it must see what earlier calls wrote.
    places = session.rows("list_places", task=job.task)
    if any(place["id"] == job.id for place in places):
        return _given_before(session, job, worker)
    holders = [_holder(place) for place in places if _is_taken(place)]
    if len(holders) >= cap:
        return _duplicate_of(session, job) or Full(tuple(holders), retry_hint(holders, places[0]["now"]))
    need = Need(job.slots, job.rate)
    if need:
        lock_limits(session, [need])  # before any job, as every claim does
    (made,) = enqueue_in(session, [job])
    if not made.created:
        return made
    jobs, now = lock(session, [job.id])
    assert now is not None
    granted = claim_in(session, jobs[job.id], now, worker, (), None, monotonic, need)
    if isinstance(granted, Denied):
        # Raised, so that what was stored goes too.
        raise InvalidState(job.id, "start", "not stored", granted.why)
    return granted


def _take_turn(session: Session, task: str) -> None:
    """Calls for one task decide one after the other: two that count at the same time would both see the last place."""
    while not session.rows("lock_running_cap", task=task):
        session.run("insert_running_cap", task=task)


def _is_taken(place: Row) -> bool:
    """A lease that has run out takes no place: its worker is gone, or will be fenced. But an execution may live on
    until it is adopted and has ended."""
    return bool(place["placed"]) or place["worker"] is None or place["lease_expires_at"] > place["now"]


def _holder(place: Row) -> Holder:
    return Holder(place["id"], place["worker"], place["started_at"], place["lease_expires_at"])


def _given_before(session: Session, job: NewJob, worker: str) -> Grant | Enqueued:
    """The same call again, after a lost reply."""
    jobs, now = lock(session, [job.id])
    row = jobs[job.id]
    if row.worker != worker or now is None:
        return Enqueued(job.id, created=False)
    return grant_of(row, now)


def _duplicate_of(session: Session, job: NewJob) -> Enqueued | None:
    """A call that leads to an existing job needs no place."""
    if job.unique_key is None or job.on_duplicate != "return":
        return None
    rows = find_holders(session, [(job.task, job.unique_key)])
    return Enqueued(rows[0]["id"], created=False) if rows else None
