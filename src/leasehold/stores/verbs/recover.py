"""Recover: notice missed leases in two looks, adopt what still lives, claim one job by its id."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from leasehold.domain import operate
from leasehold.domain.by_id import ask_again_in
from leasehold.domain.errors import state_told
from leasehold.domain.expiry import granted_too_late, time_is_over
from leasehold.domain.job import TOLERANCE, Grant, Job, Sighting, has_run_out
from leasehold.domain.lanes import STARTED
from leasehold.domain.limits import Need
from leasehold.domain.moves import Move
from leasehold.domain.outcome import Expired, Lost
from leasehold.domain.settle import settle
from leasehold.domain.states import Event, State, allowed
from leasehold.domain.views import Reaped
from leasehold.stores.answers import Denied
from leasehold.stores.base.database import Records, Session
from leasehold.stores.base.places import START_BY, as_stored
from leasehold.stores.base.rows import record_of
from leasehold.stores.verbs.dependencies import without_locked_children
from leasehold.stores.verbs.limits import LimitVerbs, lock_limits, why_not
from leasehold.stores.verbs.locking import lock, lock_free, lock_free_held
from leasehold.stores.verbs.progress import find_progress
from leasehold.stores.verbs.questions import QuestionVerbs
from leasehold.stores.verbs.writing import batches, write

NOTHING = Need()


class RecoverVerbs(LimitVerbs, QuestionVerbs):
    """Take over the jobs of workers that are gone, and recover from lost replies."""

    def sight_missed(self, sweep: float = 0.0, limit: int = 1000) -> list[Sighting]:
        """The first look at leases whose renewal is overdue on the database's clock: those that a look `sweep` seconds
        later would see too late to reap at their expiry. It includes leases that expire further ahead than their own
        length, because the clock was set back."""
        asked = {"sweep": sweep, "tolerance": TOLERANCE, "limit": limit}
        rows = self._database.read(lambda session: session.rows("sight_missed", **asked))
        seen_at = self._database.clock.monotonic()
        return [
            Sighting(
                id=row["id"],
                token=row["lease_token"],
                expires_at=row["lease_expires_at"],
                lease_seconds=row["lease_seconds"],
                owner=row["worker"],
                alone=not row["shared"],
                seen_at=seen_at,
                expires_in=row["expires_in"],
            )
            for row in rows
        ]

    def reap(self, sightings: Sequence[Sighting]) -> list[Reaped]:
        """The second look: settle a lease as lost if it has expired and has not moved for ttl/3 on the caller's clock.
        A lease that expires further ahead than its own length must not have moved for that whole length. Other leases
        stay."""
        monotonic = self._database.clock.monotonic()
        once = {(s.id, s.token, s.expires_at): s for s in sightings if s.ripe(monotonic)}
        ripe = sorted(once.values(), key=lambda s: s.id)
        reaped: list[Reaped] = []
        for batch in batches(ripe):
            moves = self._database.transact(lambda session, batch=batch: _reap(session, batch))  # type: ignore[misc]
            reaped += [
                Reaped(
                    move.job.id,
                    move.before.lease_owner,
                    move.job.state,
                    move.job.orphan,
                    kind=move.job.kind,
                    queue=move.job.queue,
                    attempt=move.job.attempt,
                )
                for move in moves
            ]
        return reaped

    def count_leases(self) -> int:
        """The number of leases that workers hold."""
        return int(self._database.read(lambda session: session.tuples("count_leases"))[0][0])

    def expire(self, limit: int = 500) -> list[Job]:
        """End jobs that do not run and whose time is over: past their deadline they are timed_out; not started by their
        `start_by`, they are cancelled. Close questions whose time is over and queue the jobs that wait for them. The
        look is a read of its own: a sweep that finds nothing writes nothing."""
        rows = self._database.read(lambda session: session.tuples("find_overdue", limit=limit))
        ids = [job_id for job_id, asked in rows if not asked]
        ended = self._database.transact(lambda session: _expire(session, ids)) if ids else []
        return ended + self._expire_questions([job_id for job_id, asked in rows if asked])

    def adopt(
        self, owner: str, sites: Sequence[str], kinds: Sequence[str] | None = None, limit: int = 100
    ) -> list[Grant]:
        """Lease orphans of these sites to this worker. An adoption costs no attempt."""
        if not sites or limit < 1:
            return []

        self._make_owner(owner)
        asked = {"sites": list(sites), "tasks": None if kinds is None else list(kinds), "limit": limit}

        def work(session: Session) -> list[Grant]:
            found = [row[0] for row in session.tuples("find_orphans", **asked)]
            jobs, now = lock_free(session, found)
            if now is None:
                return []
            orphans = [job for job in jobs.values() if job.orphan]
            moves = [_adopted(job, now, owner) for job in orphans]
            write(session, moves, now)
            return [grant_of(move.job, now) for move in moves]

        return self._database.transact(work)

    def _claim_in_time(self, claim: Callable[[], list[Grant]]) -> list[Grant]:
        """Go on while all that was taken had no time left: an empty answer means that there is nothing to do."""
        while True:
            taken = claim()
            grants = self._in_time(taken)
            if grants or not taken:
                return grants

    def _in_time(self, grants: list[Grant]) -> list[Grant]:
        """Without those that came too late to be run: they end here, as the sweep would have ended them."""
        late = {g.id: g.token for g in grants if g.seconds_left is not None and g.seconds_left <= 0}
        if not late:
            return grants
        for ids in batches(sorted(late)):
            some = {job_id: late[job_id] for job_id in ids}
            self._database.transact(lambda session, some=some: _expire_grants(session, some))  # type: ignore[misc]
        return [grant for grant in grants if grant.id not in late]

    def find_held(self, owner: str) -> list[Grant]:
        """After a lost reply: the leases that this worker holds."""
        rows = self._database.read(lambda session: session.rows("find_held", worker=owner))
        return [record_of(Grant, row) for row in rows]

    def claim_by_id(
        self,
        job_id: str,
        owner: str,
        sites: Sequence[str] = (),
        sighting: Sighting | None = None,
    ) -> Grant | Denied:
        """Claim one job, whatever its queue. An expired lease is first reaped (by two looks, as its task says), then
        claimed or adopted, all in one transaction. A job whose time is over ends and is denied; an orphan is granted
        all the same, so that its execution can be stopped."""
        self._make_owner(owner)
        monotonic = self._database.clock.monotonic()
        ripe = sighting if sighting is not None and sighting.ripe(monotonic) else None

        def work(session: Session, need: Need = NOTHING) -> Grant | Denied | Need:
            if need:
                lock_limits(session, [need])
            jobs, now = lock(session, [job_id])
            job = jobs.get(job_id)
            if job is None or now is None:
                return Denied(job_id, None, "no such job")
            needed = self._needs_of(session, [job.gate]).get(job.gate, NOTHING)
            if needed != need and not _is_held(job, now):
                return needed
            return claim_in(session, job, now, owner, sites, ripe, monotonic, need)

        answer = self._database.transact(work)
        if isinstance(answer, Need):
            # Slots and rates are locked before jobs: begun again, with what it needs known.
            need = answer
            answer = self._database.transact(lambda session: work(session, need))
        if isinstance(answer, Need):
            raise AssertionError(f"the gate of job {job_id} has changed")
        return answer


def _reap(session: Session, sightings: Sequence[Sighting]) -> list[Move]:
    jobs, now = lock_free_held(session, [s.id for s in sightings])
    if now is None:
        return []
    lost = [s for s in sightings if s.id in jobs and _as_sighted(jobs[s.id], s) and s.missed(now)]
    progressed = find_progress(session, [jobs[s.id] for s in lost])
    moves = without_locked_children(session, [_lose(jobs[s.id], s, now, progressed) for s in lost])
    write(session, moves, now)
    return moves


def _as_sighted(job: Job, sighting: Sighting) -> bool:
    seen = (sighting.id, sighting.token, sighting.expires_at)
    return (job.id, job.lease_token, job.lease_expires_at) == seen


def _expire(session: Session, ids: Sequence[str]) -> list[Job]:
    """Looked at again under the lock. A limit on the start of a job that has started is dropped: it would come up with
    every sweep."""
    jobs, now = lock_free(session, ids)
    if now is None:
        return []
    waiting = [job for job in jobs.values() if allowed(job.state, Event.EXPIRE)]
    over = [job for job in waiting if time_is_over(job, now)]
    met = [job for job in jobs.values() if job.start_by is not None and job.attempt > 0]
    if met:
        session.run("drop_time_limits", rows=Records([{"job": job.seq, "what": START_BY} for job in met]))
    moves = without_locked_children(session, [operate.expire(job, now=now) for job in over])
    write(session, moves, now)
    return [as_stored(move, now) for move in moves]


def _lose(job: Job, sighting: Sighting, now: datetime, progressed: Container[int]) -> Move:
    lost = Lost(alone=sighting.alone, progressed=job.seq in progressed)
    outcome = Expired() if granted_too_late(job) else lost
    return settle(job, outcome, job.policy, now=now, jitter=random.random())


def _expire_grants(session: Session, leases: Mapping[str, int]) -> None:
    """What somebody has in hand just now is left: its lease runs out, and the reaper sees what it was."""
    jobs, now = lock_free_held(session, leases)
    if now is not None:
        late = [job for job in jobs.values() if job.lease_token == leases[job.id]]
        moves = [settle(job, Expired(), job.policy, now=now) for job in late]
        write(session, without_locked_children(session, moves), now)


def claim_in(
    session: Session,
    job: Job,
    now: datetime,
    owner: str,
    sites: Sequence[str],
    sighting: Sighting | None,
    monotonic: float,
    need: Need,
) -> Grant | Denied:
    """Claim this job, which is locked, in a transaction that is open."""
    job_id = job.id
    if job.state is State.RUNNING and job.lease_owner is not None:
        if _is_held(job, now):
            held = f"its lease is held by {job.lease_owner}"
            return Denied(job_id, job.state, held, retry_in=ask_again_in(job, now))
        if sighting is None or not (_as_sighted(job, sighting) and sighting.missed(now)):
            look = _look(session, job, job.lease_owner, now, monotonic)
            again = "its lease has run out; it can be taken over after a second look"
            return Denied(job_id, job.state, again, look, job.lease_seconds / 3)
        lost = _lose(job, sighting, now, find_progress(session, [job]))
        write(session, [lost], now)
        job = lost.job
    if job.state is State.QUEUED and time_is_over(job, now):
        ended = operate.expire(job, now=now)
        write(session, [ended], now)
        return Denied(job_id, ended.job.state, ended.detail or "its time is over")
    if job.orphan and job.execution_site in sites:
        granted = _adopted(job, now, owner)
    elif (why := _not_claimable(session, job, now, need)) is not None:
        return Denied(job_id, job.state, why, retry_in=ask_again_in(job, now))
    else:
        if need.rate is not None:
            session.run("move_rates", taken=Records([{"key": need.rate, "jobs": 1}]))
        after = operate.claim(job, owner=owner, now=now, lane_start=STARTED)
        granted = _granted(job, after, now, None, owner)
    write(session, [granted], now)
    return grant_of(granted.job, now)


def _is_held(job: Job, now: datetime) -> bool:
    if job.state is not State.RUNNING or job.lease_expires_at is None:
        return False
    return not has_run_out(job.lease_expires_at, job.lease_seconds, now)


def _look(session: Session, job: Job, owner: str, now: datetime, monotonic: float) -> Sighting:
    expires_at = job.lease_expires_at or now
    return Sighting(
        id=job.id,
        token=job.lease_token,
        expires_at=expires_at,
        lease_seconds=job.lease_seconds,
        owner=owner,
        alone=len(session.tuples("find_held", worker=owner)) == 1,
        seen_at=monotonic,
        expires_in=(expires_at - now).total_seconds(),
    )


def _not_claimable(session: Session, job: Job, now: datetime, need: Need) -> str | None:
    if job.state is not State.QUEUED:
        return "it is an orphan of another site" if job.orphan else f"it {state_told(job.state.value)}"
    if job.available_at > now:
        return "it is not due yet"
    if session.rows("task_is_paused", task=job.kind):
        return f"its task {job.kind!r} is paused"
    if job.lane is not None:
        front = session.rows("find_lane_head", lane=job.lane)[0]
        if front["blocker"] is not None:
            return f"its lane {job.lane!r} is blocked by job {front['blocker']}"
        if front["head"] is not None and front["head"] != job.id:
            return f"job {front['head']} is ahead of it in lane {job.lane!r}"
    return why_not(session, need) if need else None


def _granted(before: Job, after: Job, now: datetime, event: str | None, owner: str) -> Move:
    expires_at = now + timedelta(seconds=before.lease_seconds)
    return Move(before, replace(after, lease_expires_at=expires_at), event, owner)


def grant_of(job: Job, now: datetime) -> Grant:
    """An orphan is granted though its time is over: somebody has to stop it."""
    left = None if job.deadline_at is None else (job.deadline_at - now).total_seconds()
    started_at = job.execution_started_at
    # Who is adopted has waited before.
    begun = None if job.execution_site is not None else job.started_at or now
    return Grant(
        seq=job.seq,
        id=job.id,
        token=job.lease_token,
        attempt=job.attempt,
        kind=job.kind,
        queue=job.queue,
        args=job.args,
        lease_seconds=job.lease_seconds,
        policy=job.policy.dump(),
        lane=job.lane,
        group_name=job.group_name,
        failures=job.failures,
        crashes=job.crashes,
        special=job.special,
        waited=None if begun is None else max(0.0, (begun - job.available_at).total_seconds()),
        stop_requested=job.stop_requested,
        seconds_left=left,
        trace=job.trace,
        execution_site=job.execution_site,
        execution_name=job.execution_name,
        execution_age=None if started_at is None else (now - started_at).total_seconds(),
    )


def _adopted(job: Job, now: datetime, owner: str) -> Move:
    """The attempt stays: it names the execution that may still live."""
    after = replace(job, lease_owner=owner, lease_token=job.lease_token + 1)
    return replace(_granted(job, after, now, "adopted", owner), detail=job.execution_name)
