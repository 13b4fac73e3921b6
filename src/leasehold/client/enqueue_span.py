"""Wraps an enqueue in a tracing span."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from leasehold.domain.batch import AlikeJobs, with_trace
from leasehold.domain.job import NewJob
from leasehold.domain.tracing import TracedEnqueue, Tracing
from leasehold.operations.local import EnqueuedJob


class EnqueueSpan:
    """The block around the store's call. Without a tracer it does nothing, and `jobs` are those given."""

    __slots__ = ("_span", "_traced", "jobs")

    def __init__(self, tracing: Tracing | None, jobs: Sequence[NewJob], later: bool = False) -> None:
        self.jobs = jobs
        """The jobs to store, with the trace."""
        self._span: AbstractContextManager[str | None] | None = None
        if tracing is not None and jobs:
            self._traced = _described(jobs, later)
            self._span = tracing.enqueueing(self._traced)

    def __enter__(self) -> Self:
        if self._span is not None:
            trace = self._span.__enter__()
            if trace is not None:
                self.jobs = with_trace(self.jobs, trace)
        return self

    def stored(self, made: Sequence[EnqueuedJob]) -> None:
        """Record the id of a single job: it may be an existing job that holds the same unique key."""
        if self._span is not None and len(made) == 1:
            self._traced.job_id = made[0].id

    def __exit__(
        self, task: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is not None:
            self._span.__exit__(task, error, trace)


def _described(jobs: Sequence[NewJob], later: bool) -> TracedEnqueue:
    """Describe the enqueue; of `AlikeJobs` only the first has to be read."""
    known = [jobs.first] if isinstance(jobs, AlikeJobs) else jobs
    queues, tasks = {job.queue for job in known}, {job.task for job in known}
    return TracedEnqueue(
        queue=queues.pop() if len(queues) == 1 else None,
        task=tasks.pop() if len(tasks) == 1 else None,
        count=len(jobs),
        job_id=known[0].id if len(jobs) == 1 else None,
        later=later,
    )
