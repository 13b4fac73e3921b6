"""The pruner of old jobs and the cleanup of executions: every worker runs both, without a leader."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from leasehold.domain.errors import JobNotFound
from leasehold.domain.retention import Ages, Retention
from leasehold.run.external import job_of
from leasehold.runners.contract import AnyRunner
from leasehold.worker.service import Service

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

PRUNE_EVERY = 3600.0
PRUNE_BATCH = 1000
BETWEEN_BATCHES = 0.5
"""Seconds between two batches, so that pruning does not disturb the work."""


PARTS_A_ROUND = 11
"""How many of the 256 parts of the results folder to check per round: with one round an hour, all in a day."""


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
        # The stored rules of tasks that this worker does not have apply too.
        retention = Retention(self._retention, self._store.retention())
        pruned = self._store.prune(retention, PRUNE_BATCH, self._after)
        self._after = pruned.next
        if self._after is not None:
            return BETWEEN_BATCHES
        if (
            self._audit_age is not None
            and self._store.prune_audit(self._audit_age, PRUNE_BATCH) >= PRUNE_BATCH
        ):
            return BETWEEN_BATCHES
        self._store.forget_silent_workers()
        self._store.prune_rollups()
        for _ in range(PARTS_A_ROUND):
            self._store.sweep_results(part=self._part)
            self._part += 1
        return PRUNE_EVERY * random.uniform(0.8, 1.2)


# -- what executions have left -----------------------------------------------------------------------------------------

logger = logging.getLogger("leasehold.worker")

FIRST_CLEANUP, CLEAN_EVERY = 10.0, 60.0
TOMBSTONES_EVERY = 60
"""Remove old tombstones every this many rounds."""
TOMBSTONES_FOR = 7 * 86400.0
"""Seconds to keep tombstones: no start of an execution comes that late."""


class ExecutionCleanup(Service):
    """Cleans up only for jobs of this database: executions of another database may share the folder or the engine."""

    def __init__(self, store: JobStore, runners: Callable[[], Collection[AnyRunner]]) -> None:
        super().__init__("leftovers", self.beat, first=FIRST_CLEANUP)
        self._store = store
        self._runners = runners
        self._rounds = 0

    def beat(self) -> float:
        for runner in self._runners():
            try:
                self._look(runner)
            except OSError as error:
                logger.warning("cannot look for leftovers of executions: %s", error)
        self._rounds += 1
        return CLEAN_EVERY

    def _look(self, runner: AnyRunner) -> None:
        for name in runner.names():
            if self._is_superseded(name):
                # Alive or not: the job has gone on without the execution.
                runner.stop(name, 0.0)
                if runner.remove(name):
                    logger.info("removed the leftovers of %s", name)
        if self._rounds % TOMBSTONES_EVERY == 0:
            runner.sweep(TOMBSTONES_FOR)

    def _is_superseded(self, name: str) -> bool:
        """Whether its job names another execution, or none: names are stored before a start. False for unknown jobs,
        and for those of another database, even if this one is a copy of it."""
        found = job_of(name)
        if found is None:
            return False
        identity, job_id = found
        try:
            return identity == self._store.identity(job_id) and self._store.get(job_id).execution_name != name
        except JobNotFound:
            return False
