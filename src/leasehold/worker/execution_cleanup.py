"""Removes what executions have left whose worker died after it stored the job's end and before it deleted them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from leasehold.domain.errors import JobNotFound
from leasehold.run.external import job_of
from leasehold.runners.contract import AnyRunner
from leasehold.worker.service import Service

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

logger = logging.getLogger("leasehold.worker")

FIRST_CLEANUP, CLEAN_EVERY = 10.0, 60.0
TOMBSTONES_EVERY = 60
"""Remove old tombstones every this many rounds."""
TOMBSTONES_FOR = 7 * 86400.0
"""Seconds that tombstones are kept. No starter is that late."""


class ExecutionCleanup(Service):
    """Cleans up only for jobs of this database: executions of another may share the folder or the engine."""

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
            if self._is_over(name):
                # Alive or not: the job has gone on without the execution.
                runner.stop(name, 0.0)
                if runner.remove(name):
                    logger.info("removed the leftovers of %s", name)
        if self._rounds % TOMBSTONES_EVERY == 0:
            runner.sweep(TOMBSTONES_FOR)

    def _is_over(self, name: str) -> bool:
        """Whether it is over: the database has a row before an execution exists here, so one without a row is over."""
        job_id = job_of(name)
        if job_id is None:
            return False
        try:
            return self._store.get(job_id).execution_name != name
        except JobNotFound:
            return False
