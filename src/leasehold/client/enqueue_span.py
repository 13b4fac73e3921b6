"""An enqueue while it is under way, told to who traces it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from leasehold.domain.batch import AlikeJobs, with_trace
from leasehold.domain.job import NewJob
from leasehold.domain.tracing import TracedEnqueue, Tracing
from leasehold.operations.local import Made


class EnqueueSpan:
    """A block around the store's part. Where nobody traces, `jobs` are as they were given, and the rest is nothing."""

    __slots__ = ("_reported", "_span", "jobs")

    def __init__(self, tracing: Tracing | None, jobs: Sequence[NewJob], later: bool = False) -> None:
        self.jobs = jobs
        """What is to be stored."""
        self._span: AbstractContextManager[str | None] | None = None
        if tracing is not None and jobs:
            self._reported = _reported(jobs, later)
            self._span = tracing.enqueueing(self._reported)

    def __enter__(self) -> Self:
        if self._span is not None:
            trace = self._span.__enter__()
            if trace is not None:
                self.jobs = with_trace(self.jobs, trace)
        return self

    def stored(self, made: Sequence[Made]) -> None:
        """A single one may be another than was asked for: the one that held its key."""
        if self._span is not None and len(made) == 1:
            self._reported.job_id = made[0].id

    def __exit__(
        self, task: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is not None:
            self._span.__exit__(task, error, trace)


def _reported(jobs: Sequence[NewJob], later: bool) -> TracedEnqueue:
    """Of jobs that are alike the first speaks for all."""
    known = [jobs.first] if isinstance(jobs, AlikeJobs) else jobs
    queues, tasks = {job.queue for job in known}, {job.task for job in known}
    return TracedEnqueue(
        queue=queues.pop() if len(queues) == 1 else None,
        task=tasks.pop() if len(tasks) == 1 else None,
        count=len(jobs),
        job_id=known[0].id if len(jobs) == 1 else None,
        later=later,
    )
