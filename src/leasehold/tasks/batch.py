"""Batches: many calls of one task, without an object per job, which would take longer than storing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

from leasehold.domain.batch import AlikeJobs
from leasehold.domain.job import NewJob


class Batch(AlikeJobs):
    """Checks and encodes arguments only when they are needed, so that a store can send one piece while the next is
    prepared. Iterating over it yields the jobs themselves, all of them checked."""

    def __init__(
        self,
        common: Mapping[str, Any],
        ids: Sequence[str],
        calls: Sequence[Mapping[str, Any]],
        encode: Callable[[Mapping[str, Any]], str],
    ) -> None:
        self.ids = ids
        self._common = common
        self._calls = calls
        self._encode = encode
        self._args: list[str] = []
        self._jobs: list[NewJob] | None = None
        self.first = NewJob(id=ids[0], args=self._args_of(0, 1)[0], **common)

    def pieces(self, size: int) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Yield ids and encoded arguments, `size` at a time. Raises at the first job that cannot be stored."""
        for start in range(0, len(self), size):
            yield self.ids[start : start + size], self._args_of(start, start + size)

    def encode(self, number: int) -> None:
        """Check and encode the first `number` jobs now."""
        self._args_of(0, number)

    def with_trace(self, trace: str) -> Batch:
        return Batch({**self._common, "trace": trace}, self.ids, self._calls, self._encode)

    def _args_of(self, start: int, stop: int) -> list[str]:
        known = len(self._args)
        self._args += [self._encode(call) for call in self._calls[known:stop]]
        return self._args[start:stop]

    def _made(self) -> list[NewJob]:
        if self._jobs is None:
            every = zip(self.ids, self._args_of(0, len(self)), strict=True)
            self._jobs = [NewJob(id=job_id, args=args, **self._common) for job_id, args in every]
        return self._jobs

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[NewJob]:
        return iter(self._made())

    @overload
    def __getitem__(self, index: int) -> NewJob: ...

    @overload
    def __getitem__(self, index: slice) -> list[NewJob]: ...

    def __getitem__(self, index: int | slice) -> NewJob | list[NewJob]:
        return self._made()[index]
