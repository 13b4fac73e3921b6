"""The tenants of one store: opens theirs when they are needed, and tells workers of work in them."""

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
        cabinet: StoreCache | None = None,
        notify: Callable[[str, Hint], None] | None = None,
    ) -> None:
        """`upgrades`: whether a tenant's schema is brought up to date when it is opened."""
        self.control = control
        self._most_open = most_open
        self._upgrades = upgrades
        self.cabinet = cabinet or StoreCache(most_open)
        self._shares = cabinet is not None
        self._teller = None if notify else _Teller(control)
        self.notify: Callable[[str, Hint], None] = notify or self._teller  # type: ignore[assignment] # one of two callables

    def another(self) -> Directory:
        """Over a connection of its own; the same tenants are open, and no more of them."""
        return Directory(
            self.control.another(),
            most_open=self._most_open,
            upgrades=self._upgrades,
            cabinet=self.cabinet,
            notify=self.notify,
        )

    @contextmanager
    def use(self, name: str) -> Iterator[JobStore]:
        """Raises TenantNotFound."""
        try:
            with self.cabinet.use(
                name, id(self), partial(self._open, name), partial(self._find, name)
            ) as store:
                yield store
        except (SchemaIncomplete, DatabaseUnreachable) as error:
            self.cabinet.forget(name)
            try:
                self.control.find_tenant(name)
            except TenantNotFound as gone:
                raise gone from error
            raise

    def lending(self) -> AbstractContextManager[object]:
        return self.cabinet.lendable

    def close(self) -> None:
        if self._teller is not None:
            self._teller.flush()
        self.cabinet.close(id(self) if self._shares else None)
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


class _Teller:
    """Tells of tenants, many at once and not too often."""

    def __init__(self, control: JobStore) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._untold: dict[str, Hint] = {}
        self._throttle = NotifyThrottle(self._notify)
        # The process may end without a close: what is owed is told, or the job waits for the sweep.
        weakref.finalize(control, self._throttle.flush)

    def __call__(self, name: str, hint: Hint) -> None:
        with self._lock:
            self._untold[name] = self._untold.get(name, NOTHING) | hint
        self._throttle()

    def flush(self) -> None:
        self._throttle.flush()

    def _notify(self) -> None:
        with self._lock:
            untold, self._untold = self._untold, {}
        if untold:
            said = NOTHING
            for hint in untold.values():
                said |= hint
            self._control.notify_tenants(sorted(untold), said)
