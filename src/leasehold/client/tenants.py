"""`app.tenants`: creates, upgrades, drops and lists tenants."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from leasehold.domain.records import TenantRow
from leasehold.operations import tenants
from leasehold.operations.operations import Operations
from leasehold.threads import aio


class Tenants:
    """All tenants. `app.tenant(name)` has the jobs of one tenant."""

    def __init__(self, operations: Operations, forget: Callable[[str], None]) -> None:
        """`forget` closes the store of a tenant, if this process has opened it."""
        self._operator = operations
        self._forget = forget

    def create(self, name: str, *, actor: str | None = None) -> bool:
        """Create a tenant: a schema of its own on PostgreSQL, a file of its own on SQLite. False: it existed already.
        Workers that serve all tenants serve it at once."""
        return self._operator.call(tenants.create_tenant, name, actor=actor)

    acreate = aio(create)

    def upgrade(
        self, names: Iterable[str] | None = None, *, actor: str | None = None
    ) -> dict[str, list[int]]:
        """Bring the schemas of these tenants, or of all, up to date; return the versions that were applied, by name.
        SQLite files are also upgraded when they are opened."""
        return self._operator.upgrade_tenants(names, actor=actor)

    aupgrade = aio(upgrade)

    def drop(self, name: str, *, actor: str | None = None) -> None:
        """Remove a tenant with all its jobs, for good. Raises TenantNotFound."""
        self._operator.call(tenants.drop_tenant, name, actor=actor)
        self._forget(name)

    adrop = aio(drop)

    def list(self) -> list[TenantRow]:
        """List every tenant; one that is not `ready` is being created or dropped."""
        return self._operator.call(tenants.list_tenants)

    alist = aio(list)
