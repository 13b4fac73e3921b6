"""Decides every ending: by the worker, by the reaper, by a hand-back, or because the job's time is over.

SQL only writes the decisions made here.

The table (rows: how the attempt ended; columns: the stop that was requested):

    outcome                            no flag        finish       pause        cancel
    success                            succeeded      succeeded    succeeded    succeeded
    failure, retries left              queued         cancelled    paused       cancelled
    failure, exhausted                 failed         failed       failed       cancelled
    attempt time-out                   as failure, or timed_out    timed_out    cancelled
                                       timed_out
    whole-job deadline                 timed_out      timed_out    timed_out    cancelled
    granted past its deadline          timed_out      timed_out    timed_out    cancelled
    granted past its start_by          cancelled      cancelled    cancelled    cancelled
    stopped, handed back, lost: retry  queued         cancelled    paused       cancelled
    lost: fail                         failed         failed       failed       cancelled
    lost: adopt; external at drain     orphan, flag kept
    snooze                             queued         cancelled    paused       cancelled
    question                           waiting        cancelled    paused       cancelled
    budget breach                      by on_breach   failed       by on_breach cancelled

A job whose task takes no queue (`queueing=False`) fails wherever this table says queued, waiting or paused.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from leasehold.domain.job import Job
from leasehold.domain.lanes import STARTED
from leasehold.domain.outcome import (
    AttemptTimedOut,
    Breached,
    Crashed,
    DeadlinePassed,
    Detached,
    Expired,
    Failure,
    HandedBack,
    Lost,
    Move,
    Outcome,
    Snoozed,
    Stopped,
    Success,
    clean_error,
    finish_time,
)
from leasehold.domain.policy import Policy, backoff_delay
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import Flag, State, stronger


def settle(job: Job, outcome: Outcome, policy: Policy, *, now: datetime, jitter: float = 0.0) -> Move:
    """Decide the next state of a running job. `jitter` (0..1) spreads the retries."""
    move = _by_the_table(job, outcome, policy, now=now, jitter=jitter)
    return move if policy.queueing or move.job.state not in _GOES_ON else _without_queue(move, policy, now)


def settle_lost(job: Job, lost: Lost, *, now: datetime, jitter: float = 0.0) -> Move:
    """Decide what happens to a job whose lease has run out. It expired if it had no time left at its grant."""
    outcome = Expired() if granted_too_late(job) else lost
    return settle(job, outcome, job.policy, now=now, jitter=jitter)


def _by_the_table(job: Job, outcome: Outcome, policy: Policy, *, now: datetime, jitter: float) -> Move:
    flag = job.stop_requested
    match outcome:
        case Success():
            return _succeeded(job, outcome, now)
        case Failure() | AttemptTimedOut():
            return _failed(job, outcome, policy, flag, now, jitter)
        case DeadlinePassed():
            state = State.CANCELLED if flag is Flag.CANCEL else State.TIMED_OUT
            return _leave_running(job, state, "timed_out", policy, now, error=outcome.error)
        case Expired():
            return _expired(job, policy, flag, now)
        case Stopped():
            wanted = stronger(flag, Flag.PAUSE) if outcome.pause else flag
            return _requeue_unless_stopped(job, wanted, "stopped", policy, now, reason=outcome.reason)
        case HandedBack():
            return _requeue_unless_stopped(
                job, flag, "handed_back", policy, now, reason=outcome.reason, delay=outcome.delay
            )
        case Detached():
            if job.execution_site is None:
                return _requeue_unless_stopped(job, flag, "handed_back", policy, now, reason=outcome.reason)
            return _orphan(job, "detached", outcome.reason)
        case Lost():
            move = _lost(job, outcome, policy, flag, now, jitter)
            # The reaper settled the job: a worker that comes back must not take this for its own settle.
            return replace(move, job=replace(move.job, settled_by=None, settled_token=None))
        case Crashed():
            return _lost(job, outcome, policy, flag, now, jitter)
        case Snoozed():
            return _requeue_unless_stopped(
                job, flag, "snoozed", policy, now, delay=outcome.delay, error=outcome.error
            )
        case QuestionAsked():
            if flag is None:
                return replace(_leave_running(job, State.WAITING, "asked", policy, now), asks=outcome)
            move = _requeue_unless_stopped(job, flag, "asked", policy, now)
            return replace(move, asks=outcome) if move.job.state is State.PAUSED else move
        case Breached():
            return _breached(job, outcome, policy, flag, now)
        case _:
            assert_never(outcome)


def _succeeded(job: Job, outcome: Success, now: datetime) -> Move:
    done = replace(_without_lease(job), state=State.SUCCEEDED, finished_at=now, reason=None, halts_lane=False)
    # The records of earlier attempts keep their errors.
    done = replace(done, result=outcome.result, result_ref=outcome.result_ref, error=None)
    return Move(job, done, None, actor=job.worker)


def _failed(
    job: Job,
    outcome: Failure | AttemptTimedOut,
    policy: Policy,
    flag: Flag | None,
    now: datetime,
    jitter: float,
) -> Move:
    timed_out = isinstance(outcome, AttemptTimedOut)
    counted = replace(job, failures=job.failures + 1)
    final = isinstance(outcome, Failure) and outcome.final
    event = "timed_out" if timed_out else "failed"
    exhausted = State.TIMED_OUT if timed_out else State.FAILED
    if flag is Flag.CANCEL:
        return _leave_running(counted, State.CANCELLED, event, policy, now, error=outcome.error, before=job)
    if final or counted.failures >= policy.max_attempts or (timed_out and flag is not None):
        return _leave_running(counted, exhausted, event, policy, now, error=outcome.error, before=job)
    delay = backoff_delay(policy, counted.failures, jitter)
    return _requeue_unless_stopped(
        counted, flag, event, policy, now, delay=delay, error=outcome.error, before=job
    )


def _expired(job: Job, policy: Policy, flag: Flag | None, now: datetime) -> Move:
    """End the job as the sweep would have before the claim. The job did not run, so no worker has settled it."""
    unused = before_grant(job)
    move = expired(unused, now)
    if move is None:  # the clock was set back since
        return _requeue_unless_stopped(job, flag, "handed_back", policy, now)
    ended = replace(
        _without_lease(move.job),
        state=State.CANCELLED if flag is Flag.CANCEL else move.job.state,
        halts_lane=move.job.halts_lane and flag is not Flag.CANCEL,
        settled_by=None,
        settled_token=None,
    )
    return replace(move, job=ended)


def _lost(
    job: Job, outcome: Lost | Crashed, policy: Policy, flag: Flag | None, now: datetime, jitter: float
) -> Move:
    event = "lost" if isinstance(outcome, Lost) else "crashed"
    external, has_site = policy.on_lost == "adopt", job.execution_site is not None
    # A fenced write records an execution's site before its start: without a site nothing was started, so there is
    # nothing to adopt and the job may simply run again. A crashed child has ended: nothing still runs.
    if external and has_site and isinstance(outcome, Lost):
        # It counts as no failure: only the watching worker is gone. The end of the execution counts when it is known.
        return _orphan(job, event, outcome.error)
    failures = job.failures + (1 if policy.count_lost and (has_site or not external) else 0)
    # A job that progressed since its last crash did not crash on the same input: start counting anew.
    crashes = 0 if outcome.progressed else job.crashes
    counted = replace(job, crashes=crashes + 1, failures=failures)
    if flag is Flag.CANCEL:
        return _leave_running(counted, State.CANCELLED, event, policy, now, error=outcome.error, before=job)
    left = counted.failures < policy.max_attempts and counted.crashes < policy.crash_limit(outcome.alone)
    if policy.on_lost == "fail" or not left:
        return _leave_running(counted, State.FAILED, event, policy, now, error=outcome.error, before=job)
    delay = 0.0 if counted.crashes == 1 else backoff_delay(policy, counted.crashes - 1, jitter)
    return _requeue_unless_stopped(
        counted, flag, event, policy, now, delay=delay, error=outcome.error, before=job
    )


def _breached(job: Job, outcome: Breached, policy: Policy, flag: Flag | None, now: datetime) -> Move:
    if flag is Flag.CANCEL:
        state = State.CANCELLED
    elif flag is Flag.FINISH or policy.on_breach != "pause":
        state = State.FAILED
    else:
        state = State.PAUSED
    return _leave_running(job, state, "breached", policy, now, error=outcome.error, reason=outcome.error)


def _requeue_unless_stopped(
    job: Job,
    flag: Flag | None,
    event: str,
    policy: Policy,
    now: datetime,
    *,
    delay: float = 0.0,
    reason: str | None = None,
    error: str | None = None,
    before: Job | None = None,
) -> Move:
    """Put the job back into the queue, unless a stop was requested. Without a delay it keeps its place."""
    if flag is Flag.PAUSE:
        return _leave_running(
            job, State.PAUSED, event, policy, now, reason=reason, error=error, before=before
        )
    if flag is not None:
        return _leave_running(
            job, State.CANCELLED, event, policy, now, reason=reason, error=error, before=before
        )
    # A job that has run was due: a due time in the future means that the clock was set back.
    due = now + timedelta(seconds=delay) if delay > 0 else min(job.available_at, now)
    move = _leave_running(job, State.QUEUED, event, policy, now, reason=reason, error=error, before=before)
    return replace(move, job=replace(move.job, available_at=due))


_GOES_ON = frozenset({State.QUEUED, State.WAITING, State.PAUSED})


def _without_queue(move: Move, policy: Policy, now: datetime) -> Move:
    """Fail the job where the table lets it go on: its task takes no queue, so no worker would claim it."""
    why = f"{move.detail or move.event}; its task takes no queue, so it cannot go on"
    failed = _leave_running(move.before, State.FAILED, move.event or "failed", policy, now, error=why)
    counted = replace(failed.job, failures=move.job.failures, crashes=move.job.crashes)
    kept = replace(counted, settled_by=move.job.settled_by, settled_token=move.job.settled_token)
    return replace(failed, job=kept)


def _leave_running(
    job: Job,
    state: State,
    event: str,
    policy: Policy,
    now: datetime,
    *,
    reason: str | None = None,
    error: str | None = None,
    before: Job | None = None,
) -> Move:
    bad = state in (State.FAILED, State.TIMED_OUT)
    # The reason of a stop (on the row since its request) stays after the settle that obeys it.
    stated = reason if reason is not None else (job.reason if job.stop_requested is not None else None)
    after = replace(
        _without_lease(job),
        state=state,
        finished_at=finish_time(state, now),
        halts_lane=bad and job.lane is not None and policy.on_failure == "halt",
        reason=clean_error(stated) if stated is not None else None,
        error=clean_error(error) if error is not None else job.error,
        available_at=min(job.available_at, now) if state is State.PAUSED else job.available_at,
    )
    detail = error if error is not None else reason
    return Move(before or job, after, event, job.worker, None if detail is None else clean_error(detail))


def _orphan(job: Job, event: str, detail: str | None) -> Move:
    """End the lease, not the attempt: flag, lane and slots are kept for the adopting worker."""
    after = replace(job, worker=None, lease_expires_at=None, settled_by=None, settled_token=None)
    return Move(job, after, event, job.worker, None if detail is None else clean_error(detail))


def _without_lease(job: Job) -> Job:
    """End the lease. Its token stays as the number of the last grant: nothing can match it, because the lease's row is
    gone. The site of the execution belongs to the attempt that has ended."""
    return replace(
        job,
        worker=None,
        lease_expires_at=None,
        stop_requested=None,
        settled_by=job.worker,
        settled_token=job.lease_token,
        execution_site=None,
        execution_name=None,
        execution_started_at=None,
    )


# -- expiry ------------------------------------------------------------------------------------------------------------


def time_is_over(job: Job, now: datetime) -> bool:
    return _past_deadline(job, now) or _past_start(job, now)


def expired(job: Job, now: datetime) -> Move | None:
    """Return the move that ends the job. None: it has time left."""
    if _past_deadline(job, now):
        after = replace(
            job,
            state=State.TIMED_OUT,
            finished_at=now,
            reason="the job's deadline has passed",
            held=False,
            halts_lane=_keeps_lane(job) and job.policy.on_failure == "halt",
        )
    elif _past_start(job, now):
        after = replace(
            job, state=State.CANCELLED, finished_at=now, reason="it was not started in time", held=False
        )
    else:
        return None
    return Move(job, after, "expired", detail=after.reason)


def granted_too_late(job: Job) -> bool:
    """Whether the job was granted after its time was over, and so never ran: the worker that claimed it died first."""
    if job.started_at is None or job.execution_site is not None:
        return False
    return time_is_over(before_grant(job), job.started_at)


def before_grant(job: Job) -> Job:
    """Return a running job as it was before a grant that was never used: the attempt's number is free again."""
    first = job.attempt == 1
    return replace(
        job,
        attempt=job.attempt - 1,
        started_at=None,
        first_started_at=None if first else job.first_started_at,
    )


def _keeps_lane(job: Job) -> bool:
    """Whether the job has started in its lane and still keeps it: after a skip, another job may run there."""
    return job.attempt > 0 and job.lane_at == STARTED


def _past_deadline(job: Job, now: datetime) -> bool:
    return job.deadline_at is not None and job.deadline_at <= now


def _past_start(job: Job, now: datetime) -> bool:
    return job.start_by is not None and job.start_by <= now and job.attempt == 0
