"""From jobs that shall be stored to handles of those that are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from leasehold.client.job import FindTask, Job
from leasehold.domain.job import NewJob
from leasehold.operations.operations import Operations


class Made(Protocol):
    """A job that was stored, or the one that was there already."""

    @property
    def id(self) -> str: ...

    @property
    def created(self) -> bool: ...


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
        operations, find = self._operations, self._find_task
        return [Job(one.id, operations, find, created=one.created) for one in operations.enqueue(jobs)]

    def run_now(self, job: NewJob, max_running: int) -> Job[Any]:
        made = self._start(job, max_running)
        return Job(made.id, self._operations, self._find_task, created=made.created)
