"""Locks that a forked child finds open."""

from __future__ import annotations

import os
import threading
import weakref


class ForkLock:
    """In the parent a thread may have held it at the moment of the fork; that thread is not there in the child."""

    def __init__(self) -> None:
        self.renew()
        _all.add(self)

    def renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


_all: weakref.WeakSet[ForkLock] = weakref.WeakSet()
os.register_at_fork(after_in_child=_renew_all)

after_fork = ForkLock()
"""One for all stores: it is taken once in the life of a child."""
