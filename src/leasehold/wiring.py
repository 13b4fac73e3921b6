"""Connects an app to its parts: tasks, operator, store, worker. No other module does this.

Users hold a `Leasehold`, whose methods are public. Surfaces, the test support and our tests also need the open store,
the operator and another store to move to: `app.__internals__` has them. The double underscores keep the name out of
completion and out of the public API; tests/architecture lists the modules that may use it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leasehold.client.enqueue import Enqueuer
from leasehold.client.job import Job
from leasehold.client.run_by_id import Begun, OnRequest, RunById
from leasehold.domain.checks.texts import EVERY_TENANT
from leasehold.domain.errors import SchemaOutdated
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Enqueued, NewJob
from leasehold.domain.records import NotRun, Reaped
from leasehold.domain.schedules import Schedule
from leasehold.domain.tracing import Tracing
from leasehold.operations import schedules
from leasehold.operations.operations import Operations
from leasehold.run.handler_state import check_wait
from leasehold.run.journal import Waits
from leasehold.run.middleware import Middlewares
from leasehold.runners.subprocess import SubprocessRunner
from leasehold.stores.database.database import Clock
from leasehold.stores.open import OpenStores, open_store, scratch_place, server_address
from leasehold.stores.tenants.directory import Directory
from leasehold.tasks.blueprint import job_by_sql
from leasehold.tasks.definition import Registry, TaskDefinition
from leasehold.tasks.external import External
from leasehold.tasks.schedule import tick_job
from leasehold.tasks.settings import CallOptions
from leasehold.tasks.task import Task
from leasehold.threads import ForkLock
from leasehold.worker.embedded import EmbeddedWorker, embedded_settings
from leasehold.worker.hooks import Hooks
from leasehold.worker.reaper import Reaper
from leasehold.worker.settings import WorkerSettings
from leasehold.worker.worker import Lifespan, Worker

if TYPE_CHECKING:
    from leasehold.runners.docker.runner import DockerRunner
    from leasehold.stores.store import JobStore

STATE_VARIABLE = "XDG_STATE_HOME"
"""The folder for programs' state, by default `~/.local/state`. On PostgreSQL the folder for running commands is in
it."""
UNKNOWN_SWEEP_INTERVAL = 0.0
"""Seconds between two sweeps: 0, because the time of the next call is unknown."""

AnyTask = Task[..., ..., Any, Job[Any]]
NamedCall = tuple[str, Mapping[str, Any], CallOptions]
"""A task's name, its arguments, and the settings of the call."""


@frozen(kw_only=True)
class Location:
    """The database and folders of an app's jobs, and how to connect."""

    url: str
    """The database: `sqlite:///file.db`, `sqlite:////absolute/file.db` or `postgresql://user@host/database`.
    Left out: LEASEHOLD_URL, else `sqlite:///leasehold.db`."""
    schema: str
    """The PostgreSQL schema that holds the tables. Left out: LEASEHOLD_SCHEMA, else "leasehold"."""
    listen_url: str | None
    """A direct connection for wake-ups, when `url` leads through a pooler. Without one, workers poll once a
    second."""
    pooler: bool
    """Whether `url` leads through a transaction-mode pooler; the same as `?pooler=transaction` in the URL."""
    clock: Clock | None
    """The clock to use instead of the database's; for tests."""
    results: str | None = None
    """The folder for results that are files. Left out: LEASEHOLD_RESULTS; else on SQLite a folder beside the
    database, and on PostgreSQL none."""
    executions: str | None = None
    """The folder for running commands, on a local disk. Left out: LEASEHOLD_EXECUTIONS; else on SQLite a folder
    beside the database, and on PostgreSQL one in the user's state folder."""
    tenant: str | None = None
    """The tenant whose jobs the app works on. None: the app's own jobs."""

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite")

    @property
    def executions_folder(self) -> Path:
        if self.executions is not None:
            return Path(self.executions)
        if self.is_sqlite:
            return Path(f"{self.url.removeprefix('sqlite:///')}.executions")
        state = os.environ.get(STATE_VARIABLE) or Path.home() / ".local" / "state"
        # One folder per database: a copy of a database must not take the original's executions for its own.
        host, port, name = server_address(self.url)
        location = f"{host}:{port}/{name}:{self.schema}"
        return Path(state, "leasehold", "executions", hashlib.sha256(location.encode()).hexdigest()[:16])


