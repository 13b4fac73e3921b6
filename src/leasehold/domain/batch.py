"""Batches: the jobs of one bulk enqueue, as the store receives them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import NewJob

MOST_INSERTED = 5_000
"""Most jobs that one transaction inserts. While SQLite writes, no one else can, not even to renew a lease."""


def check_size(number: int, field: str, remedy: str) -> None:
    if number > MOST_INSERTED:
        problem = f"{number:,} jobs are more than one transaction makes ({MOST_INSERTED:,})"
        raise InvalidInput(field, problem, remedy)


class AlikeJobs(Sequence[NewJob]):
    """Jobs that differ only in their ids and arguments. The first job holds what they share; the rest come in pieces,
    so that a store can send one piece while the next is prepared."""

    ids: Sequence[str]
    first: NewJob

    @abstractmethod
    def pieces(self, size: int) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Yield ids and encoded arguments, `size` at a time. Raises at the first job that cannot be stored."""

    @abstractmethod
    def encode(self, number: int) -> None:
        """Check and encode the first `number` jobs now."""

    @abstractmethod
    def with_trace(self, trace: str) -> AlikeJobs:
        """Return the same jobs with this trace."""


def with_trace(jobs: Sequence[NewJob], trace: str) -> Sequence[NewJob]:
    """Set the trace of every job that has none; a trace given by the caller wins."""
    if isinstance(jobs, AlikeJobs):
        return jobs if jobs.first.trace is not None else jobs.with_trace(trace)
    return [job if job.trace is not None else replace(job, trace=trace) for job in jobs]


def any_grouped(jobs: Sequence[NewJob]) -> bool:
    """Return whether a job belongs to a group. For AlikeJobs the first job answers for all."""
    looked_at = [jobs.first] if isinstance(jobs, AlikeJobs) else jobs
    return any(job.group is not None for job in looked_at)
