"""Logging: the life of jobs, the queues of a worker, and handlers' records with job fields and copies in log tails.

Each line carries job, task, attempt, queue and, unless it was lost, lease as fields. For a level that is off nothing is
formatted: a worker ends thousands of jobs a second.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from leasehold.domain.hooks import WEBHOOK_TASK
from leasehold.domain.job import Grant, Job
from leasehold.domain.outcome import Outcome, Snoozed, Success
from leasehold.domain.records import Reaped
from leasehold.domain.states import State
from leasehold.run.attempt import Attempt
from leasehold.run.state import StreamWriter, current_run
from leasehold.tasks.definition import TaskDefinition
from leasehold.worker.settings import WorkerSettings

jobs_logger = logging.getLogger("leasehold.jobs")

_STATE_TEXT = {State.FAILED: "failed", State.TIMED_OUT: "timed out"}


def fields_of(job: Grant | Reaped) -> dict[str, Any]:
    details = {"job": job.id, "task": job.task, "attempt": job.attempt, "queue": job.queue}
    if isinstance(job, Grant):
        details["lease"] = job.token
    return details


def log_job(level: int, job: Grant | Reaped, text: str, *values: object) -> None:
    if jobs_logger.isEnabledFor(level):
        jobs_logger.log(level, f"job %s (%s): {text}", job.id, job.task, *values, extra=fields_of(job))


def log_starts(grants: Sequence[Grant]) -> None:
    if jobs_logger.isEnabledFor(logging.DEBUG):
        for grant in grants:
            log_job(logging.DEBUG, grant, "attempt %d starts", grant.attempt)


def log_ends(
    batch: Sequence[tuple[Attempt, Outcome]], decided: Mapping[str, Job], fenced: Container[Attempt]
) -> None:
    """Log the endings that the database accepted. `decided`: the current rows of jobs that did not plainly succeed."""
    if not decided and not jobs_logger.isEnabledFor(logging.INFO):
        return
    for attempt, outcome in batch:
        job = decided.get(attempt.grant.id)
        if attempt in fenced:
            continue
        if job is not None and job.state is not State.SUCCEEDED:
            _log_decided(attempt.grant, outcome, job)
        elif type(outcome) is Success:
            log_success(attempt)
        else:
            # An earlier try was stored, but its reply was lost.
            log_job(logging.INFO, attempt.grant, "attempt %d has ended", attempt.grant.attempt)


def log_success(attempt: Attempt) -> None:
    took = time.monotonic() - attempt.started_at
    log_job(logging.INFO, attempt.grant, "attempt %d succeeded after %.3f s", attempt.grant.attempt, took)


def _log_decided(grant: Grant, outcome: Outcome, job: Job) -> None:
    error = getattr(outcome, "error", None)
    why = job.reason or (error and (job.error or "").partition("\n")[0]) or ""
    details = f": {why}" if why else ""
    if job.state in _STATE_TEXT:
        ended = _STATE_TEXT[job.state]
        log_job(logging.ERROR, grant, "attempt %d %s: %s", grant.attempt, ended, job.error or job.reason)
    elif job.state is State.QUEUED:
        ended = "snoozed" if isinstance(outcome, Snoozed) else "failed" if error else "was given back"
        level = logging.WARNING if error else logging.INFO
        log_job(
            level,
            grant,
            "attempt %d %s, next try %s%s",
            grant.attempt,
            ended,
            _when(job.available_at),
            details,
        )
    elif job.orphan:
        log_job(logging.INFO, grant, "attempt %d lives on without this worker%s", grant.attempt, details)
    else:
        ended = "was cancelled" if job.state is State.CANCELLED else f"is {job.state.value}"
        log_job(logging.INFO, grant, "attempt %d %s%s", grant.attempt, ended, details)


def log_loss(lost: Reaped) -> None:
    now = "no worker; its execution may still run" if lost.orphan else lost.state.value
    text = "attempt %d was lost with its worker %s; now %s"
    log_job(logging.WARNING, lost, text, lost.attempt, lost.worker, now)


def _when(due: datetime) -> str:
    return "at once" if due <= datetime.now(UTC) else f"at {due.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


# -- what a worker serves ----------------------------------------------------------------------------------------------

worker_logger = logging.getLogger("leasehold.worker")


def log_queues(settings: WorkerSettings, tasks: Mapping[str, TaskDefinition]) -> None:
    """Log the queues. A worker of the default queue whose tasks all use others was most likely started without
    `--queues`: its jobs would wait, and nothing else would say why. Explicit queues may be for `using(queue=…)`."""
    used = {task.settings.queue for name, task in tasks.items() if name != WEBHOOK_TASK}
    left = ",".join(sorted(used.difference(settings.queues))) if settings.claims else ""
    serves = ", ".join(settings.queues) or "what it is handed"
    whose = f" of {', '.join(settings.tenants)}" if settings.tenants else ""
    but = f"; its tasks also use {left}" if left else ""
    worker_logger.info("worker %s serves %s%s%s", settings.name, serves, whose, but)
    if left and settings.queues == ("default",) and "default" not in used:
        worker_logger.warning(
            "none of its tasks uses queue default; start it with --queues %s, or app.worker(queues=%r)",
            left,
            left,
        )


# -- fields of handlers' records ---------------------------------------------------------------------------------------


class RunRecord(logging.LogRecord):
    """Adds the job's fields when the record is formatted, and only those whose names are free: `logging` refuses a call
    with `extra={"job": …}` if the record already has a `job`, and the handler's own fields win."""

    def getMessage(self) -> str:
        attempt = current_run.get()
        if attempt is not None:
            grant, fields = attempt.grant, self.__dict__
            fields.setdefault("job", grant.id)
            fields.setdefault("task", grant.task)
            fields.setdefault("attempt", grant.attempt)
            fields.setdefault("queue", grant.queue)
            fields.setdefault("lease", grant.token)
        return super().getMessage()


