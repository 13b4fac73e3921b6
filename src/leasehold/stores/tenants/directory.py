"""The tenants of one store: opens their stores when needed, up to a limit, and notifies workers of work in them."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from leasehold.domain.errors import (
    DatabaseDamaged,
    DatabaseUnreachable,
    SchemaIncomplete,
    SchemaOutdated,
    TenantNotFound,
)
from leasehold.stores.database.wakeups import NOTHING, Hint, NotifyThrottle

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore


class Directory:
    def __init__(
        self,
        control: JobStore,
        *,
        most_open: int,
        upgrades: bool,
        cache: StoreCache | None = None,
        notify: Callable[[str, Hint], None] | None = None,
    ) -> None:
        """`upgrades`: whether a tenant's schema is brought up to date when it is opened."""
        self.control = control
        self._most_open = most_open
        self._upgrades = upgrades
        self.cache = cache or StoreCache(most_open)
        self._shares = cache is not None
        self._notifier = None if notify else _TenantNotifier(control)
        self.notify: Callable[[str, Hint], None] = notify or self._notifier  # type: ignore[assignment] # one of two callables

    def another(self) -> Directory:
        """A directory over a connection of its own. It shares the open tenants and their limit."""
        return Directory(
            self.control.another(),
            most_open=self._most_open,
            upgrades=self._upgrades,
            cache=self.cache,
            notify=self.notify,
        )

    @contextmanager
    def use(self, name: str) -> Iterator[JobStore]:
        """The tenant's store, open in the block. Raises TenantNotFound."""
        try:
            with self.cache.use(
                name, id(self), partial(self._open, name), partial(self._find, name)
            ) as store:
                yield store
        except (SchemaIncomplete, SchemaOutdated, DatabaseUnreachable) as error:
            if isinstance(error, DatabaseDamaged):
                self.cache.drop(name)  # once it is repaired, nothing read before is true
            else:
                self.cache.forget(name)
            try:
                self.control.find_tenant(name)
            except TenantNotFound as gone:
                raise gone from error
            raise

    def lending(self) -> AbstractContextManager[object]:
        return self.cache.lendable

    def close(self) -> None:
        if self._notifier is not None:
            self._notifier.flush()
        self.cache.close(id(self) if self._shares else None)
        if self._shares:
            self.control.close()

    def _find(self, name: str) -> object:
        return self.control.find_tenant(name).created_at

    def _open(self, name: str) -> JobStore:
        store = self.control.open_tenant(name, partial(self.notify, name))
        try:
            if self._upgrades:
                store.upgrade()
            store.check_schema()
        except BaseException:
            store.close()
            raise
        return store


