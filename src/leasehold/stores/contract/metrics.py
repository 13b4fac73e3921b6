"""What workers have counted, and what the store tells of the moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from leasehold.domain.metrics import KEPT_MINUTES, Gauges, Rollup


class Counts(Protocol):
    def add_rollups(self, rollups: Sequence[Rollup], *, tenant: str | None = None) -> None:
        """Add them to this minute and to the totals, all or none. Raises only if nothing was written: where that is not
        known, they count as written, so that nothing is counted twice. Beyond a number of pairs of queue and kind the
        others are added up as one. `tenant` says whose they are, to a store of many."""
        ...

    def prune_rollups(self, age: float = KEPT_MINUTES * 60.0) -> None:
        """Minutes longer ago than `age` seconds go; the totals stay."""
        ...

    def totals(self) -> list[Rollup]:
        """Since ever. They only grow."""
        ...

    def list_rollups(self, age: float, queue: str | None = None, kind: str | None = None) -> list[Rollup]:
        """By the minute, those of the last `age` seconds; the oldest first."""
        ...

    def gauges(self, cap: int = 10_000) -> Gauges:
        """A few statements, whatever the number of jobs. Finished ones are not read."""
        ...