class LogFields:
    """Adds job fields to handlers' records while a worker lives. The previous factory still makes the records."""

    def start(self) -> None:
        global _workers, _before
        with _lock:
            _workers += 1
            if _before is None:
                _before = logging.getLogRecordFactory()
                logging.setLogRecordFactory(_make)

    def stop(self) -> None:
        """Stop, but leave our factory if another one was installed on top of it: that one still calls it."""
        global _workers, _before
        with _lock:
            _workers -= 1
            if not _workers and _before is not None and logging.getLogRecordFactory() is _make:
                logging.setLogRecordFactory(_before)
                _before = None


def _make(*args: Any, **kwargs: Any) -> logging.LogRecord:
    record = (_before or logging.LogRecord)(*args, **kwargs)
    if current_run.get() is not None and type(record) is logging.LogRecord:
        record.__class__ = RunRecord
    return record


_lock = threading.Lock()
_workers = 0
_before: Any = None
"""The factory before ours; None: ours is not installed."""

# -- copies to a job's log tail ----------------------------------------------------------------------------------------


class LogCapture(logging.Handler):
    """A handler on the root logger while a worker lives: it keeps whatever the root logger's level lets through."""

    def __init__(self, updates: StreamWriter) -> None:
        super().__init__()
        self._updates = updates
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def start(self) -> None:
        logging.getLogger().addHandler(self)

    def stop(self) -> None:
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._stand_in(record)
        attempt = current_run.get()
        # Another worker in this process has its own handler; our own records are about the job, not from it.
        if attempt is None or attempt.writer is not self._updates or record.name.startswith("leasehold."):
            return
        try:
            attempt.log_line(self.format(record))
        except Exception:
            self.handleError(record)

    def _stand_in(self, record: logging.LogRecord) -> None:
        """Without logging set up, Python prints warnings to stderr; our handler must not silence them."""
        root, last_resort = logging.getLogger().handlers, logging.lastResort
        if last_resort is None or record.levelno < last_resort.level:
            return
        if root[:1] != [self] or not all(isinstance(handler, LogCapture) for handler in root):
            return  # another handler prints it, or another worker's capture does this
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None and logger.parent is not None:
            if logger.handlers:
                return
            logger = logger.parent
        last_resort.handle(record)
