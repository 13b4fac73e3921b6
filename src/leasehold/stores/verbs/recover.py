"""Leases: renewal, reaping of missed leases after two looks, and adoption of executions."""

from __future__ import annotations

import random
from collections.abc import Container, Mapping, Sequence
from datetime import datetime

from leasehold.domain import operate
from leasehold.domain.job import TOLERANCE, Grant, Job, Renewal, Sighting
from leasehold.domain.outcome import Lost, Move
from leasehold.domain.records import Reaped
from leasehold.domain.settle import settle_lost, time_is_over
from leasehold.domain.states import Flag, Trigger, allowed
from leasehold.stores.database.database import Columns, Records, Session
from leasehold.stores.database.places import START_BY, STOP_OF_NUMBER, as_stored, record_of
from leasehold.stores.verbs.claim import grant_of
from leasehold.stores.verbs.dependencies import without_locked_children
from leasehold.stores.verbs.locking import find_progress, lock_held_skip_locked, lock_skip_locked
from leasehold.stores.verbs.questions import QuestionVerbs
from leasehold.stores.verbs.writing import Verbs, batches, write


class RecoverVerbs(QuestionVerbs):
    """Take over the jobs of workers that are gone, and recover from lost replies."""

    def sight_overdue(self, sweep: float = 0.0, limit: int = 1000) -> list[Sighting]:
        """The first look at leases whose renewal is overdue on the database's clock: those that a look `sweep` seconds
        later would see too late to reap at their expiry. It includes leases that expire further ahead than their own
        length, because the clock was set back."""
        parameters = {"sweep": sweep, "tolerance": TOLERANCE, "limit": limit}
        rows = self._rows("sight_overdue", **parameters)
        seen_at = self._database.clock.monotonic()
        return [
            Sighting(
                id=row["id"],
                token=row["lease_token"],
                expires_at=row["lease_expires_at"],
                lease_seconds=row["lease_seconds"],
                worker=row["worker"],
                alone=row["alone"],
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
            moves = self._past_refusals(
                batch,
                lambda some: self._database.transact(lambda session: _reap(session, some)),
                lambda sighting, error: self._note_refusal(sighting.id, "recover", error),
            )
            reaped += [
                Reaped(
                    move.job.id,
                    move.before.worker,
                    move.job.state,
                    move.job.orphan,
                    task=move.job.task,
                    queue=move.job.queue,
                    attempt=move.job.attempt,
                )
                for move in moves
            ]
        return reaped

    def count_leases(self) -> int:
        """The number of leases that workers hold."""
        return int(self._tuples("count_leases")[0][0])

    def expire(self, limit: int = 500) -> list[Job]:
        """End jobs that do not run and whose time is over: past their deadline they are timed_out; not started by their
        `start_by`, they are cancelled. Close questions whose time is over and queue the jobs that wait for them. A
        separate read looks for them first: a sweep that finds nothing writes nothing."""
        rows = self._tuples("find_passed_limits", limit=limit)
        ids = [job_id for job_id, is_question in rows if not is_question]
        ended = self._past_refusals(
            ids,
            lambda some: self._database.transact(lambda session: _expire(session, some)) if some else [],
            lambda job_id, error: self._note_refusal(job_id, "expire", error),
        )
        return ended + self._expire_questions([job_id for job_id, is_question in rows if is_question])

    def adopt(
        self, worker: str, sites: Sequence[str], tasks: Sequence[str] | None = None, limit: int = 100
    ) -> list[Grant]:
        """Lease orphans of these sites to this worker. An adoption costs no attempt. A copy of a database leaves alone
        what its original has placed."""
        if not sites or limit < 1:
            return []

        self._make_worker_name(worker)
        parameters = {
            "sites": list(sites),
            "tasks": None if tasks is None else list(tasks),
            "origin": self._database.identity(),
            "limit": limit,
        }

        def work(session: Session, found: Sequence[str]) -> list[Grant]:
            jobs, now = lock_skip_locked(session, found)
            if now is None:
                return []
            orphans = [job for job in jobs.values() if job.orphan]
            moves = [operate.adopt(job, worker=worker, now=now) for job in orphans]
            write(session, moves, now)
            return [grant_of(move.job, now) for move in moves]

        def find_and_adopt(session: Session) -> list[Grant]:
            return work(session, [row[0] for row in session.tuples("find_orphans", **parameters)])

        try:
            return self._database.transact(find_and_adopt)
        except Exception as error:
            if not self._database.refuses_row(error):
                raise
        # Not failed: its execution may be alive.
        return self._past_refusals(
            [row[0] for row in self._tuples("find_orphans", **parameters)],
            lambda ids: self._database.transact(lambda session: work(session, ids)),
            lambda job_id, error: self._note_refusal(job_id, "adopt", error),
        )

    def owns_execution(self, job_id: str, seq: int, attempt: int) -> bool:
        """Whether this database has placed the execution; else it is a copy of the one that has."""
        origin = self._database.identity()
        return bool(self._tuples("find_origin", job=seq, attempt=attempt, origin=origin))

    def find_leases_of(self, worker: str) -> list[Grant]:
        """After a lost reply: the leases that this worker holds."""
        return [record_of(Grant, row) for row in self._rows("find_leases_of", worker=worker)]


def _reap(session: Session, sightings: Sequence[Sighting]) -> list[Move]:
    jobs, now = lock_held_skip_locked(session, [s.id for s in sightings])
    if now is None:
        return []
    lost = [s for s in sightings if s.id in jobs and s.matches(jobs[s.id]) and s.has_expired(now)]
    progressed = find_progress(session, [jobs[s.id] for s in lost])
    moves = without_locked_children(session, [_lose(jobs[s.id], s, now, progressed) for s in lost])
    write(session, moves, now)
    return moves


def _expire(session: Session, ids: Sequence[str]) -> list[Job]:
    """End jobs whose time is over, checked again under the lock. The `start_by` limit of a job that has
    started is dropped: every sweep would find it again."""
    jobs, now = lock_skip_locked(session, ids)
    if now is None:
        return []
    waiting = [job for job in jobs.values() if allowed(job.state, Trigger.EXPIRE)]
    over = [job for job in waiting if time_is_over(job, now)]
    met = [job for job in jobs.values() if job.start_by is not None and job.attempt > 0]
    if met:
        session.run("drop_time_limits", rows=Records([{"job": job.seq, "what": START_BY} for job in met]))
    moves = without_locked_children(session, [operate.expire(job, now=now) for job in over])
    write(session, moves, now)
    return [as_stored(move, now) for move in moves]


def _lose(job: Job, sighting: Sighting, now: datetime, progressed: Container[int]) -> Move:
    lost = Lost(alone=sighting.alone, progressed=job.seq in progressed)
    return settle_lost(job, lost, now=now, jitter=random.random())


# -- renew -------------------------------------------------------------------------------------------------------------
# Every write is fenced by the token.


class RenewVerbs(Verbs):
    """The worker extends its leases and records where its executions live."""

    def renew(self, leases: Mapping[str, int]) -> list[Renewal]:
        """Extend the leases given as id and token, even expired ones. A lease that is missing from the result is no
        longer held."""
        held = {job_id: leases[job_id] for job_id in sorted(leases) if leases[job_id] > 0}
        if not held:
            return []
        renewed = self._query("renew", held)
        answer = [Renewal(job_id, STOP_OF_NUMBER[stop]) for job_id, stop in renewed.items()]
        missing = {job_id: token for job_id, token in held.items() if job_id not in renewed}
        if missing:
            # The statement does not wait: a lease that it skipped is locked or lost. A read finds out which.
            locked = self._query("find_leases", missing)
            answer += [
                Renewal(job_id, STOP_OF_NUMBER[stop], extended=False) for job_id, stop in locked.items()
            ]
        return answer

    def _query(self, statement: str, leases: Mapping[str, int]) -> dict[str, int]:
        columns = Columns(ids=list(leases), tokens=list(leases.values()))
        return dict(
            self._database.single(lambda session: session.tuples(statement, leases=columns), idempotent=True)
        )

    def read_stop_requests(self, leases: Mapping[str, tuple[int, int]]) -> dict[str, Flag]:
        """The stop requests on these leases, given as id, sequence number and token. The call only reads: it extends no
        lease and does not report lost ones."""
        if not leases:
            return {}
        ids = {seq: job_id for job_id, (seq, _) in leases.items()}
        held = Columns(jobs=list(ids), tokens=[token for _, token in leases.values()])
        rows = self._database.read(lambda session: session.tuples("read_stop_requests", leases=held))
        return {ids[seq]: flag for seq, stop in rows if (flag := STOP_OF_NUMBER[stop]) is not None}

    def record_site(self, job_id: str, token: int, site: str, name: str) -> bool:
        """Record where an execution will live, before it starts. False: the lease is lost, so the execution must not
        start."""
        placed = {"site": site, "name": name, "origin": self._database.identity()}
        return bool(
            self._database.single(
                lambda session: session.tuples("record_site", id=job_id, token=token, **placed)
            )
        )

    def mark_started(self, job_id: str, token: int) -> bool:
        """Record that the execution has started. False: the lease is lost, or no place was recorded."""
        return bool(
            self._database.single(lambda session: session.tuples("mark_started", id=job_id, token=token))
        )
