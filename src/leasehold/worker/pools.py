"""The threads of a worker: for plain handlers, and for claims and settles."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

STORE_THREADS = 2
"""Threads that claim and settle at once: a third only slows the others down."""
THIRD_THREAD_AFTER = 0.1
"""Seconds after which a third starts nevertheless: batches of endings that wait for a lock must not keep a worker from
its claims."""


class HandlerThreads:
    """At most `size` threads, started as needed. They are daemons: a thread that hangs must not keep the process from
    ending."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._started = 0
        self._busy = 0
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], None]) -> None:
        """Run the call in a thread; more than `size` calls wait for a free one."""
        with self._lock:
            self._busy += 1
            if self._busy > self._started and self._started < self._size:
                self._started += 1
                name = f"leasehold-handler-{self._started}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        self._calls.put(call)

    def close(self) -> None:
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            finally:
                with self._lock:
                    self._busy -= 1


class StoreThreads(ThreadPoolExecutor):
    def __init__(self) -> None:
        super().__init__(STORE_THREADS + 1, thread_name_prefix="leasehold-store")
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
