"""The batch of one run: results of cheap steps that wait to be stored, and every write of its steps."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from leasehold.domain.budgets import Spend
from leasehold.domain.errors import OverBudget
from leasehold.domain.signals import StopRequested
from leasehold.run.budgets import RunSpending
from leasehold.run.journal import Journal
from leasehold.run.state import RunState
from leasehold.run.step import Step

logger = logging.getLogger("leasehold.worker")

BATCH_STEPS = 100
BATCH_BYTES = 1024 * 1024
BATCH_SECONDS = 1.0
"""A batch is written when the first of these is reached: what a crash can cost at most."""
NEVER = float("inf")


class Batch(dict[str, str]):
    """Results by the names of their steps, and what the steps have spent."""

    def __init__(self, steps: Mapping[str, str] | None = None, spends: Sequence[Spend] = ()) -> None:
        super().__init__(steps or {})
        self.spends = list(spends)


class StepBatch:
    """Steps are added by the run. The run writes the batch with its next step, or the worker's batch writer does."""

    def __init__(self, run: RunState, journal: Journal) -> None:
        self._state = run
        self._journal = journal
        self._batch = Batch()
        self._bytes = 0
        self._spending: RunSpending | None = None
        self.due_at = NEVER
        """When the batch must be written, on the monotonic clock."""
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        """Serialises writes: a later write implies that the earlier ones are stored."""

    def add(self, step: Step, text: str) -> bool:
        """True: the batch is full, or has waited long enough."""
        with self._lock:
            begins = not self._batch
            self._batch[step.name] = text
            self._batch.spends += step.take_spends()
            self._bytes += len(text)
            if begins:
                self.due_at = time.monotonic() + BATCH_SECONDS
            full = len(self._batch) >= BATCH_STEPS or self._bytes >= BATCH_BYTES
        if begins:
            self._journal.expect(self)
        return full or time.monotonic() >= self.due_at

    @property
    def is_pending(self) -> bool:
        """Something waits to be stored, or is just being written; or something spent is not stored."""
        loose = self._spending is not None and self._spending.has_loose
        return bool(self._batch) or loose or self._writing.locked()

    def take(self) -> Batch:
        with self._lock:
            batch, self._batch, self._bytes, self.due_at = self._batch, Batch(), 0, NEVER
        return batch

    def put_back(self, batch: Batch) -> None:
        """After a failed write: the batch writer will try again."""
        if not batch:
            return
        with self._lock:
            self._batch = Batch({**batch, **self._batch}, [*batch.spends, *self._batch.spends])
            self._bytes = sum(map(len, self._batch.values()))
            self.due_at = time.monotonic() + BATCH_SECONDS
        self._journal.expect(self)

    # -- writes ----------------------------------------------------------------------------------------------------
    def write(self, steps: Mapping[str, str], state: str | None = None, spends: Sequence[Spend] = ()) -> None:
        """Store these together with the batch. Returns when they are safe; raises when the run must end."""
        self._state.show_life()
        with self._writing:
            written = self.take()
            written.update(steps)
            written.spends += spends
            if not written and state is None:
                return
            try:
                held = self._state.patiently(lambda: self._save(written, state))
            except BaseException:
                self.put_back(written)
                raise
        if not held:
            self._journal.lost(self._state)
            raise StopRequested

    def flush_late(self) -> None:
        """By the batch writer: the run has had no reason to write for a while."""
        with self._writing:
            batch = self.take()
            if not batch:
                return
            try:
                held = self._save(batch)
            except BaseException:
                self.put_back(batch)
                raise
        if not held and not self._state.completed:
            self._journal.lost(self._state)

    def finish(self) -> None:
        """The handler has ended; its ending follows. One try: what it fails to write is only run again, and whether
        the lease still holds is the settle's business."""
        try:
            self._write_rest()
        except Exception as error:
            logger.warning("some steps of an ended run were not stored: %s", error)

    def _write_rest(self) -> None:
        with self._writing:
            batch = self.take()
            try:
                if batch:
                    self._save(batch)
            finally:
                if batch.spends:
                    self.spending.give_up(batch.spends)
                if self._spending is not None:
                    self._spending.flush_at_the_end()

    def _save(self, written: Batch, state: str | None = None) -> bool:
        """False: the lease is lost. What was spent is recorded all the same, by itself."""
        grant, store = self._state.grant, self._journal.store
        if written.spends:
            lines = store.save_spent_steps(grant.id, grant.token, grant.attempt, written, written.spends)
            spends, written.spends = written.spends, []
            if lines is None:
                self.spending.give_up(spends)
                return False
            self.spending.wrote(spends, lines)
            if state is None:
                return True
        return store.save_steps(grant.id, grant.token, written, state)

    # -- what was spent --------------------------------------------------------------------------------------------
    @property
    def spending(self) -> RunSpending:
        """Made with the first spend, or the first look at a budget."""
        if self._spending is None:
            with self._lock:
                if self._spending is None:
                    self._spending = RunSpending(self._state, self._journal.store)
        return self._spending

    def over_budget(self) -> OverBudget | None:
        return None if self._spending is None else self._spending.over()
