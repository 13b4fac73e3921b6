"""Tenants: the list of tenants in their parent store. Each dialect decides where their own stores are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime

from leasehold.domain.checks.texts import checked_tenant
from leasehold.domain.checks.times import EARLIEST
from leasehold.domain.errors import InvalidInput, TenantNotFound
from leasehold.domain.records import TenantRow
from leasehold.stores.database.wakeups import Hint, notify_here, tenants_label
from leasehold.stores.verbs.writing import Verbs


class TenantVerbs(Verbs):
    """Tenants: stores beside this one, each with jobs of its own, in a schema on PostgreSQL and a file on SQLite. This
    store keeps the list of them."""

    def create_tenant(self, name: str) -> bool:
        """Create a tenant at the present version of the schema. False: it exists already, or another call has just
        created it. A tenant that is half created or half dropped is completed. Raises InvalidInput if its schema or
        file exists without an entry in the list."""
        checked_tenant(name)
        row = self._find(name)
        if row is not None and row.ready:
            return False
        if row is None:
            # Another process may have made both since: its row is there before its schema or file.
            if (taken := self._taken(name)) is not None and self._find(name) is None:
                raise InvalidInput(
                    "tenant",
                    f"{taken} is there, and belongs to no tenant",
                    "remove it, or choose another name",
                )
            # First the row: if the process dies on the way, the next call can go on from it.
            self._run("insert_tenant", name=name)
        self._make(name)
        return self._mark(name, ready=True)

    def drop_tenant(self, name: str) -> None:
        """Delete a tenant with its content. Workers drop it by themselves. Raises TenantNotFound."""
        if self._find(checked_tenant(name)) is None:
            raise TenantNotFound(name)
        self._mark(name, ready=False)
        self._remove(name)
        self._run("delete_tenant", name=name)

    def list_tenants(self) -> list[TenantRow]:
        """All tenants, including those that are not ready."""
        return [TenantRow(**row) for row in self._rows("list_tenants")]

    def find_tenant(self, name: str) -> TenantRow:
        """The tenant, if it is ready. Raises TenantNotFound."""
        row = self._find(checked_tenant(name))
        if row is None or not row.ready:
            raise TenantNotFound(name)
        return row

    def notified_tenants(self, since: datetime | None = None) -> list[TenantRow]:
        """The tenants that `notify_tenants` named since then, including new ones and those that are not ready."""
        return [TenantRow(**row) for row in self._rows("notified_tenants", since=since or EARLIEST)]

    def notify_tenants(self, names: Sequence[str], hint: Hint) -> None:
        """Notify the workers in every process that there may be work in these tenants; with STOP, that a running job
        may have a stop request."""
        self._run("notify_tenants", names=list(names))
        notify_here(tenants_label(self.label), hint)

    def _find(self, name: str) -> TenantRow | None:
        rows = self._rows("find_tenant", name=name)
        return TenantRow(**rows[0]) if rows else None

    def _mark(self, name: str, ready: bool) -> bool:
        """Whether this call has changed it."""
        changed = bool(
            self._database.single(lambda session: session.tuples("mark_tenant", name=name, ready=ready))
        )
        self.notify_tenants([name], Hint.WORK)
        return changed

    # -- each dialect's own ----------------------------------------------------------------------------------------
    @abstractmethod
    def _taken(self, name: str) -> str | None:
        """The schema or file that exists where the tenant's store would be, or None."""

    @abstractmethod
    def _make(self, name: str) -> None: ...

    @abstractmethod
    def _remove(self, name: str) -> None: ...
