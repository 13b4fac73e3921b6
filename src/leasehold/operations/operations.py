"""`Operations`: the operator on a store: `call` for every verb of the table, and the methods that are no verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from leasehold.domain.checks.texts import checked_name
from leasehold.domain.job import Enqueued, Job, NewJob
from leasehold.domain.mirror import Mirror
from leasehold.domain.records import (
    Finding,
    QueueCount,
    QueueRow,
    claimable_in,
)
from leasehold.operations import (
    audit,
    budgets,
    groups,
    jobs,
    limits,
    mirrors,
    questions,
    queues,
    schedules,
    tenants,
    tokens,
    webhooks,
    workers,
)
from leasehold.operations.bulk import BulkOperations
from leasehold.operations.doctor import check_clock, check_health, examine
from leasehold.operations.enqueue import EnqueueOperations
from leasehold.operations.groups import GroupOperations
from leasehold.operations.metrics import MetricOperations
from leasehold.operations.prune import PruneOperations
from leasehold.operations.search import FailureOperations, FlowOperations
from leasehold.operations.stream import JobWaits, WatchOperations
from leasehold.operations.verb import KnownTask

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore


MODULES = (
    *(jobs, questions, budgets, groups, queues, limits, schedules, workers),
    *(audit, webhooks, tenants, tokens, mirrors),
)
"""Every module of verbs: with them the table is full, whatever a process uses of it."""


class Operations(
    EnqueueOperations,
    BulkOperations,
    PruneOperations,
    JobWaits,
    FailureOperations,
    FlowOperations,
    GroupOperations,
    MetricOperations,
    WatchOperations,
):
    def __init__(
        self,
        find_store: Callable[[], JobStore],
        find_tasks: Callable[[], Mapping[str, str]] = dict,
        listen_url: str | None = None,
        find_task: Callable[[str], KnownTask | None] = lambda name: None,
        check_wait: Callable[[str], None] = lambda awaited: None,
    ) -> None:
        super().__init__(find_store, find_tasks, listen_url, find_task)
        self._check_wait = check_wait

    def run_schedule(self, name: str, job: NewJob, *, actor: str | None = None) -> Enqueued:
        """Store this job of a schedule, in addition to the jobs of its ticks."""
        with self._recorded("schedule.run", checked_name(name, "schedule"), actor, job=job.id) as store:
            (made,) = self.enqueue([job])
            store.record_manual_job(name, made.id)
        return made

    def claimable_in(self, job: Job) -> float | None:
        """Return the seconds after which this job may be free to claim; None: only after an operator acts."""
        return claimable_in(job, self._store.now())

    def now(self) -> datetime:
        """Return the time by the store's clock."""
        return self._store.now()

    def check_health(self) -> list[Finding]:
        """Check what a probe needs: database, schema, workers. A database error becomes a finding."""
        return check_health(self._find_store)

    def check_clock(self) -> Finding:
        """Compare this machine's clock with the database's."""
        return check_clock(self._store)

    def schema_version(self) -> int:
        """Return the version of the schema: the last migration applied."""
        return self._store.schema_version()

    def examine(self) -> list[Finding]:
        """Run every check of the doctor."""
        return examine(self._store)

    def verify(self) -> list[str]:
        """Return the names of the tables and other objects that the schema lacks."""
        return self._store.missing_objects()

    def upgrade(self, *, actor: str | None = None) -> list[int]:
        with self._recorded("upgrade", None, actor) as store:
            return store.upgrade()

    def upgrade_tenants(
        self, names: Iterable[str] | None = None, *, actor: str | None = None
    ) -> dict[str, list[int]]:
        """Upgrade these tenants, or all; return the versions that were applied, by name. Each tenant's audit records
        it."""
        if names is None:
            names = [row.name for row in self._store.list_tenants() if row.ready]
        return {name: self.call(tenants.upgrade_tenant, name, actor=actor) for name in names}

    def insert_sql(self, job: NewJob) -> str:
        """Return the SQL that stores such a job, for programs in other languages."""
        return self._store.insert_sql(job)

    def upgrade_sql(self, after: int = 0) -> str:
        return self._store.upgrade_sql(after)

    def mirror_sql(self, mirror: Mirror) -> str:
        return self._store.mirror_sql(mirror)

    def unmirror_sql(self, mirror: Mirror) -> str:
        return self._store.unmirror_sql(mirror)

    def list_queues(self, jobs: Iterable[QueueCount] | None = None) -> list[QueueRow]:
        """List queues and tasks; pass `jobs` (`metrics().jobs`) if they were counted already."""
        return queues.queue_rows(self._store, jobs)
