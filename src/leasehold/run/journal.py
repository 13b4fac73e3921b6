"""What the runs of one worker share for their steps, checkpoints and transactions: the store, threads, the clockwork
that writes batches which nobody else writes."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from leasehold.domain.checks.durations import Duration
from leasehold.domain.errors import InvalidInput
from leasehold.domain.signals import StopRequested
from leasehold.run.asking import Ask
from leasehold.run.complete import SyncTransaction, Transaction, complete, complete_async
from leasehold.run.steps import NEVER, Durability, Step, Steps
from leasehold.stores.contract import Store
from leasehold.tasks.definition import Retry, TaskDefinition
from leasehold.worker.pools import HandlerThreads
from leasehold.worker.service import Service

if TYPE_CHECKING:
    from leasehold.run.context import Context, RunFacts

logger = logging.getLogger("leasehold.worker")

T = TypeVar("T")

IDLE = 3600.0


class Durable:
    def __init__(
        self,
        store: Store,
        owner: str,
        tasks: Mapping[str, TaskDefinition],
        threads: int,
        on_lost: Callable[[str, int], None],
    ) -> None:
        self.store = store
        self.owner = owner
        self.tasks = tasks
        self._on_lost = on_lost
        self._threads = HandlerThreads(threads)
        self._lock = threading.Lock()
        self._batching: set[Steps] = set()
        self._flusher: Service | None = None
        self._closed = False

    def lost(self, context: RunFacts) -> None:
        """A write was refused: the run must end, and nothing of it may be settled."""
        self._on_lost(context.job_id, context.lease_token)

    # -- what a context asks for -----------------------------------------------------------------------------------
    def open_book(self, context: RunFacts) -> Steps:
        return Steps(context, self)

    def run_step(
        self,
        book: Steps,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        durable: Durability,
        retry: Retry | None,
        tx: bool,
    ) -> Any:
        step = Step(name, function, args, durable, retry, tx)
        if step.is_async:
            raise InvalidInput(
                "step", f"{name!r} is an async function", "make the task async, or the step plain"
            )
        book.begin(step)
        return book.run(step)

    async def run_step_async(
        self,
        book: Steps,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        durable: Durability,
        retry: Retry | None,
        tx: bool,
    ) -> Any:
        step = Step(name, function, args, durable, retry, tx)
        book.begin(step)
        return await book.run_async(step)

    def finish(self, book: Steps) -> None:
        """The handler has ended, and its ending is about to be settled."""
        try:
            book.finish()
        except Exception as error:
            logger.warning("some steps of an ended run were not stored: %s", error)

    async def finish_async(self, book: Steps) -> None:
        if book.has_batch:
            with contextlib.suppress(asyncio.CancelledError):  # it has ended; a stop comes too late
                await self.call(self.finish, book)

    def make_ask(self, key: str, text: str, schema: Any, secret: bool, timeout: Duration | None) -> Ask:
        return Ask(key, text, schema, secret, timeout)

    def complete(self, context: RunFacts, result: Any) -> AbstractContextManager[SyncTransaction]:
        return complete(context, self, result)

    def complete_async(self, context: Context, result: Any) -> AbstractAsyncContextManager[Transaction]:
        return complete_async(context, self, result)

    # -- threads ---------------------------------------------------------------------------------------------------
    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call it in a thread, and wait for its end even if the run is stopped meanwhile: a successor must not meet
        it. The stop is raised then."""
        if self._closed:
            # An abandoned handler goes on after its worker: nobody would ever answer it.
            raise StopRequested
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        variables = contextvars.copy_context()

        def tell(set_: Callable[[Any], None], answer: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(set_, answer)

        def work() -> None:
            try:
                answer = variables.run(function, *args)
            except StopIteration as error:
                tell(future.set_exception, RuntimeError(f"raised StopIteration({error.value!r})"))
            except BaseException as error:
                tell(future.set_exception, error)
            else:
                tell(future.set_result, answer)

        self._threads.submit(work)
        stop: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                stop = error
        if stop is not None:
            future.exception()  # looked at, or asyncio would call it forgotten
            raise stop
        return future.result()

    # -- batches ---------------------------------------------------------------------------------------------------
    def expect(self, steps: Steps) -> None:
        """A batch has begun. Its run may write it with its next step, or do something else for an hour."""
        with self._lock:
            self._batching.add(steps)
            if self._flusher is None:
                self._flusher = Service("step batches", self._flush_due, slowest=1.0)
                self._flusher.start()
        self._flusher.nudge()

    def _flush_due(self) -> float:
        with self._lock:
            batching = list(self._batching)
        for steps in batching:
            if steps.due_at <= time.monotonic():
                steps.flush_late()
        with self._lock:
            # Due times are set before `expect` is called, so none that is needed is dropped here.
            self._batching = {steps for steps in self._batching if steps.due_at != NEVER}
            due = min((steps.due_at for steps in self._batching), default=NEVER)
        return min(IDLE, max(0.01, due - time.monotonic()))

    def close(self) -> None:
        self._closed = True
        if self._flusher is not None:
            self._flusher.stop()
        self._threads.close()
