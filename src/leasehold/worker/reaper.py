"""The reaper: every worker checks twice for leases that were not renewed, without a leader."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from datetime import datetime
from typing import TYPE_CHECKING

from leasehold.domain.errors import StoreError
from leasehold.domain.job import Sighting
from leasehold.domain.records import Reaped
from leasehold.domain.states import State
from leasehold.worker.logs import log_loss
from leasehold.worker.meter import Meter
from leasehold.worker.service import Service

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

logger = logging.getLogger("leasehold.worker")

MASS_LOSS = 50
BRAKE_PER_SECOND = 10
SHORTEST_PAUSE = 0.02
"""Shortest pause, in seconds, between two sweeps."""


class Reaper(Service):
    """Looks at a lease when its renewal is overdue, and again at its expiry: then reaps it, if it has not changed. So
    work is taken over within lease + sweep. The sweep is the longest time until the first look."""

    def __init__(self, store: JobStore, sweep: float, meter: Meter | None = None) -> None:
        super().__init__("reaper", self._beat, first=random.uniform(0, sweep / 2), slowest=sweep)
        self._store = store
        self._meter = meter or Meter(store)
        self._sweep = sweep
        self._seen: dict[tuple[str, int, datetime], Sighting] = {}
        self._looked_at = 0.0
        self.ripens_in: float | None = None
        """Seconds from the last look until the first remaining lease can be reaped. None: there is none to wait for."""

    def _beat(self) -> float:
        try:
            self.sweep()
        except StoreError:
            # While the database takes no writes no worker can renew: earlier looks say nothing about the workers.
            self._seen.clear()
            raise
        pause = self._sweep * random.uniform(0.9, 1.1)
        return pause if self.ripens_in is None else min(pause, max(SHORTEST_PAUSE, self.ripens_in))

    def sweep(self) -> list[Reaped]:
        """Look once. Reap the leases that were seen before and have not changed; the store checks both once more."""
        found = self._store.sight_overdue(self._sweep)
        before = self._seen
        # The first look counts, not the latest.
        self._seen = {(s.id, s.token, s.expires_at): s for s in found}
        self._seen |= {key: before[key] for key in self._seen.keys() & before.keys()}
        now = self._looked_at = found[0].seen_at if found else 0.0
        allowed = self._brake(now)
        ripe = [sighting for sighting in self._seen.values() if sighting.reapable_at <= now]
        reaped = self._store.reap(ripe[:allowed])
        # Leases that could not be reaped now, because of a lock or the brake, wait for the next sweep.
        waits = [s.reapable_at - now for s in self._seen.values() if s.reapable_at > now]
        self.ripens_in = min(waits, default=None) if allowed is None else None
        self._report(reaped)
        if reaped:
            self._store.notify_workers()
        expired = self._store.expire()
        if any(job.state is State.QUEUED for job in expired):
            # Its question was not answered in time; the job goes on without the answer.
            self._store.notify_workers()
        if reaped or any(job.group is not None for job in expired):
            self._store.notify_watchers()
        return reaped

    def sweep_now(self, wait: float | None) -> list[Reaped]:
        """Sweep twice: the second time when all leases that had run out at the first sweep can be reaped. That takes up
        to a third of a lease, and at most `wait` seconds. Leases seen by an earlier call count as seen."""
        reaped = self.sweep()
        if self._ran_out and wait != 0:
            time.sleep(self._ran_out if wait is None else min(wait, self._ran_out))
            reaped += self.sweep()
        with contextlib.suppress(StoreError):  # no worker's beat will write the counts; the next call may
            self._meter.flush()
        return reaped

    @property
    def _ran_out(self) -> float:
        """Seconds from the last look until all leases that had run out by then can be reaped."""
        ripe_at = [s.reapable_at for s in self._seen.values() if s.expires_in <= 0 or s.ahead]
        return max(0.0, max(ripe_at, default=0.0) - self._looked_at)

    def _report(self, reaped: list[Reaped]) -> None:
        for lost in reaped:
            log_loss(lost)
        if reaped:
            self._meter.count_losses(reaped)

    def _brake(self, now: float) -> int | None:
        """Return how many leases may be reaped now; None: all. Many silent leases of several workers, more than half of
        all, mean an outage, not dead workers: they get time to come back before others take their jobs. Only leases
        seen twice, or run out, count: one that is merely late will be renewed by the next sweep."""
        silent = [s for s in self._seen.values() if s.expires_in <= 0 or s.seen_at < now]
        workers = {sighting.worker for sighting in silent}
        if len(silent) < MASS_LOSS or len(workers) < 2 or len(silent) * 2 <= self._store.count_leases():
            return None
        allowed = max(1, int(BRAKE_PER_SECOND * self._sweep))
        logger.warning(
            "%d leases of %d workers were not renewed: treating this as an outage, and recovering %d at a time",
            len(silent),
            len(workers),
            allowed,
        )
        return allowed
