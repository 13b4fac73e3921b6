"""Verbs and reads of whole tenants. The jobs of a tenant are in its own store."""

from __future__ import annotations

from leasehold.domain.records import TenantRow
from leasehold.operations.arguments import Actor, TenantName
from leasehold.operations.verb import Backend, read, verb


@verb("tenant.create", scope="admin", guard="all queues")
def create_tenant(backend: Backend, name: TenantName, *, actor: Actor = None) -> bool:
    """Create a tenant. It gets its own schema on PostgreSQL, its own file on SQLite."""
    return backend.store.create_tenant(name)


@verb("tenant.upgrade", scope="admin", guard="all queues")
def upgrade_tenant(backend: Backend, name: TenantName, *, actor: Actor = None) -> list[int]:
    """Bring the schema of a tenant up to date; return the versions that were applied. The tenant's own audit records
    it."""
    return backend.store.upgrade_tenant(name)


@verb("tenant.drop", scope="admin", guard="all queues", destructive=True)
def drop_tenant(backend: Backend, name: TenantName, *, actor: Actor = None) -> None:
    """Remove a tenant with all its jobs, for good."""
    backend.store.drop_tenant(name)


@read("tenants.list", guard="all queues")
def list_tenants(backend: Backend) -> list[TenantRow]:
    """List tenants, and when each last had work."""
    return backend.store.list_tenants()
