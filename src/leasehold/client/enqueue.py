"""Enqueuer: stores new jobs, in a trace span, and returns their handles, few bytes each."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, overload

from leasehold.client.job import FindTask, Job
from leasehold.domain.errors import PartlyStored
from leasehold.domain.job import AlikeJobs, Enqueued, NewJob, check_size, with_trace
from leasehold.domain.tracing import TracedEnqueue, Tracing
from leasehold.operations.operations import Operations


class Enqueuer:
    """Stores the jobs of one store. `start` runs a job at once, in this process, unless too many run already.
    `find_other` returns the enqueuer of a tenant, or of the app's own store. `tracing` returns the tracer, if there is
    one."""

    def __init__(
        self,
        operations: Operations,
        find_task: FindTask,
        start: Callable[[NewJob, int], Enqueued],
        tenant: str | None,
        find_other: Callable[[str | None], Enqueuer],
        tracing: Callable[[], Tracing | None] = lambda: None,
    ) -> None:
        self._operations = operations
        self._find_task = find_task
        self._start = start
        self.tenant = tenant
        self._find_other = find_other
        self._tracing = tracing

    def of_tenant(self, name: str | None) -> Enqueuer:
        return self if name == self.tenant else self._find_other(name)

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Job[Any]]:
        """Store all jobs or none; return them in the order given."""
        check_size(len(jobs), "enqueue", "enqueue them in parts; give after= the jobs of an earlier part")
        operations, find = self._operations, self._find_task
        with EnqueueSpan(self._tracing(), jobs) as span:
            made = operations.enqueue(span.jobs)
            span.stored(made)
        return [Job(one.id, operations, find, created=one.created) for one in made]

    def enqueue_once(self, jobs: Sequence[NewJob], key: str, fingerprint: str) -> tuple[list[Job[Any]], bool]:
        """Store the jobs once per key; also return whether this was a repeat."""
        check_size(len(jobs), "enqueue", "enqueue them in parts")
        with EnqueueSpan(self._tracing(), jobs) as span:
            once = self._operations.enqueue_once(span.jobs, key, fingerprint)
            span.stored(once.jobs)
        operations, find = self._operations, self._find_task
        made = [Job[Any](one.id, operations, find, created=one.created) for one in once.jobs]
        return made, once.repeated

    def enqueue_within(self, tx: Any, pieces: Iterable[Sequence[NewJob]]) -> StoredJobs:
        """Store all pieces in the caller's transaction. An error in a later piece does not become PartlyStored, because
        nothing is stored before the commit."""
        made = StoredJobs(self._operations, self._find_task)
        for jobs in pieces:
            with EnqueueSpan(self._tracing(), jobs) as span:
                stored = self._operations.enqueue_within(tx, span.jobs)
                span.stored(stored)
            made.add(stored)
        return made

    async def aenqueue_within(self, tx: Any, pieces: Iterable[Sequence[NewJob]]) -> StoredJobs:
        made = StoredJobs(self._operations, self._find_task)
        for jobs in pieces:
            with EnqueueSpan(self._tracing(), jobs) as span:
                stored = await self._operations.aenqueue_within(tx, span.jobs)
                span.stored(stored)
            made.add(stored)
        return made

    def enqueue_pieces(self, pieces: Iterable[Sequence[NewJob]]) -> StoredJobs:
        """Store piece by piece, each all or none. Raises PartlyStored for an error after the first piece."""
        made = StoredJobs(self._operations, self._find_task)
        try:
            for jobs in pieces:
                with EnqueueSpan(self._tracing(), jobs) as span:
                    stored = self._operations.enqueue(span.jobs)
                    span.stored(stored)
                made.add(stored)
                del jobs, span, stored  # free the memory before the next piece is made
        except Exception as error:
            if not made:
                raise
            raise PartlyStored(len(made), made.ids, f"{type(error).__name__}: {error}") from error
        return made

    def run_now(self, job: NewJob, max_running: int) -> Job[Any]:
        with EnqueueSpan(self._tracing(), [job]) as span:
            made = self._start(span.jobs[0], max_running)
            span.stored([made])
        return Job(made.id, self._operations, self._find_task, created=made.created)

    def traced(self, job: NewJob) -> NewJob:
        """Return the job with the caller's trace, if there is one; another transaction will store it."""
        with EnqueueSpan(self._tracing(), [job], later=True) as span:
            return span.jobs[0]


# -- the trace span of an enqueue --------------------------------------------------------------------------------------


class EnqueueSpan:
    """The trace span around the store's call. Without a tracer it does nothing, and `jobs` are the given jobs."""

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

    def stored(self, made: Sequence[Enqueued]) -> None:
        """Record the id of a single job: it may be an existing job that holds the same unique key."""
        if self._span is not None and len(made) == 1:
            self._traced.job_id = made[0].id

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is not None:
            self._span.__exit__(kind, error, trace)


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


# -- the handles of many jobs ------------------------------------------------------------------------------------------

_SIZE = 16
"""Bytes of an id."""


class JobIds(Sequence[str]):
    """Ids of jobs, 16 bytes each."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def __repr__(self) -> str:
        return f"<{len(self):,} ids>"

    def __len__(self) -> int:
        return len(self._bytes) // _SIZE

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        start = range(len(self))[index] * _SIZE
        return str(uuid.UUID(bytes=bytes(self._bytes[start : start + _SIZE])))

    def add(self, ids: Sequence[str]) -> None:
        self._bytes += bytes.fromhex("".join(ids).replace("-", ""))


class StoredJobs(Sequence[Job[Any]]):
    """The handles that `enqueue_many` returns: one per job, in the order of the calls, made when it is read."""

    def __init__(self, operations: Operations, find_task: FindTask) -> None:
        self.ids = JobIds()
        self._created = bytearray()
        """1 for a job that was created, 0 for one that existed already."""
        self._operations = operations
        self._find_task = find_task

    def __repr__(self) -> str:
        return f"<{len(self):,} jobs>"

    def __len__(self) -> int:
        return len(self._created)

    @overload
    def __getitem__(self, index: int) -> Job[Any]: ...

    @overload
    def __getitem__(self, index: slice) -> list[Job[Any]]: ...

    def __getitem__(self, index: int | slice) -> Job[Any] | list[Job[Any]]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        created = bool(self._created[index])
        return Job(self.ids[index], self._operations, self._find_task, created=created)

    def add(self, made: Sequence[Enqueued]) -> None:
        self.ids.add([one.id for one in made])
        self._created += bytes(one.created for one in made)
