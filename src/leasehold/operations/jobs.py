"""The verbs on one job, and the reads of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from leasehold.domain.bulk import RESUMABLE
from leasehold.domain.checks.payload import encode
from leasehold.domain.checks.texts import checked_criterion, storable_name
from leasehold.domain.job import Job
from leasehold.domain.records import (
    AttemptRecord,
    Filter,
    HistoryEntry,
    Hold,
    Page,
    Relation,
    Relative,
    StepRecord,
)
from leasehold.domain.states import LIVE, State
from leasehold.domain.stream import LogTail, Progress, UpdatePage
from leasehold.operations.arguments import (
    Actor,
    Args,
    AttemptNumber,
    Cursor,
    DueTime,
    Fresh,
    JobId,
    Limit,
    Named,
    NewId,
    Reason,
    Since,
    States,
)
from leasehold.operations.explain import explain as explain_job
from leasehold.operations.verb import Backend, notify_stop, notify_workers, read, verb

_LIVE = tuple(state for state in State if state in LIVE)
_UNSUCCESSFUL = (State.FAILED, State.TIMED_OUT)
_NOT_NEEDED = {"reason": "not needed any more"}


@verb(
    "job.cancel",
    scope="operate",
    guard="job",
    http="POST /v1/jobs/{id}/cancel",
    after=notify_stop,
    bulk=(*_LIVE, State.PAUSED),
    destructive=True,
    examples=_NOT_NEEDED,
)
def cancel(backend: Backend, job_id: JobId, *, reason: Reason = None, actor: Actor = None) -> Job:
    """Cancel a job. A running job stops as soon as its worker gets the request."""
    return backend.store.cancel(job_id, actor, reason)


@verb(
    "job.pause",
    scope="operate",
    guard="job",
    http="POST /v1/jobs/{id}/pause",
    after=notify_stop,
    bulk=_LIVE,
    examples=_NOT_NEEDED,
)
def pause(backend: Backend, job_id: JobId, *, reason: Reason = None, actor: Actor = None) -> Job:
    """Pause a job. A running job stops as soon as its worker gets the request."""
    return backend.store.pause(job_id, actor, reason)


@verb(
    "job.interrupt",
    scope="operate",
    guard="job",
    http="POST /v1/jobs/{id}/interrupt",
    after=notify_stop,
    bulk=(*_LIVE, State.PAUSED),
    destructive=True,
    examples=_NOT_NEEDED,
)
def interrupt(backend: Backend, job_id: JobId, *, reason: Reason = None, actor: Actor = None) -> Job:
    """Pause a job that runs, or cancel one that does not."""
    return backend.store.interrupt(job_id, actor, reason)


def _encoded(backend: Backend, given: Mapping[str, Any]) -> str | None:
    """Encode new arguments; check them by the task's signature if this process knows the task."""
    args = given["args"]
    if args is None:
        return None
    name = backend.store.get(given["job_id"]).task
    known = backend.find_task(name)
    return encode(args, name) if known is None else known.encode_arguments(args)


@verb(
    "job.resume",
    scope="operate",
    guard="job",
    http="POST /v1/jobs/{id}/resume",
    after=notify_workers,
    rules=_encoded,
    bulk=RESUMABLE,
    examples={"fresh": True},
)
def resume(
    backend: Backend, job_id: JobId, *, args: Args = None, fresh: Fresh = False, actor: Actor = None
) -> Job:
    """Resume a paused, failed or timed-out job."""
    return backend.store.resume(job_id, actor, _encoded(backend, {"job_id": job_id, "args": args}), fresh)


@verb(
    "job.retry",
    scope="operate",
    guard="job",
    http="POST /v1/jobs/{id}/retry",
    status=201,
    after=notify_workers,
    audit=lambda given: {"job": given["new_id"]},
    bulk=_UNSUCCESSFUL,
)
def retry(backend: Backend, job_id: JobId, *, new_id: NewId = "", actor: Actor = None) -> Job:
    """Enqueue a new job like this one; this job stays unchanged."""
    return backend.store.retry(job_id, new_id, actor)


@verb(
    "job.skip",
    scope="operate",
    guard="job",
    http="POST /v1/jobs/{id}/skip",
    after=notify_workers,
    bulk=_UNSUCCESSFUL,
    examples=_NOT_NEEDED,
)
def skip(backend: Backend, job_id: JobId, *, reason: Reason = None, actor: Actor = None) -> Job:
    """Leave a failed job as it is, and let its lane continue."""
    return backend.store.skip(job_id, actor, reason)


@verb(
    "job.snooze",
    scope="operate",
    guard="job",
    http="POST /v1/jobs/{id}/snooze",
    after=notify_workers,
    bulk=(State.PENDING, State.QUEUED, State.PAUSED),
    examples={"until": "2026-11-19T09:00:00Z", "reason": "the vendor is closed"},
)
def snooze(
    backend: Backend, job_id: JobId, *, until: DueTime, reason: Reason = None, actor: Actor = None
) -> Job:
    """Set when a pending, queued or paused job is due. It keeps its place in its lane, which waits for it."""
    return backend.store.snooze(job_id, until, actor, reason)


