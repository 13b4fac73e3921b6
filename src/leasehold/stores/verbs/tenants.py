"""Tenants: the rows that know of them. Where their stores are is each dialect's own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from leasehold.domain.checks.instants import EARLIEST
from leasehold.domain.checks.names import checked_tenant
from leasehold.domain.errors import InvalidInput, TenantNotFound
from leasehold.domain.views import TenantRow
from leasehold.stores.base.audit import recorded_in
from leasehold.stores.base.wakeups import tenants_of, wake_here
from leasehold.stores.contract import Store
from leasehold.stores.contract.tenants import Tell
from leasehold.stores.contract.wakeups import Hint
from leasehold.stores.verbs.writing import Verbs


class TenantVerbs(Verbs):
    def create_tenant(self, name: str) -> bool:
        checked_tenant(name)
        row = self._find(name)
        if row is not None and row.ready:
            return False
        if row is None:
            if (taken := self._taken(name)) is not None:
                raise InvalidInput(
                    "tenant",
                    f"{taken} is there, and belongs to no tenant",
                    "remove it, or choose another name",
                )
            # First the row: whoever dies on the way leaves something that the next call can go on with.
            self._database.single(lambda session: session.run("insert_tenant", name=name))
        self._make(name)
        self._mark(name, ready=True)
        return True

    def upgrade_tenant(self, name: str) -> list[int]:
        self.find_tenant(name)
        store = self.open_tenant(name, ignore)
        try:
            with recorded_in(store.label):
                return store.upgrade()
        finally:
            store.close()

    def drop_tenant(self, name: str) -> None:
        if self._find(checked_tenant(name)) is None:
            raise TenantNotFound(name)
        self._mark(name, ready=False)
        self._remove(name)
        self._database.single(lambda session: session.run("delete_tenant", name=name))

    def list_tenants(self) -> list[TenantRow]:
        return [TenantRow(**row) for row in self._database.read(lambda session: session.rows("list_tenants"))]

    def find_tenant(self, name: str) -> TenantRow:
        row = self._find(checked_tenant(name))
        if row is None or not row.ready:
            raise TenantNotFound(name)
        return row

    def told_tenants(self, since: datetime | None = None) -> list[TenantRow]:
        rows = self._database.read(lambda session: session.rows("told_tenants", since=since or EARLIEST))
        return [TenantRow(**row) for row in rows]

    def tell_tenants(self, names: Sequence[str], hint: Hint) -> None:
        self._database.single(lambda session: session.run("tell_tenants", names=list(names)))
        wake_here(tenants_of(self.label), hint)

    def _find(self, name: str) -> TenantRow | None:
        rows = self._database.read(lambda session: session.rows("find_tenant", name=name))
        return TenantRow(**rows[0]) if rows else None

    def _mark(self, name: str, ready: bool) -> None:
        self._database.single(lambda session: session.run("mark_tenant", name=name, ready=ready))
        self.tell_tenants([name], Hint.WORK)

    # -- each dialect's own ----------------------------------------------------------------------------------------
    def open_tenant(self, name: str, tell: Tell) -> Store:
        raise NotImplementedError

    def _taken(self, name: str) -> str | None:
        """What stands where the tenant's store would be."""
        raise NotImplementedError

    def _make(self, name: str) -> None:
        raise NotImplementedError

    def _remove(self, name: str) -> None:
        raise NotImplementedError


def ignore(hint: Hint) -> None:
    """Nobody has to hear of it."""
