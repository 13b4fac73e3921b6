"""A lock that a forked child finds open, for what it has to make anew before its threads may use it."""

from __future__ import annotations

import os
import threading


class ForkLock:
    """In the parent a thread may have held it at the moment of the fork; that thread is not there in the child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


after_fork = ForkLock()
"""One for all stores: it is taken once in the life of a child."""
