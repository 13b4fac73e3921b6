"""The verbs on tenants as a whole. What is in one is asked of its own store."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.domain.checks.names import checked_tenant
from leasehold.domain.views import TenantRow
from leasehold.operations.base import StoreDoor


class TenantOperations(StoreDoor):
    def create_tenant(self, name: str, *, actor: str | None = None) -> bool:
        name = checked_tenant(name)
        with self._recorded("tenant.create", name, actor) as store:
            return store.create_tenant(name)

    def list_tenants(self) -> list[TenantRow]:
        return self._store.list_tenants()

    def upgrade_tenants(
        self, names: Iterable[str] | None = None, *, actor: str | None = None
    ) -> dict[str, list[int]]:
        """Those named, or all; the versions that were applied, by name. The audit of each tenant tells of it."""
        if names is None:
            wanted = [row.name for row in self._store.list_tenants() if row.ready]
        else:
            wanted = [checked_tenant(name) for name in names]
        return {name: self._upgrade_tenant(name, actor) for name in wanted}

    def _upgrade_tenant(self, name: str, actor: str | None) -> list[int]:
        with self._recorded("tenant.upgrade", name, actor) as store:
            return store.upgrade_tenant(name)

    def drop_tenant(self, name: str, *, actor: str | None = None) -> None:
        name = checked_tenant(name)
        with self._recorded("tenant.drop", name, actor) as store:
            store.drop_tenant(name)
