"""Leasehold: the app as users write it. What its verbs stand on is wired in `internals.py`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from types import EllipsisType
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from leasehold.client.group import Group
from leasehold.client.job import Job
from leasehold.client.limits import Rates, Slots
from leasehold.client.questions import Questions
from leasehold.client.queues import Lanes, Pausable
from leasehold.client.register import Register, RegisterSchedule
from leasehold.client.run_by_id import Ran
from leasehold.client.schedules import Schedules
from leasehold.domain.by_id import NotRun
from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.states import checked_states
from leasehold.domain.states import State
from leasehold.domain.stop import StopOptions, StopReport, StopRequest
from leasehold.domain.views import Criteria, Filter, Page, Reaped
from leasehold.internals import AnyTask, Internals, Place
from leasehold.run.context import Context, SyncContext
from leasehold.run.middleware import M
from leasehold.stores.base.database import Clock
from leasehold.stores.open import resolve_url
from leasehold.tasks.call import Bindable
from leasehold.tasks.flows import Chain, Dag
from leasehold.tasks.schedule import When, schedule_for
from leasehold.tasks.settings import CallOptions, TaskOptions
from leasehold.tasks.task import Task
from leasehold.worker.hooks import Hook, checked_names
from leasehold.worker.settings import WorkerSettings, grace_in_seconds, split_names
from leasehold.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")


class Leasehold:
    """Your jobs, in your database.

        app = Leasehold()                                 # LEASEHOLD_URL, else sqlite:///leasehold.db
        app = Leasehold("postgresql://…", schema="jobs")  # else LEASEHOLD_SCHEMA, else "leasehold"

    Nothing is opened before it is needed. A SQLite file is made and upgraded by itself; a PostgreSQL schema is
    upgraded when you say so, with `app.upgrade()`. `grace` is what runs of `run_now` and `run_by_id` get when the app
    is closed; left out, it is SHUTDOWN_GRACE_PERIOD_SECONDS of the environment, else 300.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        listen_url: str | None = None,
        pooler: bool = False,
        clock: Clock | None = None,
        grace: Duration | EllipsisType | None = ...,
    ) -> None:
        place = Place(
            url=resolve_url(url),
            schema=schema or os.environ.get("LEASEHOLD_SCHEMA") or "leasehold",
            listen_url=listen_url,
            pooler=pooler,
            clock=clock,
        )
        internals = Internals(place, grace_in_seconds(grace))
        self.__internals__ = internals
        """Not for users: see `internals.py`."""
        operations, find_task = internals.operations, internals.find_task
        self.queues = Pausable(operations, "queue")
        self.kinds = Pausable(operations, "kind")
        self.lanes = Lanes(operations, find_task)
        self.slots = Slots(operations)
        self.rates = Rates(operations)
        self.questions = Questions(operations, find_task)
        self.schedules = Schedules(operations, internals.tasks, internals.enqueue)

    @property
    def url(self) -> str:
        """Of the database that it works on."""
        return self.__internals__.place.url

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
    ) -> AnyTask:
        return self.__internals__.add_task(function, name, settings)

    def schedule(
        self,
        *,
        name: str | None = None,
        args: Mapping[str, Any] | None = None,
        at_start: bool = False,
        **when: Unpack[When],
    ) -> RegisterSchedule:
        """Make a task due by itself: `@app.schedule(every="15m")`, or `cron="0 3 * * *"` with `tz="Europe/Berlin"`. On
        a function, which becomes a task, or above `@app.task(…)`. `missed` says what becomes of ticks that came while
        no worker ran ("one" job for all of them, "skip", or "all"); `overlap`, what becomes of a tick while the job of
        the one before lives ("skip", "allow", "replace"). With `at_start` there is a tick when the fleet starts. A
        task's argument called `tick` gets the time of the tick."""

        def add(function: Any) -> AnyTask:
            task = function if isinstance(function, Task) else self._register(function, None, {})
            definition = self.__internals__.tasks.find(task.name)
            self.__internals__.tasks.schedule(schedule_for(definition, name, args, when, at_start))
            return task

        return RegisterSchedule(add)

    # -- enqueue ---------------------------------------------------------------------------------------------------
    def enqueue(
        self, name: str, args: Mapping[str, Any] | None = None, **settings: Unpack[CallOptions]
    ) -> Job[Any]:
        """Enqueue a registered task by its name. `settings` are those of `.using()`."""
        return self.__internals__.named_task(name, settings).enqueue_many([args or {}])[0]

    async def aenqueue(
        self, name: str, args: Mapping[str, Any] | None = None, **settings: Unpack[CallOptions]
    ) -> Job[Any]:
        return await asyncio.to_thread(functools.partial(self.enqueue, name, args, **settings))

    def chain(self, *calls: Bindable[[], Any]) -> Chain[Job[Any]]:
        """Calls that run one after the other: `app.chain(load.bind(day), clean, report).enqueue()`. Each waits for
        the success of the one before it, whose result it finds in `ctx.results()`."""
        return Chain(calls, self.__internals__.enqueue)

    def dag(self) -> Dag[Job[Any]]:
        """A builder for calls that wait for each other by name."""
        return Dag(self.__internals__.enqueue)

    # -- run at once -----------------------------------------------------------------------------------------------
    def run_now(self, task: Task[..., P, Any, Job[R]], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Start a job in this process at once if fewer than the task's `max_running` run anywhere, else raise
        AtCapacity, with the holders and a hint when to ask again. `app.run_now(research.using(max_running=4), "t1")`.
        Returns the job as soon as it has begun; `job.result(timeout)` waits for it."""
        return task.run_now(*args, **kwargs)

    async def arun_now(self, task: Task[..., P, Any, Job[R]], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        return await asyncio.to_thread(self.run_now, task, *args, **kwargs)

    def run_by_id(self, job_id: str, *, owner: str | None = None, wait: Duration = 0) -> Ran | NotRun:
        """Run a job that is there already, in this process: for ids that are delivered by another queue (RQ, SQS …).
        Claims exactly this job, whatever its queue, runs it with all that a worker gives, and returns when the database
        has its ending: `Ran(job, retry_in)`. Else `NotRun(job_id, state, why, retry_in)`, and the job is as it was.
        `retry_in` is None when the message is done with, else the seconds to come back after.

        `wait`: how long to ask again while it may still become free, such as a lease whose owner is dead. `owner` names
        the holder of the lease; no other process may use that name at the same time."""
        return self.__internals__.by_id.run(job_id, owner, wait)

    async def arun_by_id(self, job_id: str, *, owner: str | None = None, wait: Duration = 0) -> Ran | NotRun:
        return await self.__internals__.by_id.run_async(job_id, owner, wait)

    # -- work ------------------------------------------------------------------------------------------------------
    def worker(
        self,
        *,
        queues: str | Iterable[str] = ("default",),
        strict: bool = False,
        concurrency: int = 20,
        threads: int = 8,
        grace: Duration | EllipsisType | None = ...,
        drain_on_sigterm: bool = True,
        retention: Duration | None = "7d",
        burst: bool = False,
        listen_url: str | None = None,
        **more: Any,
    ) -> Worker:
        """A worker for these queues. Use it as `async with app.worker(): …` inside another program, or run it with
        `await app.worker().run()`. `grace` is what running jobs get when it drains: left out, it is
        SHUTDOWN_GRACE_PERIOD_SECONDS of the environment, else 300; None waits for them. `retention` is the age at which
        finished jobs are pruned. Inside a program that handles SIGTERM it claims nothing more from that signal on,
        unless `drain_on_sigterm=False`."""
        settings = WorkerSettings(
            queues=split_names(queues if isinstance(queues, str) else tuple(queues)),
            strict=strict,
            concurrency=concurrency,
            threads=threads,
            grace=grace_in_seconds(grace),
            drain_on_sigterm=drain_on_sigterm,
            retention=None if retention is None else seconds(retention, "retention"),
            burst=burst,
            listen_url=listen_url or self.__internals__.place.listen_url,
            **more,
        )
        return self.__internals__.make_worker(settings)

    def include(self, modules: Iterable[str]) -> None:
        """Import modules, so that the tasks in them are registered."""
        for module in modules:
            importlib.import_module(module)

    def lifespan(self, function: Callable[[], AsyncIterator[Any]]) -> Callable[[], AsyncIterator[Any]]:
        """Register an async generator that opens what the worker's jobs share (clients, pools), yields it, and closes
        it again. Handlers find it as `ctx.resources`."""
        self.__internals__.lifespan = contextlib.asynccontextmanager(function)
        return function

    def middleware(self, function: M) -> M:
        """Register a function around every run: `async def trace(run, call_next): return await call_next()` for async
        tasks, a plain one for plain tasks. It sees the handler's exception; what it returns or raises counts as the
        handler's. The first one registered is the outermost."""
        self.__internals__.add_middleware(function)
        return function

    def on(self, *names: str) -> Callable[[Hook], Hook]:
        """Register a plain function that the worker calls, in a thread, when something of these names has happened:
        `@app.on("stalled")`. It gets a `HookEvent`; what it raises is logged and goes no further."""
        wanted = checked_names(names)

        def register(hook: Hook) -> Hook:
            self.__internals__.hooks.add(wanted, hook)
            return hook

        return register

    # -- look and steer --------------------------------------------------------------------------------------------
    def get(self, job_id: str) -> Job[Any]:
        """Raises JobNotFound."""
        return self.__internals__.handle(job_id)

    async def aget(self, job_id: str) -> Job[Any]:
        return await asyncio.to_thread(self.get, job_id)

    def jobs(
        self,
        *,
        state: State | str | Iterable[State | str] = (),
        limit: int = 50,
        before: str | None = None,
        **criteria: Unpack[Criteria],
    ) -> Page:
        """One page of jobs, newest first, of those that match all that is given: `queue`, `kind`, `lane`, `group`,
        `tag`. Ask for the next with `before=page.next`."""
        filter = Filter(checked_states(state), **criteria)
        return self.__internals__.operations.list_jobs(filter, limit, before)

    async def ajobs(
        self,
        *,
        state: State | str | Iterable[State | str] = (),
        limit: int = 50,
        before: str | None = None,
        **criteria: Unpack[Criteria],
    ) -> Page:
        found = functools.partial(self.jobs, state=state, limit=limit, before=before, **criteria)
        return await asyncio.to_thread(found)

    def group(self, name: str) -> Group:
        """The jobs that were enqueued with `group=name`: their status, and the verbs on all of them."""
        return Group(name, self.__internals__.operations)

    def stop(self, **asked: Unpack[StopOptions]) -> StopReport:
        """Stop every job that matches all that is given: `group`, `queue`, `kinds`, `lane`, `tags` (all of them), or
        `everything=True`. What does not run is cancelled at once. Running jobs: `mode="graceful"` lets them end without
        another try and waits for them up to `wait` (30 s); `"immediate"` tells them to stop and returns; `"full"`
        tells them and waits. `dry_run` changes nothing. `hold=True`, for whole groups, refuses new jobs until
        `app.group(name).release()`. `reason` and `actor` stand in the history."""
        return self.__internals__.operations.stop(StopRequest(**asked))

    async def astop(self, **asked: Unpack[StopOptions]) -> StopReport:
        return await asyncio.to_thread(functools.partial(self.stop, **asked))

    def count(self) -> dict[State, int]:
        """Jobs by state, each counted up to 10,000."""
        return self.__internals__.operations.count()

    async def acount(self) -> dict[State, int]:
        return await asyncio.to_thread(self.count)

    def prune(self, older_than: Duration = "7d") -> int:
        """Delete jobs that came to rest longer ago than this. Never what halts a lane, holds a unique key for good,
        or belongs to a group that still lives."""
        return self.__internals__.operations.prune(older_than)

    async def aprune(self, older_than: Duration = "7d") -> int:
        return await asyncio.to_thread(self.prune, older_than)

    def sweep(self, wait: Duration | None = None) -> list[Reaped]:
        """One sweep now, as every worker makes them: takes over jobs whose lease was missed, ends jobs and questions
        whose time is over. A missed lease is looked at twice, a third of its length apart: `sweep` waits for that, at
        most `wait` long. With `wait=0` it looks once, and the next call is the second look. Gives back what was taken
        over."""
        return self.__internals__.sweep(None if wait is None else seconds(wait, "wait"))

    async def asweep(self, wait: Duration | None = None) -> list[Reaped]:
        return await asyncio.to_thread(self.sweep, wait)

    # -- the database ----------------------------------------------------------------------------------------------
    def upgrade(self) -> list[int]:
        """Bring the schema up to date; the versions that were applied. Safe to call from several processes."""
        with self.__internals__.unchecked() as operations:
            return operations.upgrade()

    async def aupgrade(self) -> list[int]:
        return await asyncio.to_thread(self.upgrade)

    def close(self) -> None:
        """End the runs of `run_now`, which get their grace, and close the connections. The app opens new ones if it is
        used again."""
        self.__internals__.close()

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Leasehold:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
