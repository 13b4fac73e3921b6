"""Leasehold: the composition root. Tasks are registered here, and everything is wired here and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from importlib import metadata
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from leasehold.client.enqueue import Enqueue
from leasehold.client.group import Group
from leasehold.client.job import Job
from leasehold.client.limits import Rates, Slots
from leasehold.client.questions import Questions
from leasehold.client.queues import Lanes, Pausable
from leasehold.client.register import Register
from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.states import checked_states
from leasehold.domain.states import State
from leasehold.domain.stop import StopReport
from leasehold.domain.views import Filter, Page
from leasehold.operations.operations import Operations
from leasehold.operations.stop import StopOptions
from leasehold.run.context import Context, SyncContext
from leasehold.stores.base.database import Clock
from leasehold.stores.contract import Store
from leasehold.stores.open import open_store, resolve_url
from leasehold.stores.scratch import scratch_place
from leasehold.tasks.call import Bindable
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.flows import Chain, Dag
from leasehold.tasks.registry import Registry
from leasehold.tasks.settings import CallOptions, TaskOptions
from leasehold.tasks.task import Task
from leasehold.worker.embedded import EmbeddedWorker, embedded_settings
from leasehold.worker.hooks import Hook, Hooks, checked_names
from leasehold.worker.settings import WorkerSettings, split_names
from leasehold.worker.worker import Lifespan, Worker

P = ParamSpec("P")
R = TypeVar("R")


class Leasehold:
    """Your jobs, in your database.

        app = Leasehold()                                 # LEASEHOLD_URL, else sqlite:///leasehold.db
        app = Leasehold("postgresql://…", schema="jobs")  # else LEASEHOLD_SCHEMA, else "leasehold"

    Nothing is opened before it is needed. A SQLite file is made and upgraded by itself; a PostgreSQL schema is
    upgraded when you say so, with `app.upgrade()`. `grace` is what runs of `run_now` get when the app is closed.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        listen_url: str | None = None,
        pooler: bool = False,
        clock: Clock | None = None,
        grace: Duration | None = 300.0,
    ) -> None:
        self.url = resolve_url(url)
        self._grace = None if grace is None else seconds(grace, "grace")
        self._listen_url = listen_url
        self._schema = schema or os.environ.get("LEASEHOLD_SCHEMA") or "leasehold"
        self._pooler = pooler
        self._clock = clock
        self._tasks = Registry()
        self._lifespan: Lifespan | None = None
        self._hooks = Hooks()
        self._store: Store | None = None
        self._opening = threading.Lock()
        self._embedded = EmbeddedWorker(lambda: self.store, self._make_embedded)
        self.operations = Operations(lambda: self.store, self._tasks.queues, listen_url)
        """The operator's verbs, for the surfaces."""
        find_task = self._tasks.definitions.get
        self._find_task = find_task
        self._enqueue = Enqueue(self.operations, find_task, self._embedded.run)
        self.queues = Pausable(self.operations, "queue")
        self.kinds = Pausable(self.operations, "kind")
        self.lanes = Lanes(self.operations, find_task)
        self.slots = Slots(self.operations)
        self.rates = Rates(self.operations)
        self.questions = Questions(self.operations, find_task)

    # -- define ----------------------------------------------------------------------------------------------------
    @overload
    def task(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Task[Concatenate[Context, P], P, Coroutine[Any, Any, R], Job[R]]: ...

    @overload
    def task(
        self, function: Callable[Concatenate[SyncContext, P], R], /
    ) -> Task[Concatenate[SyncContext, P], P, R, Job[R]]: ...

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Task[P, P, Coroutine[Any, Any, R], Job[R]]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, P, R, Job[R]]: ...

    @overload
    def task(self, *, name: str | None = None, **settings: Unpack[TaskOptions]) -> Register: ...

    def task(self, *function: Any, name: str | None = None, **settings: Any) -> Any:
        """Register a function as a task, with or without settings (see `TaskOptions` for their names)."""
        register = Register(self._register, name, settings)
        return register(*function) if function else register

    def _register(
        self, function: Callable[..., Any], name: str | None, settings: Mapping[str, Any]
    ) -> Task[..., ..., Any, Job[Any]]:
        return self._task(self._tasks.add(function, name, settings))

    def _task(self, definition: TaskDefinition) -> Task[..., ..., Any, Job[Any]]:
        return Task(definition, self._enqueue.store, self._enqueue.run_now)

    def _named(self, name: str, settings: CallOptions) -> Task[..., ..., Any, Job[Any]]:
        return self._task(self._tasks.find(name)).using(**settings)

    # -- enqueue ---------------------------------------------------------------------------------------------------
    def enqueue(
        self, name: str, args: Mapping[str, Any] | None = None, **settings: Unpack[CallOptions]
    ) -> Job[Any]:
        """Enqueue a registered task by its name. `settings` are those of `.using()`."""
        return self._named(name, settings).enqueue_args(args or {})

    async def aenqueue(
        self, name: str, args: Mapping[str, Any] | None = None, **settings: Unpack[CallOptions]
    ) -> Job[Any]:
        return await asyncio.to_thread(functools.partial(self.enqueue, name, args, **settings))

    def chain(self, *calls: Bindable[[], Any]) -> Chain[Job[Any]]:
        """Calls that run one after the other: `app.chain(load.bind(day), clean, report).enqueue()`. Each waits for
        the success of the one before it, whose result it finds in `ctx.results()`."""
        return Chain(calls, self._enqueue.store)

    def dag(self) -> Dag[Job[Any]]:
        """A builder for calls that wait for each other by name."""
        return Dag(self._enqueue.store)

    # -- run at once -----------------------------------------------------------------------------------------------
    def run_now(self, task: Task[..., P, Any, Job[R]], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Cap and reject: start a job in this process at once if fewer than the task's `cap` run anywhere, else raise
        AtCapacity, with the holders and a hint when to ask again. `app.run_now(research.using(cap=4), "t1")`. Gives
        back the job as soon as it has begun; `job.result(timeout)` waits for it."""
        return task.run_now(*args, **kwargs)

    def run_now_by_name(
        self, name: str, args: Mapping[str, Any] | None = None, **settings: Unpack[CallOptions]
    ) -> Job[Any]:
        """As `run_now`, for a registered task by its name. `settings` are those of `.using()`."""
        return self._named(name, settings).run_now_args(args or {})

    async def arun_now_by_name(
        self, name: str, args: Mapping[str, Any] | None = None, **settings: Unpack[CallOptions]
    ) -> Job[Any]:
        return await asyncio.to_thread(functools.partial(self.run_now_by_name, name, args, **settings))

    async def arun_now(self, task: Task[..., P, Any, Job[R]], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        return await asyncio.to_thread(self.run_now, task, *args, **kwargs)

    # -- work ------------------------------------------------------------------------------------------------------
    def worker(
        self,
        *,
        queues: str | Iterable[str] = ("default",),
        strict: bool = False,
        concurrency: int = 20,
        threads: int = 8,
        grace: Duration | None = 300.0,
        keep: Duration | None = "7d",
        burst: bool = False,
        listen_url: str | None = None,
        **more: Any,
    ) -> Worker:
        """A worker for these queues. Use it as `async with app.worker(): …` inside another program, or run it with
        `await app.worker().run()`. `grace` is what running jobs get when it drains; `keep` is the age at which
        finished jobs are pruned."""
        settings = WorkerSettings(
            queues=split_names(queues if isinstance(queues, str) else tuple(queues)),
            strict=strict,
            concurrency=concurrency,
            threads=threads,
            grace=None if grace is None else seconds(grace, "grace"),
            keep=None if keep is None else seconds(keep, "keep"),
            burst=burst,
            listen_url=listen_url or self._listen_url,
            **more,
        )
        return self._make_worker(dict(self._tasks.definitions), settings)

    def _make_worker(self, tasks: Mapping[str, TaskDefinition], settings: WorkerSettings) -> Worker:
        return Worker(
            self.store,
            tasks,
            settings,
            lifespan=self._lifespan,
            hooks=self._hooks,
            version=metadata.version("leasehold"),
        )

    def _make_embedded(self) -> Worker:
        """The worker of `run_now`. It sees tasks that are registered later, too."""
        return self._make_worker(self._tasks.definitions, embedded_settings(self._grace))

    def include(self, modules: Iterable[str]) -> None:
        """Import modules, so that the tasks in them are registered."""
        for module in modules:
            importlib.import_module(module)

    def lifespan(self, function: Callable[[], AsyncIterator[Any]]) -> Callable[[], AsyncIterator[Any]]:
        """Register an async generator that opens what the worker's jobs share (clients, pools), yields it, and closes
        it again. Handlers find it as `ctx.resources`."""
        self._lifespan = contextlib.asynccontextmanager(function)
        return function

    def on(self, *names: str) -> Callable[[Hook], Hook]:
        """Register a plain function that the worker calls, in a thread, when something of these names has happened:
        `@app.on("stalled")`. It gets a `HookEvent`; what it raises is logged and goes no further."""
        wanted = checked_names(names)

        def register(hook: Hook) -> Hook:
            self._hooks.add(wanted, hook)
            return hook

        return register

    # -- look and steer --------------------------------------------------------------------------------------------
    def get(self, job_id: str) -> Job[Any]:
        """Raises JobNotFound."""
        row = self.operations.get(job_id)
        return Job(row.id, self.operations, self._find_task, row)

    async def aget(self, job_id: str) -> Job[Any]:
        return await asyncio.to_thread(self.get, job_id)

    def jobs(
        self,
        *,
        state: State | str | Iterable[State | str] = (),
        queue: str | None = None,
        kind: str | None = None,
        lane: str | None = None,
        group: str | None = None,
        tag: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> Page:
        """One page of jobs, newest first. Ask for the next with `before=page.next`."""
        filter = Filter(checked_states(state), queue, kind, lane, group, tag)
        return self.operations.list_jobs(filter, limit, before)

    def group(self, name: str) -> Group:
        """The jobs that were enqueued with `group=name`: their status, and the verbs on all of them."""
        return Group(name, self.operations)

    def stop(self, **asked: Unpack[StopOptions]) -> StopReport:
        """Stop every job that matches all that is given: `group`, `queue`, `kinds`, `lane`, `tags` (all of them), or
        `everything=True`. What does not run is cancelled at once. Running jobs: `mode="graceful"` lets them end without
        another try and waits for them up to `wait` (30 s); `"immediate"` tells them to stop and returns; `"full"`
        tells them and waits. `dry_run` changes nothing. `hold=True`, for whole groups, refuses new jobs until
        `app.group(name).release()`. `reason` and `actor` stand in the history."""
        return self.operations.stop(**asked)

    async def astop(self, **asked: Unpack[StopOptions]) -> StopReport:
        """As `stop`."""
        return await asyncio.to_thread(functools.partial(self.stop, **asked))

    def count(self) -> dict[State, int]:
        """Jobs by state, each counted up to 10,000."""
        return self.operations.count()

    def prune(self, older_than: Duration = "7d") -> int:
        """Delete jobs that came to rest longer ago than this. Never what halts a lane, holds a unique key for good,
        or belongs to a group that still lives."""
        return self.operations.prune(older_than)

    # -- the store -------------------------------------------------------------------------------------------------
    @property
    def store(self) -> Store:
        """The open store, with a schema that this code knows."""
        if self._store is None:
            with self._opening:
                if self._store is None:
                    self._store = self._open(upgrade=self.url.startswith("sqlite"))
        return self._store

    @contextlib.contextmanager
    def unchecked(self) -> Iterator[Operations]:
        """The operator's verbs on a store whose schema may be missing or old."""
        store = open_store(self.url, schema=self._schema, clock=self._clock, pooler=self._pooler)
        try:
            yield Operations(lambda: store)
        finally:
            store.close()

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Leasehold]:
        """An app without tasks on an empty store beside this one: a schema of its own in the same database, or a file
        in the same folder. It is removed when the block ends."""
        with (
            scratch_place(self.url, self._pooler) as (url, schema),
            Leasehold(url, schema=schema, pooler=self._pooler, clock=self._clock) as app,
        ):
            app.upgrade()
            yield app

    def upgrade(self) -> list[int]:
        """Bring the schema up to date; the versions that were applied. Safe to call from several processes."""
        with self.unchecked() as operations:
            return operations.upgrade()

    def close(self) -> None:
        """End the runs of `run_now`, which get their grace, and close the connections. The app opens new ones if it is
        used again."""
        self._embedded.close()
        with self._opening:
            store, self._store = self._store, None
        if store is not None:
            store.close()

    @contextlib.contextmanager
    def moved_to(self, url: str, clock: Clock | None = None) -> Iterator[None]:
        """Work on another store until the block ends. For tests."""
        before = self.url, self._clock
        self.close()
        self.url, self._clock = url, clock
        try:
            yield
        finally:
            self.close()
            self.url, self._clock = before

    def __enter__(self) -> Leasehold:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, upgrade: bool) -> Store:
        store = open_store(self.url, schema=self._schema, clock=self._clock, pooler=self._pooler)
        try:
            if upgrade:
                store.upgrade()
            store.check_schema()
        except BaseException:
            store.close()
            raise
        return store