class Shared:
    """The parts that an app shares with its views of tenants."""

    def __init__(self, stores: OpenStores, host: EmbeddedWorker, tenant_host: EmbeddedWorker) -> None:
        self.tasks = Registry()
        self.hooks = Hooks()
        self.middleware = Middlewares()
        self.tracing: Tracing | None = None
        self.stores = stores
        self.host = host
        """Runs the jobs of `run_now` and `run_by_id`."""
        self.tenant_host = tenant_host
        """Runs the `run_now` and `run_by_id` jobs of all tenants."""
        self.command_runner: SubprocessRunner | None = None
        self.container_runner: DockerRunner | None = None
        self.views: dict[str | None, Internals] = {}
        """The internals by the tenant's name; None: of the app itself."""


class Internals:
    """The parts of an app or, with the app's `shared` ones, of its view of one tenant."""

    def __init__(self, location: Location, grace: float | None, shared: Shared | None = None) -> None:
        self.location = location
        self._home: Location | None = None
        """The location to return to when a test ends. None: outside of tests."""
        self._grace = grace
        """The time that jobs of `run_now` and `run_by_id` get to end when the app is closed. None: as long as they
        need. Left out: SHUTDOWN_GRACE_PERIOD_SECONDS, else 300 seconds."""
        self.lifespan: Lifespan | None = None
        if shared is None:
            stores = OpenStores(self._open, lambda: self.location.is_sqlite)
            shared = Shared(
                stores,
                EmbeddedWorker(lambda: self.store, self._make_embedded),
                EmbeddedWorker(lambda: stores.all_tenants.as_store, self._make_embedded_for_tenants),
            )
            shared.views[None] = self
        self.shared = shared
        self.tasks, self.hooks = shared.tasks, shared.hooks
        self.operations = Operations(
            lambda: self.store, self.tasks.queues, location.listen_url, self.find_task, check_wait
        )
        self._sweeping = ForkLock()
        self._reaper: Reaper | None = None
        self._of_tenant: tuple[Directory, JobStore] | None = None
        self.producer = Enqueuer(
            self.operations,
            self.find_task,
            self._run_now,
            location.tenant,
            self._producer_of,
            lambda: shared.tracing,
        )
        self.by_id = RunById(self.operations, self.find_task, self._run_by_id)

    # -- tenants ---------------------------------------------------------------------------------------------------
    @property
    def tenant(self) -> str | None:
        return self.location.tenant

    def of_tenant(self, name: str) -> Internals:
        views = self.shared.views
        if name not in views:
            views.setdefault(name, Internals(replace(self.location, tenant=name), self._grace, self.shared))
        return views[name]

    def choose_tenant(self, name: str | None) -> None:
        """Let the app work on this tenant alone until it is closed. For commands."""
        self.location = replace(self.location, tenant=name)
        self.producer.tenant = name

    def _producer_of(self, tenant: str | None) -> Enqueuer:
        return self.shared.views[None].producer if tenant is None else self.of_tenant(tenant).producer

    def _run_now(self, job: NewJob, max_running: int) -> Enqueued:
        shared = self.shared
        if self.tenant is None:
            return shared.host.run(job, max_running)
        return shared.tenant_host.run(job, max_running, shared.stores.all_tenants.only(self.tenant))

    def _run_by_id(self, job_id: str, worker: str | None, on_request: OnRequest) -> Begun | NotRun:
        shared = self.shared
        if self.tenant is None:
            return shared.host.run_by_id(job_id, worker, on_request)
        store = shared.stores.all_tenants.only(self.tenant)
        return shared.tenant_host.run_by_id(job_id, worker, on_request, store)

    # -- tasks and workers -----------------------------------------------------------------------------------------
    def find_task(self, name: str) -> TaskDefinition | None:
        return self.tasks.definitions.get(name)

    def add_task(
        self,
        function: Callable[..., Any],
        name: str | None,
        settings: Mapping[str, Any],
        external: External | None = None,
    ) -> AnyTask:
        definition = self.tasks.add(function, name, settings, external)
        self.shared.middleware.apply_to(definition)
        return self.make_task(definition)

    def command_runner(self) -> SubprocessRunner:
        """Return the runner of the executions folder, which the commands of all tasks share."""
        folder = self.shared.views[None].location.executions_folder.absolute()
        runner = self.shared.command_runner
        if runner is None or runner.folder != folder.resolve():
            runner = self.shared.command_runner = SubprocessRunner(folder)
        return runner

    def container_runner(self) -> DockerRunner:
        """Return the runner on the engine that DOCKER_HOST names, else on this machine's engine."""
        from leasehold.runners.docker.runner import DockerRunner

        if self.shared.container_runner is None:
            # No execution of a command can have this name.
            self.shared.container_runner = DockerRunner(self.command_runner().folder / ".containers")
        return self.shared.container_runner

    def add_middleware(self, function: Callable[..., Any]) -> None:
        self.shared.middleware.add(function)
        for definition in self.tasks.definitions.values():
            self.shared.middleware.apply_to(definition)

    def make_task(self, definition: TaskDefinition) -> AnyTask:
        return Task(definition, self.producer)

    def named_task(self, name: str, settings: CallOptions) -> AnyTask:
        """Return the task with these settings. Raises UnknownTask."""
        return self.make_task(self.tasks.find(name)).using(**settings)

    def enqueue_calls(self, calls: Sequence[NamedCall]) -> Sequence[Job[Any]]:
        """Enqueue calls of any tasks, by name: all or none, in the order given. Raises UnknownTask."""
        return self.producer.enqueue(self._new_jobs(calls))

    def enqueue_calls_once(
        self, calls: Sequence[NamedCall], key: str, fingerprint: str
    ) -> tuple[Sequence[Job[Any]], bool]:
        """Enqueue the calls once per key; also return whether this was a repeat. Raises IdempotencyKeyReused."""
        return self.producer.enqueue_once(self._new_jobs(calls), key, fingerprint)

    def _new_jobs(self, calls: Sequence[NamedCall]) -> list[NewJob]:
        return [
            self.named_task(name, settings).__bind_named__(arguments).__plan__.new_job()
            for name, arguments, settings in calls
        ]

    def run_schedule(self, name: str, actor: str | None = None) -> Enqueued:
        """Make a job of a schedule now. Raises ScheduleNotFound and UnknownTask."""
        row = self.operations.call(schedules.get_schedule, name)
        schedule = Schedule(name=row.name, task=row.task, args=row.args)
        job = self.producer.traced(tick_job(self.tasks.find(row.task), schedule, row.now))
        return self.operations.run_schedule(name, job, actor=actor)

    def make_worker(self, settings: WorkerSettings, waits: Waits | None = None) -> Worker:
        return self._make_worker(dict(self.tasks.definitions), settings, waits)

    def _make_embedded(self, worker: str | None) -> Worker:
        """Make the worker of `run_now` and `run_by_id`. It also knows tasks that are registered later."""
        return self._make_worker(self.tasks.definitions, embedded_settings(self._grace, worker))

    def _make_embedded_for_tenants(self, worker: str | None) -> Worker:
        settings = replace(embedded_settings(self._grace, worker), tenants=(EVERY_TENANT,))
        return self._make_worker(
            self.tasks.definitions, settings, store=self.shared.stores.all_tenants.as_store
        )

    def _make_worker(
        self,
        tasks: Mapping[str, TaskDefinition],
        settings: WorkerSettings,
        waits: Waits | None = None,
        store: JobStore | None = None,
    ) -> Worker:
        if store is None:
            tenants = settings.tenants
            store = self.shared.stores.serving(tenants) if tenants else self.store
        return Worker(
            store,
            tasks,
            replace(settings, tracing=self.shared.tracing),
            lifespan=self.lifespan,
            hooks=self.hooks,
            schedules=lambda: list(self.tasks.schedules.values()),
            waits=waits,
            version=metadata.version("leasehold"),
        )

    def insert_sql(self, task: str) -> str:
        """Return the SQL that enqueues this task. Raises UnknownTask, and InvalidInput for a task that plain SQL cannot
        enqueue."""
        return self.operations.insert_sql(job_by_sql(self.tasks.find(task)))

    def sweep(self, wait: float | None) -> list[Reaped]:
        with self._sweeping:
            if self._reaper is None:
                self._reaper = Reaper(self.store, UNKNOWN_SWEEP_INTERVAL)
            return self._reaper.sweep_now(wait)

    # -- the store -------------------------------------------------------------------------------------------------
    @property
    def store(self) -> JobStore:
        """The open store, with a schema that this code knows."""
        if self.tenant is None:
            return self.shared.stores.own
        directory, found = self.shared.stores.directory, self._of_tenant
        if found is None or found[0] is not directory:
            from leasehold.stores.tenants.tenant_store import tenant_store  # loads every verb

            # The same object at each call: waiters share one watch only if they have the same store object.
            found = self._of_tenant = directory, tenant_store(directory, self.tenant)
        return found[1]

    def _open(self) -> JobStore:
        store = self._open_unchecked()
        try:
            try:
                store.check_schema()
            except SchemaOutdated:
                # Upgrade only an outdated schema: an upgrade would wait for an open write of the caller.
                if not self.location.is_sqlite:
                    raise
                store.upgrade()
        except BaseException:
            store.close()
            raise
        return store

    def _open_unchecked(self) -> JobStore:
        location = self.location
        return open_store(
            location.url,
            schema=location.schema,
            clock=location.clock,
            pooler=location.pooler,
            results=location.results,
        )

    @contextlib.contextmanager
    def unchecked(self) -> Iterator[Operations]:
        """Yield the operator on a store whose schema may be missing or old."""
        store = self._open_unchecked()
        try:
            yield Operations(lambda: store)
        finally:
            store.close()

    @contextlib.contextmanager
    def scratch_place(self) -> Iterator[tuple[str, str]]:
        """Yield URL and schema of an empty store beside this one: a schema in the same database, or a file in the same
        folder. The store is removed when the block ends."""
        with scratch_place(self.location.url, self.location.pooler) as found:
            yield found

    def configure(self, url: str | None, schema: str | None) -> None:
        """Work on another store from now on; None changes nothing. In a sandbox it takes effect at the sandbox's end,
        so that an app factory in a test does not move the app out of the sandbox."""
        home = self._home or self.location
        home = replace(home, url=url or home.url, schema=schema or home.schema)
        if self._home is not None:
            self._home = home
        elif home != self.location:
            self.close()
            self.location = home

    @contextlib.contextmanager
    def moved_to(self, location: Location) -> Iterator[None]:
        """Work on another store until the block ends. For tests."""
        outer, self._home = self._home, self.location
        self.close()
        self.location = location
        try:
            yield
        finally:
            self.close()
            self.location, self._home = self._home, outer

    def close(self) -> None:
        self.shared.host.close()
        self.shared.tenant_host.close()
        self._reaper = self._of_tenant = None
        self.shared.stores.close()
        if self.tenant is not None:
            self.choose_tenant(None)
