"""From jobs that shall be stored to handles of those that are."""

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
from leasehold.operations.local import Made
from leasehold.operations.operations import Operations


class Enqueue:
    """`start` runs a job at once, in this process, unless too many run already. `find_other` knows the same for a
    tenant, or for the app's own store. `tracing`: who is told of it, if anybody."""

    def __init__(
        self,
        operations: Operations,
        find_task: FindTask,
        start: Callable[[NewJob, int], Made],
        tenant: str | None,
        find_other: Callable[[str | None], Enqueue],
        tracing: Callable[[], Tracing | None] = lambda: None,
    ) -> None:
        self._operations = operations
        self._find_task = find_task
        self._start = start
        self.tenant = tenant
        self._find_other = find_other
        self._tracing = tracing

    def of_tenant(self, name: str | None) -> Enqueue:
        return self if name == self.tenant else self._find_other(name)

    def store(self, jobs: Sequence[NewJob]) -> list[Job[Any]]:
        """All or none, in the order given."""
        check_size(len(jobs), "enqueue", "enqueue them in parts; give after= the jobs of an earlier part")
        operations, find = self._operations, self._find_task
        with EnqueueSpan(self._tracing(), jobs) as sending:
            made = operations.enqueue(sending.jobs)
            sending.stored(made)
        return [Job(one.id, operations, find, created=one.created) for one in made]

    def store_once(self, jobs: Sequence[NewJob], key: str, fingerprint: str) -> tuple[list[Job[Any]], bool]:
        """Once for a key; and whether it was a repeat."""
        check_size(len(jobs), "enqueue", "enqueue them in parts")
        with EnqueueSpan(self._tracing(), jobs) as sending:
            once = self._operations.enqueue_once(sending.jobs, key, fingerprint)
            sending.stored(once.jobs)
        operations, find = self._operations, self._find_task
        made = [Job[Any](one.id, operations, find, created=one.created) for one in once.jobs]
        return made, once.repeated

    def store_within(self, tx: Any, pieces: Iterable[Sequence[NewJob]]) -> StoredJobs:
        """In the caller's own transaction, which is one for all pieces: what goes wrong in a later one is raised as it
        is, for nothing is stored until the commit."""
        made = StoredJobs(self._operations, self._find_task)
        for jobs in pieces:
            with EnqueueSpan(self._tracing(), jobs) as sending:
                stored = self._operations.enqueue_within(tx, sending.jobs)
                sending.stored(stored)
            made.add(stored)
        return made

    async def astore_within(self, tx: Any, pieces: Iterable[Sequence[NewJob]]) -> StoredJobs:
        made = StoredJobs(self._operations, self._find_task)
        for jobs in pieces:
            with EnqueueSpan(self._tracing(), jobs) as sending:
                stored = await self._operations.aenqueue_within(tx, sending.jobs)
                sending.stored(stored)
            made.add(stored)
        return made

    def store_pieces(self, pieces: Iterable[Sequence[NewJob]]) -> StoredJobs:
        """Piece by piece, each of them all or none. Raises PartlyStored for what goes wrong after the first."""
        made = StoredJobs(self._operations, self._find_task)
        try:
            for jobs in pieces:
                with EnqueueSpan(self._tracing(), jobs) as sending:
                    stored = self._operations.enqueue(sending.jobs)
                    sending.stored(stored)
                made.add(stored)
                del jobs, sending, stored  # before the next ones are made
        except Exception as error:
            if not made:
                raise
            raise PartlyStored(len(made), made.ids, f"{type(error).__name__}: {error}") from error
        return made

    def run_now(self, job: NewJob, max_running: int) -> Job[Any]:
        with EnqueueSpan(self._tracing(), [job]) as sending:
            made = self._start(sending.jobs[0], max_running)
            sending.stored([made])
        return Job(made.id, self._operations, self._find_task, created=made.created)

    def traced(self, job: NewJob) -> NewJob:
        """One that another transaction will store, with the trace that it is asked for in, if there is one."""
        with EnqueueSpan(self._tracing(), [job], later=True) as sending:
            return sending.jobs[0]
