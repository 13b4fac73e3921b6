"""The steps of one run: each result is stored under its name, and what is stored is not run again.

Blocking all through: an async handler's plain functions, and every write, go through `Durable.call`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from leasehold.domain.budgets import Spend
from leasehold.domain.checks.payload import encode
from leasehold.domain.errors import DatabaseUnreachable, DuplicateStep, InvalidInput, LeaseLost, OverBudget
from leasehold.domain.policy import Policy, backoff_delay
from leasehold.domain.signals import Signal, StopRequested
from leasehold.run.spending import Purse, current_step
from leasehold.stores.contract import Transaction
from leasehold.tasks.codec import Codec
from leasehold.tasks.definition import Retry, TaskSettings, checked_name

if TYPE_CHECKING:
    from leasehold.run.context import RunFacts
    from leasehold.run.journal import Durable

T = TypeVar("T")
Durability = Literal["each", "batch"]

BATCH_STEPS = 100
BATCH_BYTES = 1024 * 1024
BATCH_SECONDS = 1.0
"""A batch is written when the first of these is reached: what a crash can cost at most."""
TRANSACTION_SECONDS = 5.0
NEVER = float("inf")


class Step:
    """One call of `ctx.step`, checked before anything runs."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        durable: Durability,
        retry: Retry | None,
        tx: bool,
    ) -> None:
        self.name = checked_name(name, "step")
        if not callable(function):
            raise InvalidInput(
                "step", f"{function!r} cannot be called", "give the function, then its arguments"
            )
        if durable not in ("each", "batch"):
            raise InvalidInput("durable", f"{durable!r} is not known", "use 'each' or 'batch'")
        if tx and durable == "batch":
            raise InvalidInput(
                "durable", "is 'batch' beside tx=True", "a transaction commits its own step: use 'each'"
            )
        if tx and inspect.iscoroutinefunction(function):
            raise InvalidInput(
                "tx", f"{name!r} is an async function", "give a plain one: it runs in a thread"
            )
        self.function = function
        self.args = args
        self.batch = durable == "batch"
        self.tx = tx
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
        self._retry = retry
        self._policy: Policy | None = None if retry is None else TaskSettings(retry=retry).policy()
        self._codec = Codec(function, f"step {name!r}")
        self.book: Steps | None = None
        self.spends: Sequence[Spend] = ()
        """What its function has spent, and nobody has written yet."""
        self.ended = False

    def encode(self, value: Any) -> str:
        return self._codec.encode(value)

    def decode(self, text: str) -> Any:
        return self._codec.decode(text)

    def take_spends(self) -> Sequence[Spend]:
        spends, self.spends = self.spends, ()
        return spends

    def delay_after(self, error: Exception, tries: int) -> float | None:
        """Seconds to wait before the next try; None: there is none."""
        if self._retry is None or self._policy is None or isinstance(error, Signal | LeaseLost | OverBudget):
            return None
        if tries >= self._policy.max_attempts or not self._retry.covers(error):
            return None
        return backoff_delay(self._policy, tries, random.random())


class Batch(dict[str, str]):
    """Results by the names of their steps, and what the steps have spent."""

    def __init__(self, steps: Mapping[str, str] | None = None, spends: Sequence[Spend] = ()) -> None:
        super().__init__(steps or {})
        self.spends = list(spends)


