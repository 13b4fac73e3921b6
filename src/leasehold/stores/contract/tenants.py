"""Other stores beside this one, each with jobs of its own, and how workers hear of work in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from leasehold.domain.views import TenantRow
from leasehold.stores.contract.wakeups import Hint, Wakeups

Tell = Callable[[Hint], None]
"""Called after the commit of what others may want to hear of."""


class Tenants(Protocol):
    """A schema each on PostgreSQL, a file each on SQLite. This store is the one that knows of them."""

    def create_tenant(self, name: str) -> bool:
        """Make it, at the present version of the schema. False: it was there already. One that was left half made, or
        half dropped, is made whole. Raises InvalidInput if the schema or the file is there and nobody knows why."""
        ...

    def upgrade_tenant(self, name: str) -> list[int]:
        """Apply its missing migrations; the versions that were applied. Raises TenantNotFound."""
        ...

    def drop_tenant(self, name: str) -> None:
        """With all it holds. Workers let go of it by themselves. Raises TenantNotFound."""
        ...

    def list_tenants(self) -> list[TenantRow]: ...

    def find_tenant(self, name: str) -> TenantRow:
        """One that is ready. Raises TenantNotFound."""
        ...

    def told_tenants(self, since: datetime | None = None) -> list[TenantRow]:
        """Those of which somebody has told from then on, new ones and those that are not ready included."""
        ...

    def tell_tenants(self, names: Sequence[str], hint: Hint) -> None:
        """Tell workers, in any process, that there may be work in these; or, with STOP, that a job that runs may have
        been told to stop."""
        ...

    def tenant_wakeups(self, listen_url: str | None = None) -> Wakeups:
        """The waiting side of `tell_tenants`, and of this store's own `wake` and `tell_holders`."""
        ...
