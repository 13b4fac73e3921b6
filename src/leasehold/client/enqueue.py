"""Stores new jobs and returns their handles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from leasehold.client.enqueue_span import EnqueueSpan
from leasehold.client.job import FindTask, Job
from leasehold.client.stored_jobs import StoredJobs
from leasehold.domain.batch import check_size
from leasehold.domain.errors import PartlyStored
from leasehold.domain.job import NewJob
from leasehold.domain.tracing import Tracing
from leasehold.operations.local import EnqueuedJob
from leasehold.operations.operations import Operations


class Enqueuer:
    """Stores the jobs of one store. `start` runs a job at once, in this process, unless too many run already.
    `find_other` returns the one of a tenant, or of the app's own store. `tracing` returns the tracer, if there is
    one."""

    def __init__(
        self,
        operations: Operations,
        find_task: FindTask,
        start: Callable[[NewJob, int], EnqueuedJob],
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
        """Store them once per key; also return whether this was a repeat."""
        check_size(len(jobs), "enqueue", "enqueue them in parts")
        with EnqueueSpan(self._tracing(), jobs) as span:
            once = self._operations.enqueue_once(span.jobs, key, fingerprint)
            span.stored(once.jobs)
        operations, find = self._operations, self._find_task
        made = [Job[Any](one.id, operations, find, created=one.created) for one in once.jobs]
        return made, once.repeated

    def enqueue_within(self, tx: Any, pieces: Iterable[Sequence[NewJob]]) -> StoredJobs:
        """Store them in the caller's transaction, one for all pieces. An error in a later piece is raised as it is,
        because nothing is stored before the commit."""
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
