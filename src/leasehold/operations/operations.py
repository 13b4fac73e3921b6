"""`Operations`: the operator on a store, with every method that client and surfaces call."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from leasehold.domain.checks.texts import checked_name
from leasehold.domain.job import Enqueued, Job, NewJob
from leasehold.domain.limits import PauseWindow
from leasehold.domain.mirror import Mirror
from leasehold.domain.records import (
    Finding,
    PauseRecord,
    QueueCount,
    QueueRow,
    ScheduleRow,
    Scope,
    claimable_in,
)
from leasehold.domain.schedules import Schedule
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
from leasehold.operations.local import LocalOperator
from leasehold.operations.metrics import MetricOperations
from leasehold.operations.prune import PruneOperations
from leasehold.operations.search import FailureOperations, FlowOperations
from leasehold.operations.verb import KnownTask, Verb
from leasehold.operations.watch import JobWaits, WatchOperations

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

P = ParamSpec("P")
R = TypeVar("R")


def method(verb: Verb[P, R]) -> Callable[Concatenate[LocalOperator, P], R]:
    """Make a method of the operator from a verb."""

    @functools.wraps(verb.function)
    def call(self: LocalOperator, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call(verb, *args, **kwargs)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    given = verb.signature.parameters.values()
    call.__signature__ = verb.signature.replace(parameters=[own, *given])  # type: ignore[attr-defined] # inspect reads it
    return call


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
    ) -> None:
        super().__init__(find_store, find_tasks, listen_url, find_task)

    # -- not verbs of the table ------------------------------------------------------------------------------
    def run_schedule(self, name: str, job: NewJob, *, actor: str | None = None) -> Enqueued:
        """Store this job of a schedule, in addition to the jobs of its ticks."""
        with self._recorded("schedule.run", checked_name(name, "schedule"), actor, job=job.id) as store:
            (made,) = self.enqueue([job])
            store.note_run(name, made.id)
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

    # -- verbs of the table, as methods: to be removed when the surfaces call the verbs themselves ---------------------
    cancel = method(jobs.cancel)
    pause = method(jobs.pause)
    interrupt = method(jobs.interrupt)
    skip = method(jobs.skip)
    snooze = method(jobs.snooze)
    release = method(jobs.release)
    retry = method(jobs.retry)
    abandon = method(jobs.abandon)
    get = method(jobs.get)
    explain = method(jobs.explain)
    history = method(jobs.history)
    attempts = method(jobs.attempts)
    steps = method(jobs.steps)
    relatives = method(jobs.relatives)
    count_relatives = method(jobs.count_relatives)
    read_stream = method(jobs.read_stream)
    logs = method(jobs.logs)
    progress = method(jobs.progress)
    count = method(jobs.count)
    open_questions = method(questions.open_questions)
    answer = method(questions.answer)
    questions = method(questions.questions)
    budget = method(budgets.budget)
    spending = method(budgets.spending)
    top_up = method(budgets.top_up)
    group_budget = method(budgets.group_budget)
    set_group_budget = method(budgets.set_group_budget)
    list_budgets = method(budgets.list_budgets)
    list_groups = method(groups.list_groups)
    release_group = method(groups.release_group)
    list_pauses = method(queues.list_pauses)
    resume_lane = method(queues.resume_lane)
    list_lanes = method(queues.list_lanes)
    set_slot = method(limits.set_slot)
    list_slots = method(limits.list_slots)
    set_rate = method(limits.set_rate)
    open_rate = method(limits.open_rate)
    list_rates = method(limits.list_rates)
    list_schedules = method(schedules.list_schedules)
    get_schedule = method(schedules.get_schedule)
    pause_schedule = method(schedules.pause_schedule)
    resume_schedule = method(schedules.resume_schedule)
    delete_schedule = method(schedules.delete_schedule)
    list_workers = method(workers.list_workers)
    list_leases = method(workers.list_leases)
    list_executions = method(workers.list_executions)
    list_audit = method(audit.list_audit)
    list_listeners = method(webhooks.list_listeners)
    remove_listener = method(webhooks.remove_listener)
    list_webhooks = method(webhooks.list_webhooks)
    set_webhook = method(webhooks.set_webhook)
    remove_webhook = method(webhooks.remove_webhook)
    try_webhook = method(webhooks.try_webhook)
    create_tenant = method(tenants.create_tenant)
    drop_tenant = method(tenants.drop_tenant)
    list_tenants = method(tenants.list_tenants)
    create_token = method(tokens.create_token)
    find_token = method(tokens.find_token)
    list_tokens = method(tokens.list_tokens)
    revoke_token = method(tokens.revoke_token)
    list_mirrors = method(mirrors.list_mirrors)
    find_mirror = method(mirrors.find_mirror)
    verify_mirrors = method(mirrors.verify_mirrors)

    def resume(
        self, job_id: str, *, args: str | None = None, fresh: bool = False, actor: str | None = None
    ) -> Job:
        given: dict[str, Any] | None = None if args is None else json.loads(args)
        return self.call(jobs.resume, job_id, args=given, fresh=fresh, actor=actor)

    def pause_scope(self, scope: Scope, name: str, closing: PauseWindow) -> PauseRecord:
        verb = queues.pause_queue if scope == "queue" else queues.pause_task
        return self.call(verb, name, **closing.arguments)

    def resume_scope(self, scope: Scope, name: str, *, actor: str | None = None) -> bool:
        verb = queues.resume_queue if scope == "queue" else queues.resume_task
        return self.call(verb, name, actor=actor)

    def list_queues(self, jobs: Iterable[QueueCount] | None = None) -> list[QueueRow]:
        """List queues and tasks; pass `jobs` (`metrics().jobs`) if they were counted already."""
        return queues.queue_rows(self._store, jobs)

    def close_rate(self, key: str, closing: PauseWindow) -> None:
        self.call(limits.close_rate, key, **closing.arguments)

    def set_schedule(self, schedule: Schedule, *, actor: str | None = None) -> ScheduleRow:
        return self.call(schedules.set_schedule, schedule.name, schedule, actor=actor)

    def add_mirror(self, mirror: Mirror, *, actor: str | None = None) -> None:
        self.call(mirrors.add_mirror, mirror.task, mirror, actor=actor)

    def remove_mirror(self, mirror: Mirror, *, actor: str | None = None) -> None:
        self.call(mirrors.remove_mirror, mirror.task, mirror, actor=actor)
