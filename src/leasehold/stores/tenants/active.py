"""The tenants that a worker serves, read from the control table: new, recently active, and dropped ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from leasehold.stores.tenants.job_index import Name

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

OVERLAP = timedelta(seconds=10)
"""A row that is seen later may have been committed earlier: each read goes back by this much."""
AWAKE = 600.0
"""Seconds for which a tenant is visited at every beat after a notification."""
SWEEP = 30.0
"""Seconds after which every tenant is visited: that finds what a lost hint has hidden."""
FRESH = 0.02
"""Seconds for which a busy worker relies on its last read."""


class ActiveTenants:
    def __init__(
        self, control: JobStore, names: Sequence[str] | None, on_change: Callable[[Iterable[Name]], None]
    ) -> None:
        """`names` of None: all of them, and the app's own store."""
        self._control = control
        self._wanted = None if names is None else frozenset(names)
        self._on_change = on_change
        self._lock = threading.Lock()
        self._versions: dict[str, int] = {}
        self._awake_until: dict[str, float] = {}
        self._since: datetime | None = None
        self._read_at = float("-inf")
        self._all_at: dict[str, float] = {}
        self.own = names is None

    def names(self) -> list[Name]:
        with self._lock:
            return [*([None] if self.own else []), *self._versions]

    def serves(self, name: Name) -> bool:
        return self.own if name is None else self._wanted is None or name in self._wanted

    def read(self, fresh: bool = True) -> None:
        """Read the notifications since the last read. Not `fresh`: a read of a moment ago will do."""
        now = time.monotonic()
        with self._lock:
            if not fresh and now < self._read_at + FRESH:
                return
            first = self._since is None
            rows = self._control.notified_tenants(None if self._since is None else self._since - OVERLAP)
            clock = self._control.now() if first and rows else None
            changed: list[Name] = []
            for row in rows:
                self._since = row.changed_at if self._since is None else max(self._since, row.changed_at)
                if not row.ready or not self.serves(row.name):
                    self._versions.pop(row.name, None)
                elif self._versions.get(row.name) != row.version:
                    self._versions[row.name] = row.version
                    age = 0.0 if clock is None else (clock - row.changed_at).total_seconds()
                    self._awake_until[row.name] = now + AWAKE - age
                    changed.append(row.name)
            self._read_at = now
        if changed:
            self._on_change(changed)

    def is_awake(self, name: Name) -> bool:
        return name is None or self._awake_until.get(name, 0.0) > time.monotonic()

    def keep_awake(self, name: Name) -> None:
        if name is not None:
            self._awake_until[name] = max(self._awake_until.get(name, 0.0), time.monotonic() + 2 * SWEEP)

    def turn_of(self, what: str) -> tuple[list[Name], bool]:
        """The tenants to visit now: those that are awake; at the time of a sweep all of them, and True."""
        self.read(fresh=False)
        now = time.monotonic()
        with self._lock:
            every = now >= self._all_at.get(what, 0.0)
            if every:
                self._all_at[what] = now + SWEEP
        return [name for name in self.names() if every or self.is_awake(name)], every

    def forget(self, name: Name) -> None:
        with self._lock:
            if name is not None:
                self._versions.pop(name, None)
