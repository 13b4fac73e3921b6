"""Operate: the operator's verbs. Each locks the job, decides on its current state and writes, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from leasehold.domain import operate
from leasehold.domain.errors import DuplicateJob, InvalidInput, InvalidState, JobNotFound
from leasehold.domain.job import Job, NewJob
from leasehold.domain.limits import Need, read_need
from leasehold.domain.outcome import Move
from leasehold.domain.records import PauseRecord, Scope
from leasehold.domain.states import HOLDS_UNIQUE_KEY, State
from leasehold.stores.database.database import Row, Session
from leasehold.stores.database.places import as_stored
from leasehold.stores.verbs.audit import changed
from leasehold.stores.verbs.budgets import refuse_over_budget
from leasehold.stores.verbs.enqueue import enqueue_in
from leasehold.stores.verbs.groups import refuse_in_held_group
from leasehold.stores.verbs.locking import lock
from leasehold.stores.verbs.writing import Verbs, find_key_owners, write

Decide = Callable[[Job, datetime], Move]


class OperateVerbs(Verbs):
    """An operator changes one job, lane, queue or task."""

    def cancel(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job:
        """Cancel a job that is not final: at once, or by a stop request if the job runs. Otherwise raises InvalidState
        and changes nothing."""
        return self._operate(
            job_id, lambda job, now: operate.cancel(job, now=now, actor=actor, reason=reason)
        )

    def pause(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job:
        """Pause a job: at once, or by a stop request if the job runs. Raises InvalidState in states that cannot be
        paused."""
        return self._operate(job_id, lambda job, now: operate.pause(job, now=now, actor=actor, reason=reason))

    def interrupt(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job:
        """Pause the job if it runs; cancel it if it is pending, queued, waiting or paused. The store decides on the
        job's present state, so the caller need not read it first."""
        return self._operate(
            job_id, lambda job, now: operate.interrupt(job, now=now, actor=actor, reason=reason)
        )

    def finish(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job:
        """Let a running job end without another attempt."""
        return self._operate(
            job_id, lambda job, now: operate.finish(job, now=now, actor=actor, reason=reason)
        )

    def resume(
        self, job_id: str, actor: str | None = None, args: str | None = None, fresh: bool = False
    ) -> Job:
        """Continue a halted job as the same job, or withdraw a pause request that no attempt has obeyed yet. `fresh`
        deletes the job's steps and checkpoint. Raises InvalidState while the job is over its budget, unless `on_breach`
        allows it, and DuplicateJob if another job holds the unique key by now."""

        def work(session: Session) -> Job:
            job, now = _locked(session, job_id)
            refuse_in_held_group(session, job)
            if fresh and job.state is State.RUNNING:
                raise InvalidState(
                    job_id, "resume", job.state.value, "the steps of a run cannot be forgotten under it"
                )
            refuse_over_budget(session, job)
            after = _decide(
                session,
                job,
                now,
                lambda job, now: operate.resume(job, now=now, actor=actor, args=args, fresh=fresh),
            )
            if fresh:
                session.run("forget_steps", ids=[job_id])
                session.run("forget_checkpoints", ids=[job_id])
            return after

        return self._database.transact(work)

    def skip(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job:
        """Let the lane of a failed job go on. The failure stays."""
        return self._operate(job_id, lambda job, now: operate.skip(job, now=now, actor=actor, reason=reason))

    def snooze(
        self, job_id: str, until: datetime, actor: str | None = None, reason: str | None = None
    ) -> Job:
        """Set when a pending, queued or paused job is due; a time in the past means now. It keeps its state and its
        place in its lane, which waits for it. A deadline and `start_by` stay as they are."""
        return self._operate(
            job_id, lambda job, now: operate.snooze(job, until, now=now, actor=actor, reason=reason)
        )

    def abandon(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job:
        """Give up the execution of an orphan whose site is gone for good. This counts as a failure."""
        return self._operate(
            job_id, lambda job, now: operate.abandon(job, now=now, actor=actor, reason=reason)
        )

    def release(self, job_id: str, actor: str | None = None) -> Job:
        """End the hold of a pending job. The job is queued unless it still waits for others."""

        def work(session: Session) -> Job:
            job, now = _locked(session, job_id)
            refuse_in_held_group(session, job)
            return _decide(session, job, now, lambda job, now: operate.release(job, now=now, actor=actor))

        return self._database.transact(work)

    def retry(self, job_id: str, new_id: str, actor: str | None = None) -> Job:
        """Store a new job like this one, linked by `retry_of`. The old job must be at rest and stays as it is."""

        def work(session: Session) -> Job:
            job, now = _locked(session, job_id)
            operate.check_retry(job)
            gates = session.rows("read_gates", ids=[job.gate])
            need = read_need(gates[0]["slots"], gates[0]["rate_key"]) if gates else Need()
            again = _again(job, new_id, session.rows("list_parents", id=job_id), need)
            enqueue_in(session, [again])
            write(session, [Move(job, job, "retried", actor, new_id)], now)
            return _locked(session, new_id)[0]

        return self._database.transact(work)

    def pause_scope(
        self,
        scope: Scope,
        name: str,
        actor: str | None = None,
        reason: str | None = None,
        for_: float | None = None,
        until: datetime | None = None,
    ) -> PauseRecord:
        """Stop claims from this queue, or of this task, until the given time or until `resume_scope`. Running jobs go
        on."""
        if scope not in ("queue", "task"):
            raise InvalidInput("scope", f"{scope!r} cannot be paused", "use 'queue' or 'task'")
        if for_ is not None and for_ <= 0:
            raise InvalidInput("for_", f"{for_:g} s is not a duration", "give a positive number of seconds")

        def work(session: Session) -> PauseRecord:
            row = session.rows(
                "pause_scope", scope=scope, name=name, actor=actor, reason=reason, seconds=for_, until=until
            )[0]
            return PauseRecord(**row)

        return self._database.transact(work)

    def resume_scope(self, scope: Scope, name: str) -> bool:
        """End a pause. False: the queue or task was not paused."""
        return self._database.single(
            lambda session: changed(
                any(row["was_paused"] for row in session.rows("resume_scope", scope=scope, name=name))
            )
        )

    def list_pauses(self) -> list[PauseRecord]:
        """The paused queues and tasks."""
        return self._database.read(_pauses)

    def resume_lane(self, lane: str, actor: str | None = None) -> Job | None:
        """Resume the job that halts the lane. None: no job halts it."""

        def work(session: Session) -> Job | None:
            found = changed(session.rows("find_halter", lane=lane))
            if not found:
                return None
            job, now = _locked(session, found[0]["id"])
            refuse_in_held_group(session, job)
            refuse_over_budget(session, job)
            return _decide(session, job, now, lambda job, now: operate.resume(job, now=now, actor=actor))

        return self._database.transact(work)

    def _operate(self, job_id: str, decide: Decide) -> Job:
        def work(session: Session) -> Job:
            job, now = _locked(session, job_id)
            return _decide(session, job, now, decide)

        return self._database.transact(work)


def _locked(session: Session, job_id: str) -> tuple[Job, datetime]:
    jobs, now = lock(session, [job_id])
    if job_id not in jobs or now is None:
        raise JobNotFound(job_id)
    return jobs[job_id], now


def _decide(session: Session, job: Job, now: datetime, decide: Decide) -> Job:
    move = decide(job, now)
    _check_key(session, move)
    write(session, [move], now)
    return as_stored(move, now)


def _check_key(session: Session, move: Move) -> None:
    """Raise DuplicateJob if another job has taken the unique key of a job that becomes live again."""
    key = move.job.unique_key
    if key is None or move.before.state in HOLDS_UNIQUE_KEY or move.job.state not in HOLDS_UNIQUE_KEY:
        return
    for holder in find_key_owners(session, [(move.job.task, key)]):
        if holder["id"] != move.job.id:
            raise DuplicateJob(holder["id"], move.job.task, key)


def _again(job: Job, new_id: str, parents: Sequence[Row], need: Need) -> NewJob:
    """The new job of a retry. It waits for the same parents, if they still exist: it may read their results."""
    return NewJob(
        id=new_id,
        task=job.task,
        args=job.args,
        queue=job.queue,
        priority=job.priority,
        lane=job.lane,
        unique_key=job.unique_key,
        unique_for=job.unique_for,
        on_duplicate="raise",
        lease_seconds=job.lease_seconds,
        policy=job.policy,
        group=job.group,
        tags=job.tags,
        deadline=None if job.deadline_at is None else (job.deadline_at - job.created_at).total_seconds(),
        retry_of=job.id,
        trace=job.trace,
        after=tuple(row["parent_id"] for row in parents),
        on_parent_failure=parents[0]["on_failure"] if parents else "cancel",
        slots=need.slots,
        rate=need.rate,
    )


def _pauses(session: Session) -> list[PauseRecord]:
    return [PauseRecord(**row) for row in session.rows("list_pauses")]
