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
    """`start` runs a job at once, in this process, unless too many run already."""

    def __init__(
        self, operations: Operations, find_task: FindTask, start: Callable[[NewJob, int], Made]
    ) -> None:
        self._operations = operations
        self._find_task = find_task
        self._start = start

    def store(self, jobs: Sequence[NewJob]) -> list[Job[Any]]:
        """All or none, in the order given."""
        check_size(len(jobs), "enqueue", "enqueue them in parts; give after= the jobs of an earlier part")
        operations, find = self._operations, self._find_task
        return [Job(one.id, operations, find, created=one.created) for one in operations.enqueue(jobs)]

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
