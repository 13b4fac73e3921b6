"""Many jobs of one call, as a store sees them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import NewJob

MOST_AT_ONCE = 5_000
"""Jobs that one transaction of ours makes. While SQLite writes nobody else can, not even to renew a lease."""


def check_size(number: int, field: str, remedy: str) -> None:
    if number > MOST_AT_ONCE:
        problem = f"{number:,} jobs are more than one transaction makes ({MOST_AT_ONCE:,})"
        raise InvalidInput(field, problem, remedy)


class AlikeJobs(Sequence[NewJob]):
    """Jobs that differ in their ids and arguments only. What they have in common stands in the first of them, and the
    rest come in pieces, so that a store can send some while the next are prepared."""

    ids: Sequence[str]
    first: NewJob

    @abstractmethod
    def pieces(self, size: int) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Ids and encoded arguments, so many at a time. The first that cannot be stored raises."""

    @abstractmethod
    def encode(self, number: int) -> None:
        """Check and encode the first ones now."""

    @abstractmethod
    def with_trace(self, trace: str) -> AlikeJobs:
        """The same jobs, with this as their trace."""


def with_trace(jobs: Sequence[NewJob], trace: str) -> Sequence[NewJob]:
    """What a caller has given as the trace of a job counts for more."""
    if isinstance(jobs, AlikeJobs):
        return jobs if jobs.first.trace is not None else jobs.with_trace(trace)
    return [job if job.trace is not None else replace(job, trace=trace) for job in jobs]


def any_grouped(jobs: Sequence[NewJob]) -> bool:
    """Whether one of them belongs to a group. Of jobs that are alike the first speaks for all."""
    looked_at = [jobs.first] if isinstance(jobs, AlikeJobs) else jobs
    return any(job.group is not None for job in looked_at)