class _TenantNotifier:
    """Sends notifications about tenants in batches, and not too often."""

    def __init__(self, control: JobStore) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._pending: dict[str, Hint] = {}
        self._throttle = NotifyThrottle(self._notify)
        # The process may end without a close: send what is pending, or the job waits for the sweep.
        weakref.finalize(control, self._throttle.flush)

    def __call__(self, name: str, hint: Hint) -> None:
        with self._lock:
            self._pending[name] = self._pending.get(name, NOTHING) | hint
        self._throttle()

    def flush(self) -> None:
        self._throttle.flush()

    def _notify(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, {}
        if pending:
            hints = NOTHING
            for hint in pending.values():
                hints |= hint
            self._control.notify_tenants(sorted(pending), hints)


# -- the open stores ---------------------------------------------------------------------------------------------------

WAIT_SECONDS = 15.0
"""Seconds to wait for a free place when all open stores are in use."""
LOOKED_AT_FOR = 5.0
"""Seconds after which to check again that the tenant still exists. A tenant that was dropped and made anew is another
tenant: what a store cached of the old one is no longer true."""

Opener = Callable[[], "JobStore"]


@dataclass(eq=False)
class _Open:
    name: str
    users: int = 0
    leases: int = 0
    """Leases held by this process: a tenant that has some will be needed again soon."""
    made_at: object = None
    looked_at: float = 0.0
    stores: dict[object, JobStore] = field(default_factory=dict)
    """Stores by the directory that opened them: the lease keeper has connections of its own."""


class StoreCache:
    def __init__(self, most: int) -> None:
        self._most = most
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._open: dict[str, _Open] = {}
        """The open stores by tenant, in the order of their last use, the most recent last."""
        self.lendable = threading.Semaphore(max(1, self._most // 2))
        """Limits handlers' own transactions, which may take seconds: claims and renewals need their tenants too."""
        self._pid = os.getpid()

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def use(self, name: str, owner: object, opener: Opener, find: Callable[[], object]) -> Iterator[JobStore]:
        """The tenant's store, which stays open meanwhile. `find` returns when the tenant was made."""
        if self._pid != os.getpid():
            self._begin()  # SQLite files were closed before the fork, and PostgreSQL's pool handles a fork itself
        entry = self._enter(name)
        try:
            now = time.monotonic()
            if now - entry.looked_at > LOOKED_AT_FOR:
                made_at = find()
                with self._changed:
                    old = dict(entry.stores) if made_at != entry.made_at else {}
                    if old:
                        entry.stores.clear()
                    entry.made_at, entry.looked_at = made_at, now
                for one in old.values():
                    one.close()
            store = entry.stores.get(owner)
            if store is None:
                store = self._opened(entry, owner, opener)
            yield store
        finally:
            self._leave(entry)

    def hold(self, name: str, leases: int) -> None:
        """Count leases of this tenant that this process holds; negative: it has given them up."""
        with self._changed:
            if (entry := self._open.get(name)) is not None:
                entry.leases = max(0, entry.leases + leases)

    def forget(self, name: str) -> None:
        """Check the tenant again at its next use."""
        with self._changed:
            if (entry := self._open.get(name)) is not None:
                entry.looked_at, entry.made_at = 0.0, None

    def drop(self, name: str) -> None:
        """Close the tenant's open stores, even those in use: their next statement fails."""
        with self._changed:
            entry = self._open.get(name)
            stores = [] if entry is None else list(entry.stores.values())
            if entry is not None:
                entry.stores.clear()
                entry.looked_at, entry.made_at = 0.0, None
        for store in stores:
            store.close()

    def close(self, owner: object = None) -> None:
        """Close the stores that this directory has opened; without one, all."""
        with self._changed:
            found = [
                entry.stores.pop(key)
                for entry in self._open.values()
                for key in list(entry.stores)
                if owner is None or key == owner
            ]
        for store in found:
            store.close()

    def _enter(self, name: str) -> _Open:
        deadline = time.monotonic() + WAIT_SECONDS
        closing: list[JobStore] = []
        with self._changed:
            while name not in self._open and len(self._open) >= self._most:
                idle = [entry for entry in self._open.values() if not entry.users]
                if idle:
                    # Tenants with leases are closed last: their leases are renewed all the time.
                    worst = min(idle, key=lambda entry: entry.leases > 0)
                    del self._open[worst.name]
                    closing += worst.stores.values()
                elif not self._changed.wait(deadline - time.monotonic()):
                    raise DatabaseUnreachable(
                        f"tenant {name}",
                        f"all {self._most} tenants that may be open at once were in use for {WAIT_SECONDS:g} s",
                    )
            entry = self._open.pop(name, None) or _Open(name)
            self._open[name] = entry
            entry.users += 1
        for store in closing:
            store.close()
        return entry

    def _leave(self, entry: _Open) -> None:
        with self._changed:
            entry.users -= 1
            if not entry.users:
                self._changed.notify()
                if not entry.stores and self._open.get(entry.name) is entry:
                    del self._open[entry.name]  # it could not be opened

    def _opened(self, entry: _Open, owner: object, opener: Opener) -> JobStore:
        store = opener()
        with self._changed:
            there = entry.stores.setdefault(owner, store)
        if there is not store:  # another thread was faster
            store.close()
        return there