@verb(
    "job.release",
    scope="operate",
    guard="job",
    http="POST /v1/jobs/{id}/release",
    after=notify_workers,
    bulk=(State.PENDING,),
)
def release(backend: Backend, job_id: JobId, *, actor: Actor = None) -> Job:
    """Release a job that was enqueued on hold."""
    return backend.store.release(job_id, actor)


@verb(
    "job.abandon",
    scope="admin",
    guard="job",
    http="POST /v1/jobs/{id}/abandon",
    after=notify_workers,
    destructive=True,
    examples=_NOT_NEEDED,
)
def abandon(backend: Backend, job_id: JobId, *, reason: Reason = None, actor: Actor = None) -> Job:
    """Give up on an execution without a worker, whose machine is gone for good. If it still runs, the next attempt runs
    beside it."""
    return backend.store.abandon(job_id, actor, reason)


# -- reads of one job --------------------------------------------------------------------------------------------------
@read("job.get", guard="job", http="GET /v1/jobs/{id:leasehold_id}")
def get(backend: Backend, job_id: JobId) -> Job:
    """Show a job as it is now."""
    return backend.store.get(job_id)


@read("job.explain", guard="job", http="GET /v1/jobs/{id}/explain")
def explain(backend: Backend, job_id: JobId) -> list[Hold]:
    """Explain why a job is not running: every cause in order, with what would change it."""
    return explain_job(backend.store, job_id)


@read("history.list", guard="job", http="GET /v1/jobs/{id}/history")
def history(backend: Backend, job_id: JobId) -> list[HistoryEntry]:
    """List a job's moves between states, oldest first."""
    backend.store.get(job_id)
    return backend.store.history(job_id)


@read("attempts.list", guard="job", http="GET /v1/jobs/{id}/attempts")
def attempts(backend: Backend, job_id: JobId) -> list[AttemptRecord]:
    """List a job's attempts, oldest first."""
    backend.store.get(job_id)
    return backend.store.attempts(job_id)


@read("steps.list", guard="job", http="GET /v1/jobs/{id}/steps")
def steps(backend: Backend, job_id: JobId) -> list[StepRecord]:
    """List what a job's steps returned, oldest first."""
    backend.store.get(job_id)
    return backend.store.steps(job_id)


@read("relatives.list", guard="job", http="GET /v1/jobs/{id}/relatives")
def relatives(backend: Backend, job_id: JobId, limit: Limit = 500) -> list[Relative]:
    """List the jobs that a job waits for or follows, and the reverse."""
    return backend.store.relatives(job_id, limit)


@read("relatives.count", guard="job")
def count_relatives(backend: Backend, job_id: JobId) -> dict[Relation, int]:
    """Count a job's relatives by relation."""
    return backend.store.count_relatives(job_id)


@read("updates.list", guard="job", http="GET /v1/jobs/{id}/updates")
def read_stream(backend: Backend, job_id: JobId, since: Since = 0, limit: Limit = 500) -> UpdatePage:
    """List the updates of a job after a number, oldest first."""
    return backend.store.read_stream(job_id, since, limit)


@read("log.read", guard="job", http="GET /v1/jobs/{id}/log")
def read_log(backend: Backend, job_id: JobId, attempt: AttemptNumber = 0) -> LogTail:
    """Show the last lines that an attempt logged."""
    tails = backend.store.logs(job_id)
    wanted = [tail for tail in tails if not attempt or tail.attempt == attempt]
    return wanted[-1] if wanted else LogTail(attempt, "")


@read("logs.list", guard="job")
def logs(backend: Backend, job_id: JobId) -> list[LogTail]:
    """List the last lines of each attempt that logged."""
    return backend.store.logs(job_id)


@read("progress.read", guard="job", http="GET /v1/jobs/{id}/progress")
def progress(backend: Backend, job_id: JobId) -> Progress | None:
    """Show the progress that a job last reported."""
    return backend.store.progress(job_id)


# -- reads of many jobs ------------------------------------------------------------------------------------------------
@read("jobs.list", guard="rows", http="GET /v1/jobs")
def list_jobs(
    backend: Backend,
    *,
    state: States = [],  # noqa: B006 - never changed
    queue: Named = None,
    task: Named = None,
    lane: Named = None,
    group: Named = None,
    tag: Named = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page:
    """List jobs that match all filters given, one page, newest first."""
    filter = storable_filter(Filter(tuple(state), queue, task, lane, group, tag))
    return backend.store.list_jobs(filter, limit, cursor)


@read("jobs.count", guard="all queues", http="GET /v1/count")
def count(backend: Backend) -> dict[State, int]:
    """Count jobs by state, each up to 10,000."""
    return backend.store.count()


def storable_filter(filter: Filter) -> Filter:
    """Check a filter; return it with its names in the form in which they are stored."""
    for name in ("queue", "task", "lane", "group", "tag"):
        checked_criterion(getattr(filter, name), name)
    lane = filter.lane and storable_name(filter.lane, "lane")
    tag = filter.tag and storable_name(filter.tag, "tag")
    return replace(filter, lane=lane, tag=tag)
