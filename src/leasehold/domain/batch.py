"""Many jobs of one call, as a store sees them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

from leasehold.domain.job import NewJob


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


def any_grouped(jobs: Sequence[NewJob]) -> bool:
    """Whether one of them belongs to a group. Of jobs that are alike the first speaks for all."""
    looked_at = [jobs.first] if isinstance(jobs, AlikeJobs) else jobs
    return any(job.group is not None for job in looked_at)
