"""The pruner: every worker deletes what came to rest long ago, a batch at a time, without a leader."""

from __future__ import annotations

import random

from leasehold.stores.contract import Store
from leasehold.worker.service import Service

EVERY = 3600.0
BATCH = 1000


class Pruner:
    def __init__(self, store: Store, retention: float) -> None:
        self._store = store
        self._retention = retention
        self._after: str | None = None
        self._service = Service("pruner", self._beat, first=random.uniform(30, 300))

    def start(self) -> None:
        self._service.start()

    def stop(self) -> None:
        self._service.stop()

    def _beat(self) -> float:
        pruned = self._store.prune(self._retention, BATCH, self._after)
        self._after = pruned.next
        if self._after is not None:
            return 0.5
        self._store.forget_silent_workers()
        return EVERY * random.uniform(0.8, 1.2)
