"""Gives tenants that may have work their turns, and remembers when the others may have some."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from leasehold.stores.tenants.job_index import Name

LEAST = 5
"""Jobs that a turn asks for at least, if there is room: each turn is a claim of its own."""


class Turns:
    """For one set of queues and tasks: a tenant without work for these may have work for others."""

    def __init__(self, names: Iterable[Name]) -> None:
        self._lock = threading.Lock()
        self._ready: dict[Name, None] = dict.fromkeys(names)
        self._due: dict[Name, float] = {}

    def put_first(self, names: Iterable[Name]) -> None:
        """There may be work."""
        with self._lock:
            for name in names:
                self._ready.setdefault(name)

    def next(self, now: float) -> Name | bool:
        """The tenant whose turn it is; False: there is none. It is ready again after its next notification."""
        with self._lock:
            for name in [name for name, at in self._due.items() if at <= now]:
                del self._due[name]
                self._ready.setdefault(name)
            if not self._ready:
                return False
            name = next(iter(self._ready))
            del self._ready[name]
            return name

    def share(self, room: int) -> int:
        """The share of the room for the tenant whose turn it is, beside all that wait."""
        waiting = len(self._ready) + 1
        return min(room, max(-(-room // waiting), LEAST))

    def again(self, name: Name) -> None:
        """The tenant had work and may have more: it waits behind the others."""
        self.put_first([name])

    def later(self, name: Name, at: float | None) -> None:
        """The tenant had no work; its next job is due then."""
        with self._lock:
            self._due.pop(name, None)
            if at is not None:
                self._due[name] = at

    def forget(self, name: Name) -> None:
        with self._lock:
            self._ready.pop(name, None)
            self._due.pop(name, None)

    def opens_at(self, now: float) -> float | None:
        with self._lock:
            return now if self._ready.keys() - {None} else min(self._due.values(), default=None)
