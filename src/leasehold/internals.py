"""What stands behind an app: everything is wired here and nowhere else.

Users hold a `Leasehold`; its verbs are the promise. Our own surfaces, the test support and our tests also need the open
store, the operator's verbs and another store to move to: they find them as `app.__internals__`. The two underscores on
either side keep it out of completion and out of the promise, and tests/architecture says who may use it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from leasehold.client.enqueue import Enqueue
from leasehold.client.job import Job
from leasehold.client.run_by_id import RunById
from leasehold.domain.views import Reaped
from leasehold.operations.operations import Operations
from leasehold.run.middleware import Middlewares
from leasehold.run.waits import Waits
from leasehold.stores.base.database import Clock
from leasehold.stores.base.forks import ForkLock
from leasehold.stores.contract import Store
from leasehold.stores.open import open_store
from leasehold.stores.scratch import scratch_place
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.registry import Registry
from leasehold.tasks.settings import CallOptions
from leasehold.tasks.task import Task
from leasehold.worker.embedded import EmbeddedWorker, embedded_settings
from leasehold.worker.hooks import Hooks
from leasehold.worker.reaper import Reaper
from leasehold.worker.settings import WorkerSettings
from leasehold.worker.worker import Lifespan, Worker

BY_HAND = 0.0
"""Seconds between two sweeps: nobody knows when the next one will come."""

AnyTask = Task[..., ..., Any, Job[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the jobs are, and how to get there."""

    url: str
    schema: str
    listen_url: str | None
    pooler: bool
    clock: Clock | None


class Internals:
    def __init__(self, place: Place, grace: float | None) -> None:
        self.place = place
        self.tasks = Registry()
        self.hooks = Hooks()
        self._middleware = Middlewares()
        self.lifespan: Lifespan | None = None
        self.operations = Operations(lambda: self.store, self.tasks.queues, place.listen_url)
        self._grace = grace
        self._store: Store | None = None
        self._opening = ForkLock()
        self._sweeping = ForkLock()
        self._reaper: Reaper | None = None
        self._embedded = EmbeddedWorker(lambda: self.store, self._make_embedded)
        self.enqueue = Enqueue(self.operations, self.find_task, self._embedded.run)
        self.by_id = RunById(self.operations, self.find_task, self._embedded.run_by_id)

    # -- tasks and workers -----------------------------------------------------------------------------------------
    def find_task(self, name: str) -> TaskDefinition | None:
        return self.tasks.definitions.get(name)

    def add_task(
        self, function: Callable[..., Any], name: str | None, settings: Mapping[str, Any]
    ) -> AnyTask:
        definition = self.tasks.add(function, name, settings)
        self._middleware.apply_to(definition)
        return self.make_task(definition)

    def add_middleware(self, function: Callable[..., Any]) -> None:
        self._middleware.add(function)
        for definition in self.tasks.definitions.values():
            self._middleware.apply_to(definition)

    def make_task(self, definition: TaskDefinition) -> AnyTask:
        return Task(definition, self.enqueue)

    def named_task(self, name: str, settings: CallOptions) -> AnyTask:
        """Raises UnknownTask."""
        return self.make_task(self.tasks.find(name)).using(**settings)

    def handle(self, job_id: str) -> Job[Any]:
        """Raises JobNotFound."""
        row = self.operations.get(job_id)
        return Job(row.id, self.operations, self.find_task, row)

    def make_worker(self, settings: WorkerSettings, waits: Waits | None = None) -> Worker:
        return self._make_worker(dict(self.tasks.definitions), settings, waits)

    def _make_embedded(self, owner: str | None) -> Worker:
        """The worker of `run_now` and `run_by_id`. It sees tasks that are registered later, too."""
        return self._make_worker(self.tasks.definitions, embedded_settings(self._grace, owner))

    def _make_worker(
        self, tasks: Mapping[str, TaskDefinition], settings: WorkerSettings, waits: Waits | None = None
    ) -> Worker:
        return Worker(
            self.store,
            tasks,
            settings,
            lifespan=self.lifespan,
            hooks=self.hooks,
            schedules=lambda: list(self.tasks.schedules.values()),
            waits=waits,
            version=metadata.version("leasehold"),
        )

    def sweep(self, wait: float | None) -> list[Reaped]:
        with self._sweeping:
            if self._reaper is None:
                self._reaper = Reaper(self.store, BY_HAND)
            return self._reaper.sweep_now(wait)

    # -- the store -------------------------------------------------------------------------------------------------
    @property
    def store(self) -> Store:
        """The open store, with a schema that this code knows."""
        store = self._store
        if store is None:
            with self._opening:
                store = self._store
                if store is None:
                    store = self._store = self._open(upgrade=self.place.url.startswith("sqlite"))
        return store

    def _open(self, upgrade: bool) -> Store:
        store = self._open_unchecked()
        try:
            if upgrade:
                store.upgrade()
            store.check_schema()
        except BaseException:
            store.close()
            raise
        return store

    def _open_unchecked(self) -> Store:
        place = self.place
        return open_store(place.url, schema=place.schema, clock=place.clock, pooler=place.pooler)

    @contextlib.contextmanager
    def unchecked(self) -> Iterator[Operations]:
        """The operator's verbs on a store whose schema may be missing or old."""
        store = self._open_unchecked()
        try:
            yield Operations(lambda: store)
        finally:
            store.close()

    @contextlib.contextmanager
    def scratch_place(self) -> Iterator[tuple[str, str]]:
        """URL and schema of an empty store beside this one: a schema of its own in the same database, or a file in the
        same folder. It is removed when the block ends."""
        with scratch_place(self.place.url, self.place.pooler) as found:
            yield found

    @contextlib.contextmanager
    def moved_to(self, place: Place) -> Iterator[None]:
        """Work on another store until the block ends. For tests."""
        before = self.place
        self.close()
        self.place = place
        try:
            yield
        finally:
            self.close()
            self.place = before

    def close(self) -> None:
        self._embedded.close()
        with self._opening:
            store, self._store = self._store, None
            self._reaper = None
        if store is not None:
            store.close()
