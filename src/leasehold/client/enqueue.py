"""From jobs that shall be stored to handles of those that are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from leasehold.client.job import FindTask, Job
from leasehold.client.stored_jobs import Made, StoredJobs
from leasehold.domain.batch import check_size
from leasehold.domain.errors import PartlyStored
from leasehold.domain.job import NewJob
from leasehold.operations.operations import Operations


class Enqueue:
    """`start` runs a job at once, in this process, unless too many run already. `find_other` knows the same for a
    tenant, or for the app's own store."""

    def __init__(
        self,
        operations: Operations,
        find_task: FindTask,
        start: Callable[[NewJob, int], Made],
        tenant: str | None,
        find_other: Callable[[str | None], Enqueue],
    ) -> None:
        self._operations = operations
        self._find_task = find_task
        self._start = start
        self.tenant = tenant
        self._find_other = find_other

    def of_tenant(self, name: str | None) -> Enqueue:
        return self if name == self.tenant else self._find_other(name)

    def store(self, jobs: Sequence[NewJob]) -> list[Job[Any]]:
        """All or none, in the order given."""
        check_size(len(jobs), "enqueue", "enqueue them in parts; give after= the jobs of an earlier part")
        operations, find = self._operations, self._find_task
        return [Job(one.id, operations, find, created=one.created) for one in operations.enqueue(jobs)]

    def store_once(self, jobs: Sequence[NewJob], key: str, fingerprint: str) -> tuple[list[Job[Any]], bool]:
        """Once for a key; and whether it was a repeat."""
        check_size(len(jobs), "enqueue", "enqueue them in parts")
        once = self._operations.enqueue_once(jobs, key, fingerprint)
        operations, find = self._operations, self._find_task
        made = [Job[Any](one.id, operations, find, created=one.created) for one in once.jobs]
        return made, once.repeated

    def store_within(self, tx: Any, pieces: Iterable[Sequence[NewJob]]) -> StoredJobs:
        """In the caller's own transaction, which is one for all pieces: what goes wrong in a later one is raised as it
        is, for nothing is stored until the commit."""
        made = StoredJobs(self._operations, self._find_task)
        for jobs in pieces:
            made.add(self._operations.enqueue_within(tx, jobs))
        return made

    async def astore_within(self, tx: Any, pieces: Iterable[Sequence[NewJob]]) -> StoredJobs:
        made = StoredJobs(self._operations, self._find_task)
        for jobs in pieces:
            made.add(await self._operations.aenqueue_within(tx, jobs))
        return made

    def store_pieces(self, pieces: Iterable[Sequence[NewJob]]) -> StoredJobs:
        """Piece by piece, each of them all or none. Raises PartlyStored for what goes wrong after the first."""
        made = StoredJobs(self._operations, self._find_task)
        try:
            for jobs in pieces:
                made.add(self._operations.enqueue(jobs))
                del jobs  # before the next ones are made
        except Exception as error:
            if not made:
                raise
            raise PartlyStored(len(made), made.ids, f"{type(error).__name__}: {error}") from error
        return made

    def run_now(self, job: NewJob, max_running: int) -> Job[Any]:
        made = self._start(job, max_running)
        return Job(made.id, self._operations, self._find_task, created=made.created)
