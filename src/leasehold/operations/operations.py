"""The operator's verbs: the only door of client and surfaces. Ids and values are checked here, once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from leasehold.domain.views import Finding, WorkerCard
from leasehold.operations.doctor import examine
from leasehold.operations.groups import GroupOperations
from leasehold.operations.health import check_health
from leasehold.operations.jobs import JobOperations
from leasehold.operations.limits import LimitOperations
from leasehold.operations.schedules import ScheduleOperations
from leasehold.operations.scopes import ScopeOperations
from leasehold.stores.contract import Store


class Operations(JobOperations, GroupOperations, ScopeOperations, LimitOperations, ScheduleOperations):
    def __init__(
        self,
        find_store: Callable[[], Store],
        find_kinds: Callable[[], Mapping[str, str]] = dict,
        listen_url: str | None = None,
    ) -> None:
        super().__init__(find_store, find_kinds, listen_url)

    # -- workers and the database ------------------------------------------------------------------------------------
    def list_workers(self) -> list[WorkerCard]:
        return self._store.list_workers()

    def check_health(self) -> list[Finding]:
        """What a probe wants to know. Raises nothing that the database says."""
        return check_health(self._find_store)

    def examine(self) -> list[Finding]:
        """Everything the doctor looks at."""
        return examine(self._store)

    def verify(self) -> list[str]:
        """What the schema lacks, by name."""
        return self._store.missing_objects()

    def upgrade(self) -> list[int]:
        return self._store.upgrade()

    def upgrade_sql(self, after: int = 0) -> str:
        return self._store.upgrade_sql(after)
