"""The store: every verb of a job's life over one database. The docstrings of the verbs are its contract.

A store is synchronous and safe to use from several threads. Every verb is one short transaction: all of it has happened
when the call returns, or nothing when it raises. tests/contract checks the promises on every database.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import ClassVar, TypeVar

from leasehold.domain.errors import SchemaIncomplete
from leasehold.domain.job import Grant
from leasehold.domain.records import Finding, WorkerProblem
from leasehold.stores.database.statements import check_version
from leasehold.stores.database.wakeups import Hint, Notify, Wakeups, ignore, notify_here
from leasehold.stores.results import Order
from leasehold.stores.verbs.audit import AuditVerbs, recorded_in
from leasehold.stores.verbs.budgets import BudgetVerbs
from leasehold.stores.verbs.caller_transaction import CallerTransactionVerbs
from leasehold.stores.verbs.claim import ClaimRequest, ClaimVerbs, RunNowVerbs
from leasehold.stores.verbs.enqueue import EnqueueOnceVerbs, FullNameVerbs
from leasehold.stores.verbs.groups import GroupVerbs
from leasehold.stores.verbs.hooks import WebhookVerbs
from leasehold.stores.verbs.inspect import InspectVerbs, SearchVerbs
from leasehold.stores.verbs.metrics import MetricVerbs
from leasehold.stores.verbs.mirrors import MirrorVerbs
from leasehold.stores.verbs.operate import OperateVerbs
from leasehold.stores.verbs.prune import PruneVerbs
from leasehold.stores.verbs.recover import RecoverVerbs, RenewVerbs
from leasehold.stores.verbs.schedules import ScheduleVerbs
from leasehold.stores.verbs.settle import SettleVerbs
from leasehold.stores.verbs.steps import HandlerTransaction, StepVerbs
from leasehold.stores.verbs.stop import StopVerbs
from leasehold.stores.verbs.stream import StreamVerbs
from leasehold.stores.verbs.tenants import TenantVerbs
from leasehold.stores.verbs.tokens import TokenVerbs
from leasehold.stores.verbs.workers import DatabaseCheckVerbs, WorkerVerbs, named_objects

__all__ = ["HandlerTransaction", "JobStore"]


T = TypeVar("T")

MOST_REFUSALS = 10
"""How often one claim looks for jobs that the database refuses: more may become due meanwhile."""


class JobStore(
    EnqueueOnceVerbs,
    CallerTransactionVerbs,
    RunNowVerbs,
    RenewVerbs,
    SettleVerbs,
    ClaimVerbs,
    RecoverVerbs,
    StepVerbs,
    BudgetVerbs,
    StreamVerbs,
    OperateVerbs,
    StopVerbs,
    GroupVerbs,
    ScheduleVerbs,
    WebhookVerbs,
    MirrorVerbs,
    InspectVerbs,
    SearchVerbs,
    FullNameVerbs,
    PruneVerbs,
    WorkerVerbs,
    DatabaseCheckVerbs,
    MetricVerbs,
    TenantVerbs,
    TokenVerbs,
    AuditVerbs,
    ABC,
):
    """The verbs of `stores/verbs` are the same on every database. The abstract methods are what each database writes
    itself."""

    tenant: str | None = None
    """The tenant whose store this is."""
    claims_in_doubt = False
    """Whether a claim may have granted jobs although it did not raise: a tenant has not answered in time."""
    problems: Sequence[WorkerProblem] = ()
    """The troubles of the stores behind this one, for the worker's report."""
    _migrations: ClassVar[dict[int, str]]
    _forward_hint: Notify | None = None
    """Gets a tenant's hints instead: the tenant's workers listen to the store that keeps the list of tenants."""

    @abstractmethod
    def another(self) -> JobStore:
        """The same store over a connection of its own, for calls that must not wait behind others, such as renewals."""

    # -- claim -----------------------------------------------------------------------------------------------------
    def claim(
        self,
        worker: str,
        queues: Sequence[str],
        limit: int,
        tasks: Sequence[str] | None = None,
        *,
        idle: bool = False,
        order: Order = "mixed",
    ) -> list[Grant]:
        """Lease up to `limit` due jobs to this worker; each job has one winner. The order is priority, due time,
        sequence number. The head of a lane competes with its own priority; among jobs of one priority, the order
        between lanes and plain jobs is exact only up to a batch. Paused queues and tasks, tasks that the call does not
        name, blocked lanes and jobs that are not due cost nothing. A job whose time is over ends as in `expire` instead
        of being leased. `idle` says that the same claim found nothing a moment ago: the result is the same but may come
        sooner. `order` says how several queues share the room: as one queue ("mixed"), in equal shares beginning with
        the first ("turns"), or each queue only when the ones before it are empty ("strict")."""
        if limit < 1:
            return []
        self._make_worker_name(worker)
        request = ClaimRequest(worker, queues, tasks, limit, order)
        return self._claim_in_time(lambda: self._claim(request, idle))

    def _past_refused(self, request: ClaimRequest, take: Callable[[], T]) -> T:
        """Take jobs. If the database refuses a row, its job fails, and this takes once more."""
        for _ in range(MOST_REFUSALS):
            try:
                return take()
            except Exception as error:
                if not self._database.refuses_row(error) or not self._fail_refused(request):
                    raise
            self.notify_hooks()
            self.notify_watchers()
            self.notify_workers()  # its lane, or a job that waited for it, may go on
        return take()

    @abstractmethod
    def _claim(self, request: ClaimRequest, idle: bool) -> list[Grant]:
        """Claim once, jobs whose time is over included."""

    # -- wake-ups --------------------------------------------------------------------------------------------------
    def notify_workers(self) -> None:
        """Notify waiting workers in every process that there may be work."""
        if self._forward_hint is not None:
            return self._forward_hint(Hint.WORK)
        notify_here(self.label)
        self._notify_others(Hint.WORK)

    def notify_holders(self) -> None:
        """Notify the holders of leases in every process that one of their jobs may have a stop request."""
        if self._forward_hint is not None:
            return self._forward_hint(Hint.STOP)
        notify_here(self.label, Hint.STOP)
        self._notify_others(Hint.STOP)

    def notify_hooks(self) -> None:
        """Notify every process that delivers events that there may be new events or other listeners."""
        notify_here(self.label, Hint.HOOKS)
        self._notify_others(Hint.HOOKS)

    @abstractmethod
    def _notify_others(self, hint: Hint) -> None:
        """Notify other processes, unless they see the commit itself."""

    @abstractmethod
    def notify_watchers(self) -> None:
        """Notify every process that waits for groups that one may have changed. Workers are not woken."""

    @abstractmethod
    def wakeups(self, listen_url: str | None = None) -> Wakeups:
        """The waiting side of `notify_workers`, `notify_holders` and `notify_hooks`."""

    @abstractmethod
    def group_wakeups(self, listen_url: str | None = None) -> Wakeups:
        """The waiting side of `notify_watchers`."""

    # -- schema ----------------------------------------------------------------------------------------------------
    @abstractmethod
    def upgrade(self) -> list[int]:
        """Apply the missing migrations under a lock; the result is their versions."""

    @abstractmethod
    def upgrade_sql(self, after: int = 0) -> str:
        """The migrations after a version as one script, for a person to run."""

    def schema_version(self) -> int:
        """The number of the last migration; 0: there is no schema yet."""
        return self._database.schema_version()

    def check_schema(self) -> None:
        """Raises SchemaOutdated or SchemaTooNew."""
        check_version(self.label, self.schema_version(), len(self._migrations))

    @abstractmethod
    def drop(self) -> None:
        """Delete the whole store with its content. This is for scratch stores; the creator of a SQLite file deletes the
        file itself."""

    def missing_objects(self) -> list[str]:
        """Tables, views, indexes and constraints that the migrations make and the database lacks. A migration that
        drops one of them has to be taken into account here."""
        there = named_objects("\n".join(row["definition"] for row in self._rows("list_definitions")))
        return sorted(named_objects(self._migrations_text()) - there)

    def check_for_worker(self) -> None:
        """Raises SchemaIncomplete if a table or a view is missing; and DatabaseUnreachable for a file that this process
        may not write."""
        if lacking := self._rows("list_missing_tables", names=_tables(self._migrations_text())):
            raise SchemaIncomplete(self.label, f"missing {', '.join(row['name'] for row in lacking)}")

    @classmethod
    def _migrations_text(cls) -> str:
        return "\n".join(cls._migrations.values())

    @abstractmethod
    def examine(self) -> list[Finding]:
        """Problems that only this kind of database can have."""

    # -- tenants ---------------------------------------------------------------------------------------------------
    @abstractmethod
    def open_tenant(self, name: str, notify: Notify) -> JobStore:
        """The store of a tenant, over this store's connections where the database can share them. The caller closes it.
        `notify` replaces the tenant's own `notify_workers` and `notify_holders`. The call checks nothing: the tenant
        may be missing or its schema old."""

    @abstractmethod
    def tenant_wakeups(self, listen_url: str | None = None) -> Wakeups:
        """The waiting side of `notify_tenants`, and of this store's own `notify_workers` and `notify_holders`."""

    def upgrade_tenant(self, name: str) -> list[int]:
        """Apply the tenant's missing migrations; the result is their versions. Raises TenantNotFound."""
        self.find_tenant(name)
        store = self.open_tenant(name, ignore)
        try:
            with recorded_in(store.label):
                return store.upgrade()
        finally:
            store.close()


@lru_cache
def _tables(migrations: str) -> list[str]:
    """The names of the tables and views that the migrations make."""
    named = (one.split(" ") for one in named_objects(migrations))
    return sorted(name for what, name in named if what in ("table", "view"))
