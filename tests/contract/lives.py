"""Short lives of jobs: how the tests bring one where they want it, by the store's own verbs."""

from __future__ import annotations

from typing import Any

from leasehold.domain.job import Grant, Job, Sighting
from leasehold.domain.outcome import DeadlinePassed, Failure, Outcome, Stopped, Success
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import State
from leasehold.stores.results import ClaimDenied, Ending
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import put

OWNER = "worker-1"
SITE = "machine-1"
LEASE = 30.0


def claim_one(store: JobStore, worker: str = OWNER, queue: str = "default") -> Grant:
    (grant,) = store.claim(worker, [queue], 1)
    return grant


def claim_ids(
    store: JobStore, limit: int = 10, worker: str = OWNER, queue: str = "default", **requested: Any
) -> list[str]:
    return [grant.id for grant in store.claim(worker, [queue], limit, **requested)]


def claim_until_found(store: JobStore, limit: int = 10, worker: str = OWNER, tries: int = 3) -> list[str]:
    """A ticket whose head turns out to belong elsewhere is filed anew, so the first claim may come back empty."""
    for _ in range(tries):
        if found := claim_ids(store, limit, worker):
            return found
    return []


def run(store: JobStore, worker: str = OWNER, **fields: Any) -> Grant:
    """A new job, claimed by its id."""
    grant = store.claim_by_id(put(store, **fields).id, worker)
    assert isinstance(grant, Grant), grant
    return grant


def run_external(store: JobStore, worker: str = OWNER, site: str = SITE, **fields: Any) -> Grant:
    """A running job whose execution has been placed and started."""
    grant = run(store, worker, **fields)
    assert store.record_site(grant.id, grant.token, site, f"run-{grant.id}-{grant.attempt}")
    assert store.mark_started(grant.id, grant.token)
    return grant


def end(store: JobStore, grant: Grant, outcome: Outcome) -> Job:
    """Settle, and insist that it was accepted."""
    settled = store.settle([Ending(grant.id, grant.token, outcome)])
    assert settled.accepted == [grant.id], settled
    return store.get(grant.id)


def is_fenced(store: JobStore, grant: Grant, outcome: Outcome) -> bool:
    settled = store.settle([Ending(grant.id, grant.token, outcome)])
    assert bool(settled.accepted) != bool(settled.fenced), settled
    return settled.fenced == [grant.id]


def sight(store: JobStore, clock: ManualClock, job_id: str) -> Sighting:
    """Let the lease run out and take both looks at it; the answer is ripe."""
    clock.advance(store.get(job_id).lease_seconds + 1)
    (seen,) = [s for s in store.sight_overdue() if s.id == job_id]
    clock.advance(seen.lease_seconds / 3)
    return seen


def lose(store: JobStore, clock: ManualClock, grant: Grant) -> Job:
    """The whole way of a missed lease."""
    (reaped,) = store.reap([sight(store, clock, grant.id)])
    assert reaped.id == grant.id
    return store.get(grant.id)


def orphan(store: JobStore, clock: ManualClock, **fields: Any) -> Job:
    """Running with no owner: its worker has drained and left the external run alive."""
    from leasehold.domain.outcome import Detached

    site = fields.pop("site", SITE)
    job = end(store, run_external(store, site=site, **fields), Detached("drained"))
    assert job.orphan
    return job


def in_state(store: JobStore, clock: ManualClock, state: State, **fields: Any) -> Job:
    """A job in this state. All but pending and queued have run once, so a stale token of theirs exists."""
    match state:
        case State.PENDING:
            job = put(store, hold=True, **fields)
        case State.QUEUED:
            job = put(store, **fields)
        case State.RUNNING:
            job = store.get(run(store, **fields).id)
        case State.WAITING:
            job = end(store, run(store, **fields), QuestionAsked("q", "May I?"))
        case State.PAUSED:
            # With a question open, so that an answer can meet it.
            end_waiting = end(store, run(store, **fields), QuestionAsked("q", "May I?"))
            job = store.pause(end_waiting.id)
        case State.FAILED:
            job = end(store, run(store, **fields), Failure("broken", final=True))
        case State.TIMED_OUT:
            job = end(store, run(store, **fields), DeadlinePassed("too long"))
        case State.SUCCEEDED:
            job = end(store, run(store, **fields), Success('"done"'))
        case State.CANCELLED:
            grant = run(store, **fields)
            store.cancel(grant.id)
            job = end(store, grant, Stopped())
    assert job.state is state
    return store.get(job.id)


def granted(answer: Grant | ClaimDenied) -> Grant:
    assert isinstance(answer, Grant), answer
    return answer


def denied(answer: Grant | ClaimDenied) -> ClaimDenied:
    assert isinstance(answer, ClaimDenied), answer
    return answer
