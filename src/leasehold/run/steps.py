"""The steps of one run: each result is stored under its name, and what is stored is not run again.

Blocking all through: an async handler's plain functions, and every write, go through `Journal.call`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn

from leasehold.domain.budgets import Spend
from leasehold.domain.checks.payload import encode
from leasehold.domain.errors import DatabaseUnreachable, DuplicateStep, LeaseLost, OverBudget
from leasehold.domain.signals import StopRequested
from leasehold.run.journal import Journal
from leasehold.run.spending import RunSpending, current_step
from leasehold.run.state import RunState
from leasehold.run.step import Batch, Step

if TYPE_CHECKING:
    from leasehold.stores.store import HandlerTransaction

logger = logging.getLogger("leasehold.worker")

BATCH_STEPS = 100
BATCH_BYTES = 1024 * 1024
BATCH_SECONDS = 1.0
"""A batch is written when the first of these is reached: what a crash can cost at most."""
TRANSACTION_SECONDS = 5.0
NEVER = float("inf")


class Steps:
    """What one run keeps for the runs that follow it."""

    def __init__(self, run: RunState, journal: Journal) -> None:
        self._state = run
        self._journal = journal
        # Every claim counts as an attempt, so a first one finds nothing, and need not look.
        first = run.grant.attempt == 1
        self._stored: dict[str, str] | None = {} if first else None
        self._checkpoint: str | None = None
        self._checkpoint_known = first
        self._names: set[str] = set()
        self._batch = Batch()
        self._spending: RunSpending | None = None
        self._batch_bytes = 0
        self.due_at = NEVER
        """When the batch must be written, on the monotonic clock."""
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        """One write at a time: who comes after it may rely on what was before it."""

    # -- a step ----------------------------------------------------------------------------------------------------
    def begin(self, step: Step) -> None:
        self._state.refuse_after_completion("step")
        self._journal.store.refuse_inside()
        self._state.show_life()
        with self._lock:
            if step.name in self._names:
                raise DuplicateStep(step.name)
            self._names.add(step.name)
        step.run = self._state

    def run(self, step: Step) -> Any:
        """From the look whether it is stored to its decoded result, in this thread."""
        found = self._find(step)
        if found is not None:
            return step.decode(found)
        try:
            value = self._tried(step)
            if step.tx:
                return value
            text, answer = step.pack(value)
            if self._must_write(step, text):
                self._write_step(step, text)
            return answer
        finally:
            step.ended = True
            self._give_up(step)

    async def run_async(self, step: Step) -> Any:
        """As `run`, for an async handler: an async function on the loop, everything that blocks in a thread."""
        if self._stored is None:
            await self._journal.call(self._load)
        if not step.is_async and not self._is_stored(step):
            return await self._journal.call(self.run, step)
        found = self._find(step)
        if found is not None:
            return step.decode(found)
        try:
            text, answer = step.pack(await self._tried_async(step))
            if self._must_write(step, text):
                await self._journal.call(self._write_step, step, text)
            return answer
        finally:
            step.ended = True
            with contextlib.suppress(StopRequested):  # it has outlived its worker: nobody writes for it
                await self._give_up_async(step)

    def _tried(self, step: Step) -> Any:
        """Called until it returns, or has failed for the last time."""
        while True:
            self._state.raise_if_stopped()
            try:
                return self._run_in_transaction(step) if step.tx else self._call(step)
            except Exception as error:
                delay = step.delay_after(error)
                if delay is None:
                    raise
            self._give_up(step)
            with self._state.waiting_for(f"the next try of its step {step.name!r}"):
                self._journal.waits.wait(self._state, delay)

    async def _tried_async(self, step: Step) -> Any:
        while True:
            try:
                return await self._call_async(step)
            except Exception as error:
                delay = step.delay_after(error)
                if delay is None:
                    raise
            await self._give_up_async(step)
            with self._state.waiting_for(f"the next try of its step {step.name!r}"):
                await self._journal.waits.wait_async(self._state, delay)  # a stop ends it

    def _call(self, step: Step, *first: Any) -> Any:
        """What the function spends is kept with the step."""
        mark = current_step.set(step)
        try:
            return step.function(*first, *step.args)
        finally:
            current_step.reset(mark)

    async def _call_async(self, step: Step) -> Any:
        mark = current_step.set(step)
        try:
            return await step.function(*step.args)
        finally:
            current_step.reset(mark)

    def _give_up(self, step: Step) -> None:
        if step.spends:
            self.spending.give_up(step.take_spends())

    async def _give_up_async(self, step: Step) -> None:
        if step.spends:
            await self._journal.call(self._give_up, step)

    def _must_write(self, step: Step, text: str) -> bool:
        """Now: a step of a batch may wait in it."""
        return not step.batch or self._add(step, text)

    def _write_step(self, step: Step, text: str) -> None:
        """A step of a batch stands in it already."""
        if step.batch:
            self.write({})
        else:
            self.write({step.name: text}, spends=step.take_spends())

    def _run_in_transaction(self, step: Step) -> Any:
        grant = self._state.grant
        try:
            with ExitStack() as stack:
                tx = self.open_transaction(stack)
                # A commit whose answer was lost may have arrived: the row's lock waits for it.
                found = tx.load_steps().get(step.name) if step.tries else None
                if found is not None:
                    return step.decode(found)
                with self._journal.store.inside_transaction():
                    value = self._call(step, tx.connection)
                text, answer = step.pack(value)
                tx.save_steps({step.name: text})
                lines = tx.spend(grant.attempt, step.spends) if step.spends else None
            if step.spends:
                self.spending.wrote(step.take_spends(), lines)
            return answer
        except LeaseLost:
            self._lost()
        except DatabaseUnreachable:
            stored = self._state.patiently(lambda: self._journal.store.load_steps(grant.id))
            if step.name not in stored:
                raise
            if step.spends:
                self.spending.wrote(step.take_spends(), None)
            return step.decode(stored[step.name])

    def open_transaction(self, stack: ExitStack) -> HandlerTransaction:
        """Patiently: nothing has been done in it yet."""
        grant = self._state.grant
        store = self._journal.store
        return self._state.patiently(
            lambda: stack.enter_context(store.transaction(grant.id, grant.token, TRANSACTION_SECONDS))
        )

    # -- what is stored --------------------------------------------------------------------------------------------
    def _find(self, step: Step) -> str | None:
        if self._stored is None:
            self._load()
        assert self._stored is not None
        return self._stored.get(step.name)

    def _is_stored(self, step: Step) -> bool:
        return self._stored is not None and step.name in self._stored

    def _load(self) -> None:
        found = self._state.patiently(lambda: self._journal.store.load_steps(self._state.grant.id))
        with self._lock:
            if self._stored is None:
                self._stored = found

    def write(self, steps: Mapping[str, str], state: str | None = None, spends: Sequence[Spend] = ()) -> None:
        """Store these together with the batch. Returns when they are safe; raises when the run must end."""
        self._state.show_life()
        with self._writing:
            written = self.take_batch()
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
            self._lost()

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

    def _lost(self) -> NoReturn:
        self._journal.lost(self._state)
        raise StopRequested

    # -- the batch -------------------------------------------------------------------------------------------------
    def _add(self, step: Step, text: str) -> bool:
        """True: the batch is full, or has waited long enough."""
        with self._lock:
            begins = not self._batch
            self._batch[step.name] = text
            self._batch.spends += step.take_spends()
            self._batch_bytes += len(text)
            if begins:
                self.due_at = time.monotonic() + BATCH_SECONDS
            full = len(self._batch) >= BATCH_STEPS or self._batch_bytes >= BATCH_BYTES
        if begins:
            self._journal.expect(self)
        return full or time.monotonic() >= self.due_at

    @property
    def has_batch(self) -> bool:
        """Or one is just being written; or something spent is not."""
        loose = self._spending is not None and self._spending.has_loose
        return bool(self._batch) or loose or self._writing.locked()

    def take_batch(self) -> Batch:
        with self._lock:
            batch, self._batch, self._batch_bytes, self.due_at = self._batch, Batch(), 0, NEVER
        return batch

    def put_back(self, batch: Batch) -> None:
        """It could not be written; the clockwork shall try again."""
        if not batch:
            return
        with self._lock:
            self._batch = Batch({**batch, **self._batch}, [*batch.spends, *self._batch.spends])
            self._batch_bytes = sum(map(len, self._batch.values()))
            self.due_at = time.monotonic() + BATCH_SECONDS
        self._journal.expect(self)

    def flush_late(self) -> None:
        """By the clockwork: its run has had no reason to write for a while."""
        with self._writing:
            batch = self.take_batch()
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
            batch = self.take_batch()
            try:
                if batch:
                    self._save(batch)
            finally:
                if batch.spends:
                    self.spending.give_up(batch.spends)
                if self._spending is not None:
                    self._spending.flush_at_the_end()

    @property
    def spending(self) -> RunSpending:
        """Made when something is first spent, or asked about."""
        if self._spending is None:
            with self._lock:
                if self._spending is None:
                    self._spending = RunSpending(self._state, self._journal.store)
        return self._spending

    def over_budget(self) -> OverBudget | None:
        return None if self._spending is None else self._spending.over()

    # -- the checkpoint --------------------------------------------------------------------------------------------
    def checkpoint(self, state: Any) -> None:
        self._state.refuse_after_completion("checkpoint")
        text = encode(state, "checkpoint")
        self.write({}, text)
        self._checkpoint, self._checkpoint_known = text, True

    def load_saved(self) -> None:
        if not self._checkpoint_known:
            job_id, store = self._state.grant.id, self._journal.store
            self._checkpoint = self._state.patiently(lambda: store.load_checkpoint(job_id))
            self._checkpoint_known = True

    @property
    def saved(self) -> Any:
        self.load_saved()
        return None if self._checkpoint is None else json.loads(self._checkpoint)
