"""The journal, which a worker's attempts share (store, threads, batch writer), and the waits of attempts."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from leasehold.domain.errors import ResultsUnwritable
from leasehold.domain.signals import StopRequested
from leasehold.run.state import RunState
from leasehold.threads import ForkMark, end_copy, until_done

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

logger = logging.getLogger("leasehold.worker")

T = TypeVar("T")


class Threads(Protocol):
    def submit(self, call: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


class Batching(Protocol):
    """The steps of an attempt that are not stored yet."""

    @property
    def due_at(self) -> float: ...

    def flush_late(self) -> None: ...


class BatchWriter(Protocol):
    def expect(self, steps: Batching) -> None:
        """Take on a new batch. Its attempt may write it with its next step, or do something else for an hour."""

    def stop(self) -> None: ...


class ResultsKept:
    """Attempts that keep their results until the folder for results takes them: logged once for all, when the first
    one begins and when the last one ends."""

    def __init__(self) -> None:
        self._attempts: set[RunState] = set()
        self._lock = threading.Lock()

    def begin(self, attempt: RunState, error: ResultsUnwritable) -> None:
        attempt.unwritten = str(error)
        with self._lock:
            first = not self._attempts
            self._attempts.add(attempt)
        if first:
            logger.warning("results are kept until their folder takes them: %s", error)

    def end(self, attempt: RunState) -> None:
        if attempt.unwritten and self.give_up(attempt):
            logger.info("the folder for results can be written to again")

    def give_up(self, attempt: RunState) -> bool:
        """Forget the attempt; returns whether it was the last one."""
        attempt.unwritten = ""
        with self._lock:
            self._attempts.discard(attempt)
            return not self._attempts


class Journal:
    def __init__(
        self,
        store: JobStore,
        worker: str,
        threads: Threads,
        batches: BatchWriter,
        on_lost: Callable[[str, int], None],
        waits: Waits | None = None,
    ) -> None:
        self.store = store
        self.worker = worker
        self.has_folder = store.results_folder is not None
        """Whether results can be stored as files."""
        self.results_kept = ResultsKept()
        self.waits = waits or Waits()
        self._threads = threads
        self._batches = batches
        self._on_lost = on_lost
        self._closed = False
        self.fork_mark = ForkMark()

    def end_if_copy(self) -> None:
        """End this process if it is a forked child that has come back from a handler or a step."""
        if self.fork_mark.is_copy:
            end_copy()

    def lost(self, attempt: RunState) -> None:
        """Report a refused write: the attempt must end, and must not be settled."""
        self._on_lost(attempt.grant.id, attempt.grant.token)

    def expect(self, steps: Batching) -> None:
        """Pass a new batch to the batch writer: it must be written even if its attempt does not return to it."""
        self._batches.expect(steps)

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call the function in a thread, and wait for its end even if the attempt is stopped meanwhile: the next
        attempt must not overlap with it. Then raise the stop."""
        if self._closed:
            # A handler left behind outlives its worker: no thread would ever answer it.
            raise StopRequested
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        variables = contextvars.copy_context()

        def notify(set_: Callable[[Any], None], answer: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
                loop.call_soon_threadsafe(set_, answer)

        def work() -> None:
            try:
                answer = variables.run(function, *args)
            except StopIteration as error:
                notify(future.set_exception, RuntimeError(f"raised StopIteration({error.value!r})"))
            except BaseException as error:
                notify(future.set_exception, error)
            else:
                notify(future.set_result, answer)

        self._threads.submit(work)
        stop = await until_done(future, lambda: None)
        if stop is not None:
            future.exception()  # retrieve it, or asyncio logs "exception was never retrieved"
            raise stop
        return future.result()

    def close(self) -> None:
        self._closed = True
        self._batches.stop()
        self._threads.close()


# -- waits -------------------------------------------------------------------------------------------------------------


class Waits:
    """The waits of one worker, in real seconds. `leasehold.testing` has others, on the test's clock."""

    longest_pause = 0.5
    """Most seconds until an attempt polls again, even if a rate opens later: it may be opened or changed meanwhile."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, attempt: RunState, seconds: float, timed: bool = True) -> None:
        """Wait in this thread, at most until the attempt must stop. Not `timed`: the caller polls for something that
        time alone does not bring."""
        attempt.wait(seconds)

    async def wait_async(self, attempt: RunState, seconds: float, timed: bool = True) -> None:
        """Wait on the loop; a stop cancels the wait."""
        await asyncio.sleep(seconds)
