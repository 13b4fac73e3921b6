"""Many calls of one task. Making an object of each would take longer than storing them does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

from leasehold.domain.batch import AlikeJobs
from leasehold.domain.job import NewJob


class Batch(AlikeJobs):
    """Arguments are checked and encoded when they are asked for, so that a store can send some while the next are
    prepared. Whoever wants the jobs themselves gets them, all of them checked."""

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
        """Ids and encoded arguments, so many at a time. The first that cannot be stored raises."""
        for start in range(0, len(self), size):
            yield self.ids[start : start + size], self._args_of(start, start + size)

    def encode(self, number: int) -> None:
        """Check and encode the first ones now."""
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