class Steps:
    """What one run keeps for the runs that follow it."""

    def __init__(self, context: RunFacts, durable: Durable) -> None:
        self._context = context
        self._durable = durable
        # Every claim counts as an attempt, so a first one finds nothing, and need not look.
        first = context.attempt == 1
        self._stored: dict[str, str] | None = {} if first else None
        self._state: str | None = None
        self._state_known = first
        self._names: set[str] = set()
        self._batch = Batch()
        self._purse: Purse | None = None
        self.held_spends: list[Spend] | None = None
        """While `ctx.complete` has its transaction open: they are committed with it."""
        self._batch_bytes = 0
        self.due_at = NEVER
        """When the batch must be written, on the monotonic clock."""
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        """One write at a time: who comes after it may rely on what was before it."""

    # -- a step ----------------------------------------------------------------------------------------------------
    def begin(self, step: Step) -> None:
        self.refuse_after_completion("step")
        self._show_life()
        with self._lock:
            if step.name in self._names:
                raise DuplicateStep(step.name)
            self._names.add(step.name)
        step.book = self

    def run(self, step: Step) -> Any:
        """From the look whether it is stored to its decoded result, in this thread."""
        found = self._find(step)
        if found is not None:
            return step.decode(found)
        try:
            return self._run(step)
        finally:
            step.ended = True
            self._give_up(step)

    def _run(self, step: Step) -> Any:
        tries = 0
        while True:
            self._context.raise_if_stopped()
            try:
                if step.tx:
                    return self._run_in_transaction(step, tries)
                value = self._call(step)
            except Exception as error:
                tries += 1
                delay = step.delay_after(error, tries)
                if delay is None:
                    raise
                self._give_up(step)
                self._context._stopped.wait(delay)
            else:
                return self._keep(step, value)

    async def run_async(self, step: Step) -> Any:
        """As `run`, for an async handler: an async function on the loop, everything that blocks in a thread."""
        if self._stored is None:
            await self._durable.call(self._load)
        if not step.is_async and not self._is_stored(step):
            return await self._durable.call(self.run, step)
        found = self._find(step)
        if found is not None:
            return step.decode(found)
        try:
            value = await self._try_async(step)
            text = step.encode(value)
            answer = step.decode(text)
            if not step.batch or self._add(step, text):
                await self._durable.call(self._write_step, step, text)
            return answer
        finally:
            step.ended = True
            if step.spends:
                with contextlib.suppress(StopRequested):  # it has outlived its worker: nobody writes for it
                    await self._durable.call(self._give_up, step)

    def _call(self, step: Step, *first: Any) -> Any:
        """What the function spends is kept with the step."""
        mark = current_step.set(step)
        try:
            return step.function(*first, *step.args)
        finally:
            current_step.reset(mark)

    def _give_up(self, step: Step) -> None:
        if step.spends:
            self.purse.give_up(step.take_spends())

    async def _try_async(self, step: Step) -> Any:
        tries = 0
        while True:
            mark = current_step.set(step)
            try:
                return await step.function(*step.args)
            except Exception as error:
                tries += 1
                delay = step.delay_after(error, tries)
                if delay is None:
                    raise
                if step.spends:
                    await self._durable.call(self._give_up, step)
                await asyncio.sleep(delay)  # a stop ends it
            finally:
                current_step.reset(mark)

    def _keep(self, step: Step, value: Any) -> Any:
        # Decoded before it is stored: what does not fit its annotation would fit it no better in the next run.
        if inspect.iscoroutine(value):
            value.close()
            raise InvalidInput(
                "step",
                f"{step.name!r} returned a coroutine",
                "give the async function itself, then its arguments",
            )
        text = step.encode(value)
        answer = step.decode(text)
        if not step.batch or self._add(step, text):
            self._write_step(step, text)
        return answer

    def _write_step(self, step: Step, text: str) -> None:
        """A step of a batch stands in it already."""
        if step.batch:
            self.write({})
        else:
            self.write({step.name: text}, spends=step.take_spends())

    def _run_in_transaction(self, step: Step, tries: int) -> Any:
        context = self._context
        try:
            with ExitStack() as stack:
                tx = self.open_transaction(stack)
                # A commit whose answer was lost may have arrived: the row's lock waits for it.
                found = tx.load_steps().get(step.name) if tries else None
                if found is not None:
                    return step.decode(found)
                text = step.encode(self._call(step, tx.connection))
                answer = step.decode(text)
                tx.save_steps({step.name: text})
                lines = tx.spend(context.attempt, step.spends) if step.spends else None
            if step.spends:
                self.purse.wrote(step.take_spends(), lines)
            return answer
        except LeaseLost:
            self._lost()
        except DatabaseUnreachable:
            stored = self.patiently(lambda: self._durable.store.load_steps(context.job_id))
            if step.name not in stored:
                raise
            if step.spends:
                self.purse.wrote(step.take_spends(), None)
            return step.decode(stored[step.name])

    def _show_life(self) -> None:
        """For `stall_after`: whoever steps on is not stuck."""
        self._context._told_at = time.monotonic()

    def open_transaction(self, stack: ExitStack) -> Transaction:
        """Patiently: nothing has been done in it yet."""
        job_id, token = self._context.job_id, self._context.lease_token
        store = self._durable.store
        return self.patiently(
            lambda: stack.enter_context(store.transaction(job_id, token, TRANSACTION_SECONDS))
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
        found = self.patiently(lambda: self._durable.store.load_steps(self._context.job_id))
        with self._lock:
            if self._stored is None:
                self._stored = found

    def write(self, steps: Mapping[str, str], state: str | None = None, spends: Sequence[Spend] = ()) -> None:
        """Store these together with the batch. Returns when they are safe; raises when the run must end."""
        self._show_life()
        with self._writing:
            written = self.take_batch()
            written.update(steps)
            written.spends += spends
            if not written and state is None:
                return
            try:
                held = self.patiently(lambda: self._save(written, state))
            except BaseException:
                self.put_back(written)
                raise
        if not held:
            self._lost()

    def _save(self, written: Batch, state: str | None = None) -> bool:
        """False: the lease is lost. What was spent is recorded all the same, by itself."""
        context, store = self._context, self._durable.store
        if written.spends:
            lines = store.save_spent_steps(
                context.job_id, context.lease_token, context.attempt, written, written.spends
            )
            spends, written.spends = written.spends, []
            if lines is None:
                self.purse.give_up(spends)
                return False
            self.purse.wrote(spends, lines)
            if state is None:
                return True
        return store.save_steps(context.job_id, context.lease_token, written, state)

    def _lost(self) -> NoReturn:
        self._durable.lost(self._context)
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
            self._durable.expect(self)
        return full or time.monotonic() >= self.due_at

    @property
    def has_batch(self) -> bool:
        """Or one is just being written; or something spent is not."""
        loose = self._purse is not None and self._purse.has_loose
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
        self._durable.expect(self)

    def flush_late(self) -> None:
        """By the clockwork: its run has had no reason to write for a while."""
        context = self._context
        with self._writing:
            batch = self.take_batch()
            if not batch:
                return
            try:
                held = self._save(batch)
            except BaseException:
                self.put_back(batch)
                raise
        if not held and not context._completed:
            self._durable.lost(context)

    def finish(self) -> None:
        """The handler has ended; its ending follows. One try: what it fails to write is only run again, and whether
        the lease still holds is the settle's business."""
        with self._writing:
            batch = self.take_batch()
            try:
                if batch:
                    self._save(batch)
            finally:
                if batch.spends:
                    self.purse.give_up(batch.spends)
                if self._purse is not None:
                    self._purse.flush_at_the_end()

    @property
    def purse(self) -> Purse:
        """Made when something is first spent, or asked about."""
        if self._purse is None:
            with self._lock:
                if self._purse is None:
                    self._purse = Purse(self._context, self._durable, self)
        return self._purse

    def over_budget(self) -> OverBudget | None:
        return None if self._purse is None else self._purse.over()

    # -- the checkpoint --------------------------------------------------------------------------------------------
    def checkpoint(self, state: Any) -> None:
        self.refuse_after_completion("checkpoint")
        text = encode(state, "checkpoint")
        self.write({}, text)
        self._state, self._state_known = text, True

    def load_saved(self) -> None:
        if not self._state_known:
            self._state = self.patiently(lambda: self._durable.store.load_checkpoint(self._context.job_id))
            self._state_known = True

    @property
    def saved(self) -> Any:
        self.load_saved()
        return None if self._state is None else json.loads(self._state)

    # -- trouble ---------------------------------------------------------------------------------------------------
    def patiently(self, ask: Callable[[], T]) -> T:
        """While the database is away the run waits, as long as its lease is good: a result that was computed is not
        thrown away. Only for what may be repeated."""
        pause = 0.1
        while True:
            try:
                return ask()
            except DatabaseUnreachable as error:
                if self._context.stop_requested:
                    raise StopRequested from error
            self._context._stopped.wait(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, 2.0)

    def refuse_after_completion(self, verb: str) -> None:
        if self._context._completed:
            raise InvalidInput(verb, "comes after ctx.complete", "complete is the handler's last act")
