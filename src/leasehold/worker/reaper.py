"""The reaper: every worker looks for leases that were missed, in two looks, without a leader."""

from __future__ import annotations

import logging
import random
from datetime import datetime

from leasehold.domain.errors import StoreError
from leasehold.domain.job import Sighting
from leasehold.domain.states import State
from leasehold.stores.answers import Reaped
from leasehold.stores.contract import Store
from leasehold.worker.job_log import tell_loss
from leasehold.worker.service import Service

logger = logging.getLogger("leasehold.worker")

MASS = 50
BRAKE_PER_SECOND = 10


class Reaper:
    def __init__(self, store: Store, sweep: float) -> None:
        self._store = store
        self._sweep = sweep
        self._seen: dict[tuple[str, int, datetime], Sighting] = {}
        self._service = Service("reaper", self._beat, first=random.uniform(0, sweep / 2), slowest=sweep)

    def start(self) -> None:
        self._service.start()

    def stop(self) -> None:
        self._service.stop()

    def _beat(self) -> float:
        try:
            self.sweep()
        except StoreError:
            # While the database takes no writes nobody can renew: what was seen before says nothing about the owners.
            self._seen.clear()
            raise
        return self._sweep * random.uniform(0.9, 1.1)

    def sweep(self) -> list[Reaped]:
        """One look. What was seen before and has not moved is reaped; the store checks both once more."""
        found = self._store.sight_expired()
        seen = {(s.id, s.token, s.expires_at): s for s in found}
        # The first look counts, not the latest.
        self._seen = {key: self._seen.get(key, sighting) for key, sighting in seen.items()}
        reaped = self._store.reap(self._braked(list(self._seen.values())))
        for lost in reaped:
            tell_loss(lost)
        if any(not lost.orphan for lost in reaped):
            self._store.wake()
        expired = self._store.expire()
        if any(job.state is State.QUEUED for job in expired):
            # Its question was not answered in time; it goes on with that.
            self._store.wake()
        if reaped or any(job.group_name is not None for job in expired):
            self._store.tell_watchers()
        return reaped

    def _braked(self, sightings: list[Sighting]) -> list[Sighting]:
        """Many leases of several owners at once, more than half of all: that is an outage, not mass death. Their
        owners get time to come back before others take their work."""
        owners = {sighting.owner for sighting in sightings}
        if len(sightings) < MASS or len(owners) < 2 or len(sightings) * 2 <= self._store.count_leases():
            return sightings
        allowed = max(1, int(BRAKE_PER_SECOND * self._sweep))
        logger.warning(
            "%d leases of %d workers have run out at once: taking this for an outage and recovering %d at a time",
            len(sightings),
            len(owners),
            allowed,
        )
        return sightings[:allowed]
