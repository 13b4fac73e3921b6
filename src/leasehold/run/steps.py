"""The steps of one run: each result is stored under its name, and what is stored is not run again.

Blocking all through: an async handler's plain functions, and every write, go through `Journal.call`.
"""

from __future__ import annotations

import contextlib
import json
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from leasehold.domain.checks.payload import encode
from leasehold.domain.errors import DatabaseUnreachable, DuplicateStep, LeaseLost
from leasehold.domain.signals import StopRequested
from leasehold.run.budgets import RunSpending, current_step
from leasehold.run.journal import Journal
from leasehold.run.state import RunState
from leasehold.run.step import Step
from leasehold.run.step_batch import StepBatch

if TYPE_CHECKING:
    from leasehold.stores.store import HandlerTransaction

TRANSACTION_SECONDS = 5.0


class Steps:
    """What one attempt keeps for the attempts after it."""

    def __init__(self, run: RunState, journal: Journal) -> None:
        self._state = run
        self._journal = journal
        # Every claim counts as an attempt, so a first one finds nothing, and need not look.
        first = run.grant.attempt == 1
        self._stored: dict[str, str] | None = {} if first else None
        self._checkpoint: str | None = None
        self._checkpoint_known = first
        self._names: set[str] = set()
        self._lock = threading.Lock()
        self.batch = StepBatch(run, journal)

    @property
    def spending(self) -> RunSpending:
        return self.batch.spending

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
        """Find the stored result, or call the function and store its result, in this thread."""
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
            with contextlib.suppress(
                StopRequested
            ):  # it has outlived its worker: nothing can be written any more
                await self._give_up_async(step)

    def _tried(self, step: Step) -> Any:
        """Call it until it returns, or has failed for the last time."""
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
        """Whether to write now: a step of a batch may wait in it."""
        return not step.batch or self.batch.add(step, text)

    def _write_step(self, step: Step, text: str) -> None:
        """Write the step now; a step of a batch is in it already."""
        if step.batch:
            self.batch.write({})
        else:
            self.batch.write({step.name: text}, spends=step.take_spends())

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
        except LeaseLost as error:
            self._journal.lost(self._state)
            raise StopRequested from error
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

    # -- the checkpoint --------------------------------------------------------------------------------------------
    def checkpoint(self, state: Any) -> None:
        self._state.refuse_after_completion("checkpoint")
        text = encode(state, "checkpoint")
        self.batch.write({}, text)
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
