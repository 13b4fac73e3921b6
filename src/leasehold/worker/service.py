"""The threads of a worker: the background loop of a role, written once, and the pools for handlers and for the
store."""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

from leasehold.domain.errors import StoreError
from leasehold.threads import ForkMark, end_copy, start_threads

logger = logging.getLogger("leasehold.worker")

SLOWEST = 30.0
ENDS_WITHIN = 5.0
"""Seconds that a stop waits for the beat under way."""


class Role(Protocol):
    """Something that runs beside the event loop as long as the worker lives."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Service:
    """Calls `beat` in its own thread until it is stopped. `beat` returns the seconds until the next call."""

    def __init__(
        self, name: str, beat: Callable[[], float], *, first: float = 0.0, slowest: float = SLOWEST
    ) -> None:
        self._role = name
        self._one_beat = beat
        self._first = first
        self._slowest = slowest
        """Longest pause, in seconds, between two tries while the database fails."""
        self._nudge = threading.Event()
        self._fork_mark = ForkMark()
        self._stopping = False
        self._troubles = 0
        self._thread = threading.Thread(target=self._run, name=f"leasehold-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def nudge(self) -> None:
        """Beat now."""
        self._nudge.set()

    def stop(self) -> None:
        self._stopping = True
        self._nudge.set()
        self._thread.join(ENDS_WITHIN)

    def _run(self) -> None:
        self._nudge.wait(self._first)
        while True:
            # Clear it before the beat: a stop or a nudge that comes later ends the wait below.
            self._nudge.clear()
            if self._stopping:
                return
            self._nudge.wait(self._beat_safely())

    def _beat_safely(self) -> float:
        """Wait out database trouble, and log it once; log a bug every time. Neither ends the loop."""
        try:
            try:
                pause = self._one_beat()
            finally:
                if self._fork_mark.is_copy:
                    end_copy()
        except StoreError as error:
            self._troubles += 1
            if self._troubles == 1:
                logger.warning("%s: %s; trying again", self._role, error)
            return min(self._slowest, 0.2 * 2.0 ** min(self._troubles, 10)) * random.uniform(0.5, 1.0)
        except Exception:
            logger.exception("%s: unexpected error; continuing", self._role)
            return 5.0
        if self._troubles:
            logger.info("%s: the database is back", self._role)
            self._troubles = 0
        return pause


# -- pools -------------------------------------------------------------------------------------------------------------

P = ParamSpec("P")
T = TypeVar("T")

STORE_THREADS = 2
"""Threads that claim and settle at the same time: a third only slows the others down."""
THIRD_THREAD_AFTER = 0.1
"""Seconds after which a third starts nevertheless: batches of endings that wait for a lock must not keep a worker from
its claims."""


class HandlerThreads:
    """At most `size` threads, the first one at once, others as needed. They are daemons: a thread that hangs must not
    keep the process from ending."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._started = 0
        self._busy = 0
        self._lock = threading.Lock()
        self._fork_mark = ForkMark()
        if size:
            self._start()

    def submit(self, call: Callable[[], None]) -> None:
        """Run the call in a thread; more than `size` calls wait for a free one."""
        with self._lock:
            self._busy += 1
            if self._busy > self._started and self._started < self._size:
                # The machine may have no room for another thread, or the interpreter is ending.
                with contextlib.suppress(RuntimeError):
                    self._start()
        self._calls.put(call)

    def _start(self) -> None:
        name = f"leasehold-handler-{self._started + 1}"
        threading.Thread(target=self._work, name=name, daemon=True).start()
        self._started += 1

    def close(self) -> None:
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            finally:
                if self._fork_mark.is_copy:
                    end_copy()
                with self._lock:
                    self._busy -= 1


class StoreThreads(ThreadPoolExecutor):
    def __init__(self) -> None:
        super().__init__(STORE_THREADS + 1, thread_name_prefix="leasehold-store")
        start_threads(super().submit, STORE_THREADS + 1)
        self._places = threading.Semaphore(STORE_THREADS)

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(self._in_turn, call, *args, **kwargs)

    def _in_turn(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        has_place = self._places.acquire(timeout=THIRD_THREAD_AFTER)
        try:
            return call(*args, **kwargs)
        finally:
            if has_place:
                self._places.release()
