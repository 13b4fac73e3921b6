"""Threads for plain handlers. They are daemons: one that hangs must not keep the process from ending."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class HandlerThreads:
    """At most `size` threads, started as they are needed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._started = 0
        self._busy = 0
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], None]) -> None:
        """More than `size` calls wait for their turn."""
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
