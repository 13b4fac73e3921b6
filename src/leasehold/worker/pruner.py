"""The pruner: every worker deletes jobs that ended long ago, a batch at a time, without a leader."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from leasehold.domain.retention import Ages, Retention
from leasehold.worker.service import Service

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

PRUNE_EVERY = 3600.0
BATCH = 1000
BETWEEN = 0.5
"""Seconds between two batches, so that pruning does not disturb the work."""


PARTS_A_ROUND = 11
"""Parts, of the 256 of the results folder, to check per round: with one round an hour, all of them in a day."""


class Pruner(Service):
    def __init__(self, store: JobStore, retention: Ages, audit_age: float | None = None) -> None:
        """`audit_age`: in seconds; None: the audit is kept for ever."""
        super().__init__("pruner", self.beat, first=random.uniform(30, 300))
        self._store = store
        self._retention = retention
        self._audit_age = audit_age
        self._after: str | None = None
        self._part = random.randrange(256)

    def beat(self) -> float:
        # The rules of tasks that this worker does not have count too.
        retention = Retention(self._retention, self._store.retention())
        pruned = self._store.prune(retention, BATCH, self._after)
        self._after = pruned.next
        if self._after is not None:
            return BETWEEN
        if self._audit_age is not None and self._store.prune_audit(self._audit_age, BATCH) >= BATCH:
            return BETWEEN
        self._store.forget_silent_workers()
        self._store.prune_rollups()
        for _ in range(PARTS_A_ROUND):
            self._store.sweep_results(part=self._part)
            self._part += 1
        return PRUNE_EVERY * random.uniform(0.8, 1.2)
