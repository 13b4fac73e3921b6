"""The operator's verbs: the only door of client and surfaces. Ids and values are checked here, once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from leasehold.domain.audit import AuditPage
from leasehold.domain.checks.names import checked_name, kept_name
from leasehold.domain.checks.texts import checked_criterion
from leasehold.domain.job import NewJob
from leasehold.domain.leases import LeasePage
from leasehold.domain.views import ExecutionRow, Finding, WorkerCard
from leasehold.operations.bulk import BulkOperations
from leasehold.operations.doctor import check_clock, examine
from leasehold.operations.failures import FailureOperations
from leasehold.operations.flow import FlowOperations
from leasehold.operations.groups import GroupOperations
from leasehold.operations.health import check_health
from leasehold.operations.hooks import HookOperations
from leasehold.operations.limits import LimitOperations
from leasehold.operations.metrics import MetricOperations
from leasehold.operations.mirrors import MirrorOperations
from leasehold.operations.schedules import ScheduleOperations
from leasehold.operations.scopes import ScopeOperations
from leasehold.operations.tenants import TenantOperations
from leasehold.operations.tokens import TokenOperations
from leasehold.stores.answers import Enqueued

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore


class Operations(
    BulkOperations,
    FailureOperations,
    FlowOperations,
    GroupOperations,
    ScopeOperations,
    LimitOperations,
    ScheduleOperations,
    MirrorOperations,
    HookOperations,
    TenantOperations,
    TokenOperations,
    MetricOperations,
):
    def __init__(
        self,
        find_store: Callable[[], JobStore],
        find_kinds: Callable[[], Mapping[str, str]] = dict,
        listen_url: str | None = None,
    ) -> None:
        super().__init__(find_store, find_kinds, listen_url)

    def run_schedule(self, name: str, job: NewJob, *, actor: str | None = None) -> Enqueued:
        """Store this job of a schedule, besides its ticks."""
        with self._recorded("schedule.run", checked_name(name, "schedule"), actor, job=job.id) as store:
            (made,) = self.enqueue([job])
            store.note_run(name, made.id)
        return made

    def now(self) -> datetime:
        """By the store's own clock."""
        return self._store.now()

    # -- workers and the database ------------------------------------------------------------------------------------
    def list_leases(self, owner: str | None = None, limit: int = 50, cursor: str | None = None) -> LeasePage:
        """Who runs what, since when, and for how long it is believed."""
        return self._store.list_leases(checked_criterion(owner, "owner"), limit, cursor)

    def list_executions(self, limit: int = 500) -> list[ExecutionRow]:
        """Commands and containers that run, watched or orphaned; the oldest first."""
        return self._store.list_executions(limit)

    def list_workers(self) -> list[WorkerCard]:
        return self._store.list_workers()

    def check_health(self) -> list[Finding]:
        """What a probe wants to know. Raises nothing that the database says."""
        return check_health(self._find_store)

    def check_clock(self) -> Finding:
        """How far this machine's clock is from the database's."""
        return check_clock(self._store)

    def schema_version(self) -> int:
        """Of the tables, as the last migration has left them."""
        return self._store.schema_version()

    def examine(self) -> list[Finding]:
        """Everything the doctor looks at."""
        return examine(self._store)

    def verify(self) -> list[str]:
        """What the schema lacks, by name."""
        return self._store.missing_objects()

    def upgrade(self, *, actor: str | None = None) -> list[int]:
        with self._recorded("upgrade", None, actor) as store:
            return store.upgrade()

    def list_audit(
        self,
        *,
        actor: str | None = None,
        verb: str | None = None,
        target: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> AuditPage:
        """What operators have done here, and were refused; newest first."""
        checked_criterion(target, "target")
        page = self._store.list_audit(
            checked_criterion(actor, "actor"),
            checked_criterion(verb, "verb"),
            target and kept_name(target, "target"),
            limit,
            cursor,
        )
        return replace(page, entries=self._all_whole(page.entries))

    def insert_sql(self, job: NewJob) -> str:
        """For other languages: what stores such a job."""
        return self._store.insert_sql(job)

    def upgrade_sql(self, after: int = 0) -> str:
        return self._store.upgrade_sql(after)
