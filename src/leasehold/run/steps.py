"""The steps of one attempt: each result is stored under the step's name, alone or in a batch; a stored step is not run
again.

All of it blocks: an async handler's plain functions, and every write, go through `Journal.call`.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

from leasehold.domain.budgets import Spend
from leasehold.domain.checks.payload import encode
from leasehold.domain.checks.texts import checked_name
from leasehold.domain.errors import DatabaseUnreachable, DuplicateStep, InvalidInput, LeaseLost, OverBudget
from leasehold.domain.policy import Policy, backoff_delay
from leasehold.domain.signals import Signal, StopRequested
from leasehold.run.budgets import RunSpending, Spender, current_step
from leasehold.run.journal import Journal
from leasehold.run.state import RunState
from leasehold.tasks.codec import Codec, return_hint
from leasehold.tasks.settings import Retry, TaskSettings

if TYPE_CHECKING:
    from leasehold.stores.store import HandlerTransaction

TRANSACTION_SECONDS = 5.0


class Steps:
    """The steps, checkpoint and spending that one attempt stores for later attempts."""

    def __init__(self, attempt: RunState, journal: Journal) -> None:
        self._state = attempt
        self._journal = journal
        # Every claim counts as an attempt, so a first attempt finds nothing, and need not query.
        first = attempt.grant.attempt == 1
        self._stored: dict[str, str] | None = {} if first else None
        self._checkpoint: str | None = None
        self._checkpoint_known = first
        self._names: set[str] = set()
        self._lock = threading.Lock()
        self.batch = StepBatch(attempt, journal)

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
        """Call the step's function until it returns, or has failed for the last time."""
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
        """Call the step's function; its spends are kept with the step."""
        mark = current_step.set(step)
        try:
            return step.function(*first, *step.args)
        finally:
            self._journal.end_if_copy()
            current_step.reset(mark)

    async def _call_async(self, step: Step) -> Any:
        mark = current_step.set(step)
        try:
            return await step.function(*step.args)
        finally:
            self._journal.end_if_copy()
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
        """Open a transaction; a repeat is safe, because nothing has been done in it yet."""
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


# -- one call ----------------------------------------------------------------------------------------------------------

Durability = Literal["each", "batch"]


class Step(Spender):
    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        durable: Durability,
        retry: Retry | None,
        tx: bool,
    ) -> None:
        super().__init__()
        self.name = checked_name(name, "step")
        if not callable(function):
            raise InvalidInput(
                "step", f"{function!r} cannot be called", "give the function, then its arguments"
            )
        if durable not in ("each", "batch"):
            raise InvalidInput("durable", f"{durable!r} is not known", "use 'each' or 'batch'")
        if tx and durable == "batch":
            raise InvalidInput(
                "durable", "cannot be 'batch' with tx=True", "a transaction commits its own step: use 'each'"
            )
        if tx and inspect.iscoroutinefunction(function):
            raise InvalidInput(
                "tx", f"{name!r} is an async function", "give a plain one: it runs in a thread"
            )
        self.function = function
        self.args = args
        self.batch = durable == "batch"
        self.tx = tx
        self.tries = 0
        """Tries that have failed."""
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
        self._retry = retry
        self._policy: Policy | None = None if retry is None else TaskSettings(retry=retry).policy()
        field = f"step {name!r}"
        self._codec = Codec(return_hint(function, field), field)

    def pack(self, value: Any) -> tuple[str, Any]:
        """Return the value as it is stored, and as the handler gets it. It is decoded before it is stored: a value that
        does not fit its annotation would not fit it in the next attempt either."""
        if inspect.iscoroutine(value):
            value.close()
            raise InvalidInput(
                "step",
                f"{self.name!r} returned a coroutine",
                "give the async function itself, then its arguments",
            )
        return self._codec.pack(value)

    def decode(self, text: str) -> Any:
        return self._codec.decode(text)

    def delay_after(self, error: Exception) -> float | None:
        """Seconds to wait before the next try; None: there is none."""
        self.tries += 1
        if self._retry is None or self._policy is None or isinstance(error, Signal | LeaseLost | OverBudget):
            return None
        if self.tries >= self._policy.max_attempts or not self._retry.covers(error):
            return None
        return backoff_delay(self._policy, self.tries, random.random())


# -- the batch ---------------------------------------------------------------------------------------------------------

logger = logging.getLogger("leasehold.worker")

BATCH_STEPS = 100
BATCH_BYTES = 1024 * 1024
BATCH_SECONDS = 1.0
"""A batch is written when the first of these limits is reached: a crash costs at most that much."""
NEVER = float("inf")


class Batch(dict[str, str]):
    """Results by the names of their steps, and what the steps have spent."""

    def __init__(self, steps: Mapping[str, str] | None = None, spends: Sequence[Spend] = ()) -> None:
        super().__init__(steps or {})
        self.spends = list(spends)


class StepBatch:
    """Steps that are not stored yet. The attempt writes them with its next step, or the worker's batch writer does."""

    def __init__(self, attempt: RunState, journal: Journal) -> None:
        self._state = attempt
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
        """Add a step; returns whether the batch is full, or has waited long enough."""
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
        """Whether a step waits to be stored, or is just being written; or whether a spend is not stored."""
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
        """Store these together with the batch. Returns when they are safe; raises when the attempt must end."""
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
        """Write the batch, for the batch writer: the attempt has had no reason to write for a while."""
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
        """Write the rest after the handler has ended, before its ending. One try: steps that were not written are only
        run again, and the settler finds out whether the lease still holds."""
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
        """Save a batch. False: the lease is lost; the batch's spends are recorded all the same, alone."""
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
        """Made with the first spend, or the first read of a budget."""
        if self._spending is None:
            with self._lock:
                if self._spending is None:
                    self._spending = RunSpending(self._state, self._journal.store)
        return self._spending

    def over_budget(self) -> OverBudget | None:
        return None if self._spending is None else self._spending.over()
