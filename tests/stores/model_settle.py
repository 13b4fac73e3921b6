"""The table of semantics.md §4 once more, as literal text, and what an ending does to the row."""

from __future__ import annotations

from datetime import datetime, timedelta

from leasehold.domain import outcome as o
from leasehold.domain.questions import QuestionAsked
from tests.stores.model_job import ModelJob

JITTER = 0.5
"""What the stores' random.random is made to say."""

FLAGS = (None, "finish", "pause", "cancel")
TABLE = {
    # how it ended: (no flag, finish, pause, cancel)
    "success": "succeeded succeeded succeeded succeeded",
    "failure, retries left": "queued cancelled paused cancelled",
    "failure, exhausted": "failed failed failed cancelled",
    "time-out, retries left": "queued timed_out timed_out cancelled",
    "time-out, exhausted": "timed_out timed_out timed_out cancelled",
    "deadline": "timed_out timed_out timed_out cancelled",
    "given back": "queued cancelled paused cancelled",
    "lost, fail": "failed failed failed cancelled",
    "orphan": "orphan orphan orphan orphan",
    "question": "waiting cancelled paused cancelled",
    "breach, fail": "failed failed failed cancelled",
    "breach, pause": "paused failed paused cancelled",
}


def end(job: ModelJob, outcome: o.Outcome, now: datetime) -> None:
    """End the run of a job whose lease is held by the caller."""
    flag, delay = job.stop_requested, 0.0
    left = True
    match outcome:
        case o.Success():
            how = "success"
            job.result = outcome.result
        case o.Failure() | o.AttemptTimedOut():
            job.failures += 1
            final = isinstance(outcome, o.Failure) and outcome.final
            left = job.failures < job.policy.max_attempts and not final
            how = "failure" if isinstance(outcome, o.Failure) else "time-out"
            how += ", retries left" if left else ", exhausted"
            delay = _backoff(job, job.failures)
        case o.DeadlinePassed():
            how = "deadline"
        case o.Stopped():
            how = "given back"
            if outcome.pause and flag != "cancel":
                flag = "pause"
        case o.HandedBack() | o.Snoozed():
            how, delay = "given back", outcome.delay
        case o.Detached():
            how = "given back" if job.execution_site is None else "orphan"
        case o.Lost() | o.Crashed():
            how, delay = _loss(job, outcome)
        case QuestionAsked():
            how = "question"
        case o.Breached():
            how = "breach, pause" if job.policy.on_breach == "pause" else "breach, fail"
    state = TABLE[how].split()[FLAGS.index(flag)]
    if state == "orphan":
        _make_orphan(job)
        return
    error = getattr(outcome, "error", None)
    job.error = None if how == "success" else error if error is not None else job.error
    _release_lease(job)
    if isinstance(outcome, o.Lost):
        # Not by its owner, who may come back and ask.
        del job.settlements[job.lease_token]
        job.settled_by = job.settled_token = None
    job.state = state
    ended = state in {"succeeded", "cancelled", "failed", "timed_out"}
    if not ended:
        job.settled_by = job.settled_token = None
    job.finished_at = now if ended else None
    bad = state in {"failed", "timed_out"}
    job.halts_lane = bad and job.lane is not None and job.policy.on_failure == "halt"
    if state == "queued" and delay > 0:
        job.available_at = now + timedelta(seconds=delay)


def _loss(job: ModelJob, outcome: o.Lost | o.Crashed) -> tuple[str, float]:
    external, placed = job.policy.on_lost == "adopt", job.execution_site is not None
    if isinstance(outcome, o.Lost) and external and placed:
        return "orphan", 0.0
    job.crashes = 1 if outcome.progressed else job.crashes + 1
    if job.policy.count_lost and (placed or not external):
        job.failures += 1
    most = job.policy.max_crashes
    if most is None:
        most = 3 if outcome.alone else 10
    if job.policy.on_lost == "fail":
        return "lost, fail", 0.0
    if job.failures >= job.policy.max_attempts or job.crashes >= most:
        return "failure, exhausted", 0.0
    return "given back", 0.0 if job.crashes == 1 else _backoff(job, job.crashes - 1)


def _backoff(job: ModelJob, tries: int) -> float:
    full = min(job.policy.max_delay, job.policy.backoff * 2.0 ** (tries - 1))
    return full * (0.5 + 0.5 * JITTER)


def _release_lease(job: ModelJob) -> None:
    assert job.worker is not None
    job.settlements[job.lease_token] = job.worker
    job.settled_by, job.settled_token = job.worker, job.lease_token
    job.worker = job.lease_expires_at = job.stop_requested = None
    job.execution_site = job.execution_name = job.execution_started_at = None


def _make_orphan(job: ModelJob) -> None:
    job.worker = job.lease_expires_at = None
    job.settled_by = job.settled_token = None
