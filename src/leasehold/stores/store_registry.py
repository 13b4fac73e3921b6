"""The stores that an app has open: its own, those of its tenants, and the one that is all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from leasehold.domain.checks.names import EVERY_TENANT
from leasehold.stores.database.forks import ForkLock
from leasehold.stores.tenants.directory import Directory

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore
    from leasehold.stores.tenants.multi_store import ManyStores

MOST_FILES, MOST_SCHEMAS = 16, 200
"""Tenants that are open at once: files cost descriptors and memory, schemas only what is remembered of them."""


class OpenStores:
    """Nothing is opened before it is needed; what was closed is opened anew."""

    def __init__(self, open_own: Callable[[], JobStore], is_sqlite: Callable[[], bool]) -> None:
        self._open_own = open_own
        self._is_sqlite = is_sqlite
        self._opening = ForkLock()
        self._own: JobStore | None = None
        self._directory: Directory | None = None
        self._everybody: ManyStores | None = None

    @property
    def own(self) -> JobStore:
        """The app's own, which also knows of the tenants."""
        store = self._own
        if store is None:
            with self._opening:
                store = self._own
                if store is None:
                    store = self._own = self._open_own()
        return store

    @property
    def directory(self) -> Directory:
        own, found = self.own, self._directory
        if found is None:
            with self._opening:
                found = self._directory
                if found is None:
                    files = self._is_sqlite()
                    found = Directory(own, most_open=MOST_FILES if files else MOST_SCHEMAS, upgrades=files)
                    self._directory = found
        return found

    @property
    def all_tenants(self) -> ManyStores:
        """For what programs hand to a worker that claims nothing."""
        from leasehold.stores.tenants.multi_store import ManyStores  # loads every verb

        directory, found = self.directory, self._everybody
        if found is None:
            with self._opening:
                found = self._everybody
                if found is None:
                    found = self._everybody = ManyStores(directory, None)
        return found

    def serving(self, tenants: Sequence[str]) -> JobStore:
        """One store for a worker that serves these."""
        from leasehold.stores.tenants.multi_store import ManyStores  # loads every verb

        return ManyStores(self.directory, None if EVERY_TENANT in tenants else tenants).as_store

    def forget(self, tenant: str) -> None:
        """It was dropped."""
        if self._directory is not None:
            self._directory.cache.drop(tenant)

    def close(self) -> None:
        with self._opening:
            own, self._own = self._own, None
            directory, self._directory = self._directory, None
            self._everybody = None
        if directory is not None:
            directory.close()
        if own is not None:
            own.close()
