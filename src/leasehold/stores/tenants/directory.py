"""The tenants of one store: opens their stores on demand, and notifies workers of work in them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from leasehold.domain.errors import DatabaseUnreachable, SchemaIncomplete, TenantNotFound
from leasehold.stores.database.wakeups import NOTHING, Hint, NotifyThrottle
from leasehold.stores.tenants.store_cache import StoreCache

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
        """Over a connection of its own; the same tenants are open, and no more of them."""
        return Directory(
            self.control.another(),
            most_open=self._most_open,
            upgrades=self._upgrades,
            cache=self.cache,
            notify=self.notify,
        )

    @contextmanager
    def use(self, name: str) -> Iterator[JobStore]:
        """Raises TenantNotFound."""
        try:
            with self.cache.use(
                name, id(self), partial(self._open, name), partial(self._find, name)
            ) as store:
                yield store
        except (SchemaIncomplete, DatabaseUnreachable) as error:
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
    """Notifies of tenants in batches, and not too often."""

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
