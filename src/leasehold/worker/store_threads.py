"""The threads that claim and settle: two at a time, for a third at work only slows the others down."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 2
STUCK = 0.1
"""Seconds after which a third goes to work all the same: batches of endings that wait for a lock must not keep a worker
from its claims."""


class StoreThreads(ThreadPoolExecutor):
    def __init__(self) -> None:
        super().__init__(AT_ONCE + 1, thread_name_prefix="leasehold-store")
        self._places = threading.Semaphore(AT_ONCE)

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(self._in_turn, call, *args, **kwargs)

    def _in_turn(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        has_place = self._places.acquire(timeout=STUCK)
        try:
            return call(*args, **kwargs)
        finally:
            if has_place:
                self._places.release()
