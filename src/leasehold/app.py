"""`Leasehold`: the app. `wiring.py` connects it to its parts."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from types import EllipsisType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from leasehold.client.job import Job
from leasehold.client.mirrors import Mirrors
from leasehold.client.register import Register, RegisterExternal, RegisterSchedule
from leasehold.client.tenants import Tenants
from leasehold.domain.audit import KEPT_FOR
from leasehold.domain.checks.texts import checked_tenant
from leasehold.domain.checks.times import Duration, seconds
from leasehold.domain.hooks import checked_events, checked_webhook, listeners_for
from leasehold.domain.retention import Keep, retention_by_state
from leasehold.domain.tracing import Tracing
from leasehold.run.context import Context, SyncContext
from leasehold.run.middleware import M
from leasehold.runners.contract import Collected, Runner
from leasehold.runners.docker.spec import ContainerSpec, container_spec
from leasehold.runners.subprocess import Command
from leasehold.stores.database.database import Clock
from leasehold.stores.open import resolve_url
from leasehold.tasks.external import ExitMeaning, External, ResultFrom
from leasehold.tasks.schedule import ScheduleOptions, schedule_for
from leasehold.tasks.settings import TaskOptions
from leasehold.tasks.task import Task
from leasehold.threads import aio
from leasehold.view import AppView, Tenant
from leasehold.wiring import AnyTask, Internals, Location
from leasehold.worker.hooks import Hook
from leasehold.worker.settings import QueueOrder, WorkerDetails, WorkerSettings, grace_in_seconds, split_names
from leasehold.worker.worker import Worker

SCHEMA_VARIABLE = "LEASEHOLD_SCHEMA"
"""The PostgreSQL schema of apps and commands that name none; by default `leasehold`."""
RESULTS_VARIABLE = "LEASEHOLD_RESULTS"
"""The folder for results that are files, of apps that name none."""
EXECUTIONS_VARIABLE = "LEASEHOLD_EXECUTIONS"
"""The folder for running commands, of apps that name none."""

P = ParamSpec("P")
R = TypeVar("R")


class Leasehold(AppView):
    """Your jobs, in your database.

        app = Leasehold()                                 # LEASEHOLD_URL, else sqlite:///leasehold.db
        app = Leasehold("postgresql://…", schema="jobs")  # else LEASEHOLD_SCHEMA, else "leasehold"

    The app connects to the database at its first use. It then creates or upgrades a SQLite file by itself; upgrade a
    PostgreSQL schema with `app.upgrade()`. The fields of `wiring.Location` describe the arguments.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        listen_url: str | None = None,
        pooler: bool = False,
        clock: Clock | None = None,
        results: str | os.PathLike[str] | None = None,
        executions: str | os.PathLike[str] | None = None,
        shutdown_grace: Duration | EllipsisType | None = ...,
    ) -> None:
        location = Location(
            url=resolve_url(url),
            schema=schema or os.environ.get(SCHEMA_VARIABLE) or "leasehold",
            listen_url=listen_url,
            pooler=pooler,
            clock=clock,
            results=os.fspath(results) if results else os.environ.get(RESULTS_VARIABLE) or None,
            executions=os.fspath(executions) if executions else os.environ.get(EXECUTIONS_VARIABLE) or None,
        )
        super().__init__(Internals(location, grace_in_seconds(shutdown_grace)))
        self.mirrors = Mirrors(self.__internals__.operations, self.__internals__.tasks)
        self.tenants = Tenants(self.__internals__.operations, self.__internals__.shared.stores.forget)

    @property
    def url(self) -> str:
        """The URL of the app's database."""
        return self.__internals__.location.url

    def configure(self, url: str | None = None, *, schema: str | None = None) -> None:
        """Set the database after the app was created: for programs that register tasks at import and learn the URL
        later, such as a Flask app factory. Call it before the first use of the app. An argument that you leave out
        changes nothing."""
        self.__internals__.configure(None if url is None else resolve_url(url), schema)

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

    def command(
        self,
        *,
        name: str | None = None,
        exit_codes: Mapping[int, ExitMeaning] | None = None,
        result_from: ResultFrom = "file",
        collect: Callable[[Collected], Any] | None = None,
        stop_grace: Duration = 10.0,
        **settings: Unpack[TaskOptions],
    ) -> RegisterExternal:
        """Register a function that returns the command to run: a list of arguments, or a `Command`. No shell is
        involved. The command outlives its worker: if the worker dies or is replaced, the next worker on this machine
        adopts the command.

        `exit_codes` maps an exit code to its meaning ("success", "retry" or "fail"); without it, 0 is a success and any
        other code a failure that may be retried. The result is the JSON that the command writes to the file
        LEASEHOLD_RESULT, or with `result_from="last_line"` the last line that it prints. Or `collect` makes the result:
        a plain function that gets the output and the files of a command that succeeded, before the files are deleted.
        `stop_grace` is the time between SIGTERM and SIGKILL."""
        return self.external(
            runner=self.__internals__.command_runner,
            to_spec=Command.of,
            name=name,
            exit_codes=exit_codes,
            result_from=result_from,
            collect=collect,
            stop_grace=stop_grace,
            **settings,
        )

    def container(
        self,
        *,
        image: str | None = None,
        name: str | None = None,
        runner: Callable[[], Runner[ContainerSpec]] | None = None,
        exit_codes: Mapping[int, ExitMeaning] | None = None,
        result_from: ResultFrom = "file",
        collect: Callable[[Collected], Any] | None = None,
        stop_grace: Duration = 10.0,
        **settings: Unpack[TaskOptions],
    ) -> RegisterExternal:
        """Register a function that returns what to run in a container: a list of arguments for this `image`, or a
        `ContainerSpec`. The container outlives its worker: if the worker dies or is replaced, the next worker on this
        machine adopts the container. It is removed once the job's end is stored.

        `runner` makes a `DockerRunner` of your own, to allow mounts and networks or to name an engine. The other
        settings are those of `app.command`."""
        return self.external(
            runner=runner or self.__internals__.container_runner,
            to_spec=lambda said: container_spec(said, image),
            name=name,
            exit_codes=exit_codes,
            result_from=result_from,
            collect=collect,
            stop_grace=stop_grace,
            **settings,
        )

    def external(
        self,
        *,
        runner: Callable[[], Runner[Any]],
        to_spec: Callable[[Any], Any] | None = None,
        name: str | None = None,
        exit_codes: Mapping[int, ExitMeaning] | None = None,
        result_from: ResultFrom = "file",
        collect: Callable[[Collected], Any] | None = None,
        stop_grace: Duration = 10.0,
        **settings: Unpack[TaskOptions],
    ) -> RegisterExternal:
        """Register a function that returns what a runner of your own runs; `leasehold.runners.contract` describes
        runners. `runner` makes the runner; it is called once, when a worker first needs it. `to_spec` checks what the
        function returned. The other settings are those of `app.command`."""
        external = External(
            open_runner=runner,
            to_spec=to_spec or (lambda said: said),
            exit_codes=exit_codes or {},
            result_from=result_from,
            collect=collect,
            stop_grace=stop_grace,
        )
        return RegisterExternal(
            lambda function: self.__internals__.add_task(function, name, settings, external)
        )

    def schedule(
        self,
        *,
        name: str | None = None,
        args: Mapping[str, Any] | None = None,
        at_start: bool = False,
        **when: Unpack[ScheduleOptions],
    ) -> RegisterSchedule:
        """Run a task at set times: `@app.schedule(every="15m")`, or `cron="0 3 * * *"` with `tz="Europe/Berlin"`. Use
        it on a function, which becomes a task, or above `@app.task(…)`. `missed` decides about ticks that came while no
        worker ran ("one" job for all of them, "skip", or "all"); `overlap`, about a tick while the job of the previous
        tick is still live ("skip", "allow", "replace"). With `at_start` there is also a tick when a worker starts and
        no other live worker has the schedule. An argument of the task called `tick` gets the time of the tick."""

        def add(function: Any) -> AnyTask:
            task = function if isinstance(function, Task) else self._register(function, None, {})
            task.__refuse_using__("a schedule makes its jobs")
            definition = self.__internals__.tasks.find(task.name)
            self.__internals__.tasks.schedule(schedule_for(definition, name, args, when, at_start))
            return task

        return RegisterSchedule(add)

    # -- work ------------------------------------------------------------------------------------------------------
    def worker(
        self,
        *,
        queues: str | Iterable[str] = ("default",),
        queue_order: QueueOrder = "turns",
        concurrency: int = 20,
        threads: int = 8,
        max_executions: int = 50,
        shutdown_grace: Duration | EllipsisType | None = ...,
        drain_on_sigterm: bool = True,
        retention: Keep = "7d",
        audit_retention: Duration | None = KEPT_FOR,
        burst: bool = False,
        listen_url: str | None = None,
        tenants: str | Iterable[str] = (),
        **more: Unpack[WorkerDetails],
    ) -> Worker:
        """Make a worker for these queues. Use it as `async with app.worker(): …` inside another program, or run it with
        `await app.worker().run()`. `shutdown_grace` is the time that running jobs get when the worker drains; by
        default SHUTDOWN_GRACE_PERIOD_SECONDS of the environment, else 300 seconds; None waits for them. `retention` is
        the age at which finished jobs are pruned, for all states (None: never) or by state (`{"succeeded": "1d",
        "failed": None}`); a task's own `retention` takes precedence. `audit_retention` is the age at which entries of
        `app.audit()` are pruned (None: never). Inside a program that handles SIGTERM the worker claims no jobs after
        that signal, unless `drain_on_sigterm=False`. `tenants` names the tenants that the worker serves in turn,
        instead of the app's own jobs; "all" is every tenant, later ones included, and the app itself."""
        settings = WorkerSettings(
            queues=split_names(queues if isinstance(queues, str) else tuple(queues)),
            queue_order=queue_order,
            concurrency=concurrency,
            threads=threads,
            max_executions=max_executions,
            shutdown_grace=grace_in_seconds(shutdown_grace),
            drain_on_sigterm=drain_on_sigterm,
            retention=retention_by_state(retention, "retention", retention_by_state("7d", "retention")),
            audit_retention=None if audit_retention is None else seconds(audit_retention, "audit_retention"),
            burst=burst,
            listen_url=listen_url or self.__internals__.location.listen_url,
            tenants=split_names(tenants if isinstance(tenants, str) else tuple(tenants)),
            **more,
        )
        return self.__internals__.make_worker(settings)

    def include(self, modules: Iterable[str]) -> None:
        """Import modules, so that the tasks in them are registered."""
        for module in modules:
            importlib.import_module(module)

    def lifespan(self, function: Callable[[], AsyncIterator[Any]]) -> Callable[[], AsyncIterator[Any]]:
        """Register an async generator that opens resources for all jobs of a worker (clients, pools), yields them, and
        closes them at the end. Handlers get them as `ctx.resources`."""
        self.__internals__.lifespan = contextlib.asynccontextmanager(function)
        return function

    def middleware(self, function: M) -> M:
        """Register a function around every attempt: `async def trace(run, call_next): return await call_next()` for
        async tasks, a plain function for plain tasks. The function sees the handler's exception; what the function
        returns or raises counts as the handler's. The function that was registered first is the outermost."""
        self.__internals__.add_middleware(function)
        return function

    def instrument(self, tracing: Tracing | None) -> None:
        """Trace every enqueue and every attempt, tenants' too: `leasehold.contrib.opentelemetry` brings a `tracing`. A
        second call replaces the first; None ends the tracing. Existing workers are not changed."""
        self.__internals__.shared.tracing = tracing

    def on(self, *events: str, tasks: Iterable[str] = (), name: str | None = None) -> Callable[[Hook], Hook]:
        """Register a plain function to call, in a thread, when one of these events happens to a job: `@app.on("failed",
        "lane_halted")`, of these `tasks` or of all. The function gets a `Notification`, no matter who caused the event,
        and at least once; a repeat has the same `event.id`. If the function raises, the error is logged and the call is
        repeated later. Any worker whose app registers the function may call it. The hook's `name` is by default that of
        the module and the function."""
        wanted = checked_events(events)

        def register(hook: Hook) -> Hook:
            self.__internals__.hooks.add(wanted, hook, tasks, name)
            return hook

        return register

    def webhook(
        self,
        url: str,
        *,
        events: Iterable[str],
        secret: str,
        name: str,
        tasks: Iterable[str] = (),
        allow_private: bool = False,
    ) -> None:
        """Post these events to a URL, signed with the secret (see `leasehold.webhooks.verify`). Each delivery is a job,
        and retried like one. A worker registers the webhook when it starts. Private addresses and plain http are
        refused unless `allow_private`."""
        webhook = checked_webhook(name, url, secret, allow_private=allow_private, source="code")
        listeners = listeners_for(webhook, list(events), list(tasks))
        self.__internals__.hooks.webhooks.append((webhook, listeners))

    # -- tenants ---------------------------------------------------------------------------------------------------
    def tenant(self, name: str) -> Tenant:
        """Return the view of one tenant: the app's tasks, and jobs in a store of its own. The call does not connect;
        the view's verbs raise TenantNotFound if `app.tenants.create(name)` was never called."""
        return Tenant(self.__internals__.of_tenant(checked_tenant(name)))

    # -- the database ----------------------------------------------------------------------------------------------
    def upgrade(self, *, actor: str | None = None) -> list[int]:
        """Bring the schema up to date and return the versions that were applied. Several processes may call it at the
        same time."""
        with self.__internals__.unchecked() as operations:
            return operations.upgrade(actor=actor)

    aupgrade = aio(upgrade)

    def close(self) -> None:
        """Stop the jobs of `run_now` and `run_by_id`, within the shutdown grace, and close the connections. The next
        use of the app opens new ones."""
        self.__internals__.close()

    aclose = aio(close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
