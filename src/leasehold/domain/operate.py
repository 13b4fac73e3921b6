"""The operator's verbs, decided on the current row. Each returns the transition, or raises with the present state."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from leasehold.domain.errors import InvalidState
from leasehold.domain.job import Job
from leasehold.domain.lanes import STARTED
from leasehold.domain.outcome import Failure, Move, clean_error, finish_time
from leasehold.domain.settle import expired, settle
from leasehold.domain.states import Flag, State, Trigger, allowed, stronger


def _check(job: Job, trigger: Trigger) -> None:
    if not allowed(job.state, trigger):
        raise InvalidState(job.id, trigger.value, job.state.value)


def _check_goes_on(job: Job, verb: str, remedy: str) -> None:
    """Refuse if the task takes no queue: its job runs once, and no worker would claim it a second time."""
    if not job.policy.queueing:
        raise InvalidState(
            job.id,
            verb,
            job.state.value,
            f"its task has queueing off, so nothing would claim it again; {remedy}",
        )


def _reason(reason: str | None) -> str | None:
    return None if reason is None else clean_error(reason)


def cancel(job: Job, *, now: datetime, actor: str | None = None, reason: str | None = None) -> Move:
    """Cancel at once, or flag a running job: it keeps its token, because its worker has to stop the work."""
    _check(job, Trigger.CANCEL)
    if job.state is State.RUNNING:
        return _request_stop(job, Flag.CANCEL, "cancel_requested", actor, reason)
    after = replace(
        job,
        state=State.CANCELLED,
        finished_at=finish_time(State.CANCELLED, now),
        halts_lane=False,
        reason=_reason(reason),
        held=False,
    )
    return Move(job, after, "cancelled", actor, _reason(reason))


def pause(job: Job, *, now: datetime, actor: str | None = None, reason: str | None = None) -> Move:
    """Pause at once, or flag a running job. A pause ends a delay: only a snooze can delay a paused job."""
    _check(job, Trigger.PAUSE)
    _check_goes_on(job, "pause", "cancel it")
    if job.state is State.RUNNING:
        return _request_stop(job, Flag.PAUSE, "pause_requested", actor, reason)
    due = min(job.available_at, now)
    after = replace(job, state=State.PAUSED, reason=_reason(reason), held=False, available_at=due)
    return Move(job, after, "paused", actor, _reason(reason))


def interrupt(job: Job, *, now: datetime, actor: str | None = None, reason: str | None = None) -> Move:
    """Pause a running job, so that its progress is kept; cancel any other."""
    _check(job, Trigger.INTERRUPT)
    if job.state is not State.RUNNING:
        return cancel(job, now=now, actor=actor, reason=reason)
    _check_goes_on(job, "interrupt", "cancel it")
    return pause(job, now=now, actor=actor, reason=reason)


def finish(job: Job, *, now: datetime, actor: str | None = None, reason: str | None = None) -> Move:
    """Let a running job end without another try."""
    if job.state is not State.RUNNING:
        raise InvalidState(job.id, "finish", job.state.value)
    return _request_stop(job, Flag.FINISH, "finish_requested", actor, reason)


def resume(
    job: Job,
    *,
    now: datetime,
    actor: str | None = None,
    args: str | None = None,
    fresh: bool = False,
) -> Move:
    """Let the same job go on: failures and crashes return to 0, attempt and token continue, the place is
    kept. It is due now, unless it was snoozed while it was paused."""
    _check(job, Trigger.RESUME)
    _check_goes_on(job, "resume", "call app.run_now again")
    if job.state is State.RUNNING:
        if job.stop_requested is not Flag.PAUSE:
            raise InvalidState(job.id, "resume", job.state.value, "no pause was asked for")
        return Move(job, replace(job, stop_requested=None, reason=None), "pause_withdrawn", actor)
    due = job.available_at if job.state is State.PAUSED else min(job.available_at, now)
    # A lane that has gone on without this job does not give it the first place; a lane that it blocked does.
    passed = job.state is not State.PAUSED and not job.halts_lane
    place = None if job.lane is None else due if passed else min(job.lane_at or due, now)
    after = replace(
        job,
        state=State.PENDING if job.unmet else State.QUEUED,
        reason=None,
        failures=0,
        crashes=0,
        finished_at=None,
        settled_by=None,
        settled_token=None,
        halts_lane=False,
        available_at=due,
        lane_at=place,
        args=job.args if args is None else args,
    )
    return Move(job, after, "resumed", actor, "from the start" if fresh else None)


def skip(job: Job, *, now: datetime, actor: str | None = None, reason: str | None = None) -> Move:
    """Keep the failure on record, and let the lane go on."""
    _check(job, Trigger.SKIP)
    return Move(job, replace(job, halts_lane=False), "skipped", actor, _reason(reason))


def snooze(
    job: Job, until: datetime, *, now: datetime, actor: str | None = None, reason: str | None = None
) -> Move:
    """Set when the job is due. A time that has passed means now: a job that was due already keeps its turn."""
    _check(job, Trigger.SNOOZE)
    due = until if until > now else min(job.available_at, now)
    # The job keeps its place in the lane, and the lane waits. A place later than the due time has to move forward.
    place = None if job.lane_at is None else min(job.lane_at, max(until, now))
    detail = f"until {until.isoformat(timespec='seconds')}" + ("" if reason is None else f": {reason}")
    return Move(job, replace(job, available_at=due, lane_at=place), "snoozed", actor, clean_error(detail))


def release(job: Job, *, now: datetime, actor: str | None = None) -> Move:
    """Lift the hold. A job that still waits for others stays pending until they are done."""
    _check(job, Trigger.RELEASE)
    if not job.held:
        raise InvalidState(job.id, "release", job.state.value, f"it waits for {job.unmet} unfinished job(s)")
    after = replace(job, held=False)
    if not job.unmet:
        due = max(job.available_at, now)
        after = replace(
            after, state=State.QUEUED, available_at=due, lane_at=None if job.lane is None else due
        )
    return Move(job, after, "released", actor)


def expire(job: Job, *, now: datetime) -> Move:
    """End a job that is not running and whose time is over: not started in time, or past its deadline."""
    _check(job, Trigger.EXPIRE)
    move = expired(job, now)
    if move is None:
        raise InvalidState(job.id, "expire", job.state.value, "its time is not over")
    return move


def answer(job: Job, key: str, *, now: datetime, actor: str | None = None, still_asks: bool = False) -> Move:
    """Make a waiting job due at once, in its old place, unless it waits for other answers too; a paused job keeps the
    answer for its resume."""
    _check(job, Trigger.ANSWER)
    if job.state is State.PAUSED or still_asks:
        return Move(job, job, "answered", actor, key)
    after = replace(job, state=State.QUEUED, reason=None, available_at=min(job.available_at, now))
    return Move(job, after, "answered", actor, key)


def expire_question(job: Job, key: str, *, now: datetime, still_asks: bool = False) -> Move:
    """Expire a question. A job that waits for it alone goes on, and its `ctx.ask` raises; any other job stays where it
    is, and its `ctx.ask` raises when it asks again."""
    detail = f"question {key!r} was not answered in time"
    if job.state is not State.WAITING or still_asks:
        return Move(job, job, "question_expired", None, detail)
    after = replace(job, state=State.QUEUED, reason=None, available_at=min(job.available_at, now))
    return Move(job, after, "question_expired", None, detail)


def abandon(job: Job, *, now: datetime, actor: str | None = None, reason: str | None = None) -> Move:
    """Give up an execution whose machine is gone: the job is settled as if the execution had vanished."""
    if not job.orphan:
        remedy = "only an execution that no worker watches can be abandoned"
        if job.state is State.RUNNING:
            remedy += "; cancel the job"
        raise InvalidState(job.id, "abandon", job.state.value, remedy)
    text = f"its execution at {job.execution_site} was given up" + ("" if reason is None else f": {reason}")
    move = settle(job, Failure(text), job.policy, now=now)
    return replace(move, event="abandoned", actor=actor)


def check_retry(job: Job) -> None:
    """Check whether a new job like this one may be enqueued."""
    if not allowed(job.state, Trigger.RETRY):
        raise InvalidState(
            job.id, "retry", job.state.value, "only a job that has ended or is paused can be retried"
        )
    _check_goes_on(job, "retry", "call app.run_now again")


def claim(job: Job, *, worker: str, now: datetime) -> Move:
    """Claim one job by its id. The set-based claim statements write the same values."""
    after = replace(
        job,
        state=State.RUNNING,
        reason=None,
        worker=worker,
        lease_token=job.lease_token + 1,
        lease_expires_at=now + timedelta(seconds=job.lease_seconds),
        attempt=job.attempt + 1,
        started_at=now,
        first_started_at=job.first_started_at or now,
        lane_at=STARTED if job.lane is not None else None,
    )
    return Move(job, after, None, worker)


def refuse_start(job: Job, why: str, *, worker: str, now: datetime) -> Move:
    """Fail a job that cannot be claimed, because the database refuses its row."""
    _check(job, Trigger.CLAIM)
    after = replace(
        job,
        state=State.FAILED,
        finished_at=finish_time(State.FAILED, now),
        halts_lane=job.lane is not None and job.policy.on_failure == "halt",
        error=clean_error(why),
        reason=None,
        settled_by=None,
        settled_token=None,
    )
    return Move(job, after, "failed", worker, clean_error(why))


def adopt(job: Job, *, worker: str, now: datetime) -> Move:
    """Adopt an orphan. The attempt stays: it names the execution that may still run."""
    after = replace(
        job,
        worker=worker,
        lease_token=job.lease_token + 1,
        lease_expires_at=now + timedelta(seconds=job.lease_seconds),
    )
    return Move(job, after, "adopted", worker, job.execution_name)


def _request_stop(job: Job, flag: Flag, event: str, actor: str | None, reason: str | None) -> Move:
    wanted = stronger(job.stop_requested, flag)
    if wanted is not flag:
        # A weaker request changes nothing, not even the reason that the stronger one gave.
        return Move(job, job, event, actor, _reason(reason))
    return Move(job, replace(job, stop_requested=flag, reason=_reason(reason)), event, actor, _reason(reason))
