"""The handles of many jobs, in a few bytes each: a million `Job` objects would need too much memory."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, overload

from leasehold.client.job import FindTask, Job
from leasehold.operations.local import EnqueuedJob
from leasehold.operations.operations import Operations

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
    """What `enqueue_many` returns: a handle of each job, in the order of the calls, made when it is read."""

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

    def add(self, made: Sequence[EnqueuedJob]) -> None:
        self.ids.add([one.id for one in made])
        self._created += bytes(one.created for one in made)
