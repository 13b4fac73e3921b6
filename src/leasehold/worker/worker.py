"""The worker: creates, starts and stops its roles, tunes their process and handles SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from leasehold.domain.errors import InvalidInput
from leasehold.domain.hooks import WEBHOOK_TASK
from leasehold.domain.records import WorkerCard, WorkerProblem
from leasehold.domain.schedules import Schedule
from leasehold.run.exceptions import ExitGuard
from leasehold.run.executions import Executions
from leasehold.run.journal import Journal, Waits
from leasehold.stores.database.wakeups import Hint, Wakeups
from leasehold.tasks.definition import TaskDefinition
from leasehold.threads import SignalHandler, Threads, apart_from_forks
from leasehold.worker.attempts import Attempts, Drain, closed_if_it_fails, to_its_end
from leasehold.worker.claimer import Claimer
from leasehold.worker.health import Health, HealthWatch, judge, too_many_left_behind
from leasehold.worker.hooks import HookDispatcher, Hooks, make_delivery, webhook_task
from leasehold.worker.lease_keeper import LeaseKeeper
from leasehold.worker.logs import LogCapture, LogFields, log_queues
from leasehold.worker.meter import Meter
from leasehold.worker.process.attempt import Processes
from leasehold.worker.pruner import ExecutionCleanup, Pruner
from leasehold.worker.reaper import Reaper
from leasehold.worker.scheduler import Scheduler
from leasehold.worker.service import HandlerThreads, Role, Service, StoreThreads
from leasehold.worker.settings import WorkerSettings
from leasehold.worker.settler import Settler
from leasehold.worker.starter import Starter
from leasehold.worker.watchdog import LoopWatch, StallWatch, Watchdog
from leasehold.worker.writers import BatchWriter, UpdateWriter

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

logger = logging.getLogger("leasehold.worker")

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]

PRESENCE_EVERY = 10.0


_threads = Threads(16, "worker")
"""Separate from async methods' threads: `run_now` and `run_by_id` may block all of those until a worker starts."""


class Worker:
    """Serves queues until it is drained.

    async with app.worker(concurrency=20):      # inside another program
        ...
    await app.worker().run()                    # as the program
    """

    def __init__(
        self,
        store: JobStore,
        tasks: Mapping[str, TaskDefinition],
        settings: WorkerSettings,
        *,
        lifespan: Lifespan | None = None,
        hooks: Hooks | None = None,
        schedules: Callable[[], Sequence[Schedule]] = tuple,
        waits: Waits | None = None,
        version: str = "",
    ) -> None:
        if not tasks:
            raise InvalidInput(
                "tasks", "the app has none", "register functions with @app.task, or app.include them"
            )
        self._store = store
        self._tasks = {**tasks, WEBHOOK_TASK: webhook_task(store)} if settings.claims else tasks
        self.settings = settings
        self._processes = Processes(
            self._tasks.values() if settings.claims else (), settings.stop_grace, settings.capture_logs
        )
        self._lifespan = lifespan
        self._hooks = hooks or Hooks()
        self._schedules = schedules
        self._waits = waits
        self._version = version
        self._stack = AsyncExitStack()
        self._is_program = False
        self._drain_requested = False
        self._lives = False
        self._away = False
        """The database did not take the last results: do not try to sign off."""
        self.gave_up = False
        """Too many handlers ignored their stop, or results could not be settled: the process should be replaced (exit
        code 75)."""

    # -- life ------------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Work until `request_drain`, or in a burst until nothing is left. The process then belongs to the worker: it
        tunes garbage collection and thread switching, and handles SIGTERM unless the program does: the first one
        drains, the second one stops running jobs at once."""
        tune_process()
        self._is_program = True
        async with self:
            await self.finished()

    async def finished(self) -> None:
        """Wait until the worker claims no more jobs: it drains, or, in a burst, nothing is left."""
        await self._finished.wait()

    async def __aenter__(self) -> Self:
        async with closed_if_it_fails(self._stack):
            self._finished = asyncio.Event()
            _threads.start()
            for prepare in (
                self._store.check_for_worker,
                self._check_results,
                self._register_retention,
                self._open_runners,
            ):
                await _threads.call(prepare)
            self._wakeups = await _threads.call(self._listen)
            self._stack.callback(self._wakeups.close)
            resources = None
            if self._lifespan is not None:
                resources = await self._stack.enter_async_context(self._lifespan())
            loop = asyncio.get_running_loop()
            self._stack.enter_context(apart_from_forks(loop))
            self._wire(loop, resources)
            exits = ExitGuard(loop)
            exits.start()
            self._stack.callback(exits.stop)
            if self.settings.drain_on_sigterm:
                self._stack.enter_context(
                    catching_sigterm(
                        lambda: self._call_on(loop, self._stop_claiming),
                        (lambda: self._call_on(loop, self.request_drain)) if self._is_program else None,
                    )
                )
            if self.settings.burst:
                # Enqueue what is due before the first claim: a burst runs no scheduler in the background.
                await _threads.call(self._scheduler.once)
            await _threads.call(self.hook_dispatcher.register)
            for role in self._roles:
                role.start()
            self._loop_tasks = [
                asyncio.create_task(self._claim_until_done(), name="leasehold claimer"),
                asyncio.create_task(self.settler.run(), name="leasehold settler"),
                asyncio.create_task(self._watchdog.run(), name="leasehold watch"),
            ]
            log_queues(self.settings, self._tasks)
            self._lives = True
            if self._drain_requested:  # requested during the start
                self._begin_drain()
            return self

    def _check_results(self) -> None:
        """Raise now, not after a job's work, if results of a task cannot be stored. A worker without claims checks when
        it gets a job."""
        files = any(task.settings.result == "file" for task in self._tasks.values())
        self._store.check_results(needed=files and self.settings.claims)

    def _register_retention(self) -> None:
        """Store the tasks' retention for all pruners: they need not have the task's code."""
        if self.settings.claims:
            self._store.set_retention({name: task.retention for name, task in self._tasks.items()})

    def _open_runners(self) -> None:
        """Report an unreachable Docker engine now, not job by job."""
        if self.settings.claims:
            for task in self._tasks.values():
                if task.external is not None:
                    task.external.check_runner(task.name)

    def _wire(self, loop: asyncio.AbstractEventLoop, resources: Any) -> None:
        """Every role is complete when it is made: it gets what it needs from the roles before it."""
        store, settings = self._store, self.settings
        self._loop = loop
        self._changed = asyncio.Event()
        """Set when there may be work, or a free place for it: the claimer waits for this."""
        freed = self._changed.set
        self._executor = StoreThreads()
        self.updates = UpdateWriter(store)
        self.hook_dispatcher = HookDispatcher(store, self._hooks, make_delivery, self._serve_webhooks)
        self.attempts = Attempts(loop, freed)
        self.keeper = LeaseKeeper(store.another(), self.attempts, lambda: self._wakeups.listens)
        self.meter = Meter(store)
        self.settler = Settler(
            store,
            settings.name,
            self._executor,
            self.updates,
            self.hook_dispatcher,
            self.meter,
            self.attempts.settled,
        )
        self._drain = Drain(self.attempts, self.settler, settings.shutdown_grace)
        handler_writes = HandlerThreads(settings.concurrency + settings.max_executions)
        self._journal = Journal(
            store, settings.name, handler_writes, BatchWriter(), self.attempts.on_refused, self._waits
        )
        self._executions = Executions()
        self.starter = Starter(
            self._tasks,
            settings.threads,
            self.attempts,
            keeper=self.keeper,
            settler=self.settler,
            meter=self.meter,
            journal=self._journal,
            executions=self._executions,
            updates=self.updates,
            processes=self._processes,
            resources=resources,
            on_freed=freed,
            tracing=settings.tracing,
        )
        self._claimer = Claimer(
            store,
            self._tasks,
            settings,
            self._executor,
            self.attempts,
            starter=self.starter,
            settler=self.settler,
            changed=self._changed,
            on_work=self._wakeups.expect_more,
        )
        stalls = StallWatch(self.updates, self.hook_dispatcher, self.attempts.stop)
        self._watchdog = Watchdog(
            self.attempts, self.starter, stalls, settings.stop_grace, self._on_left_behind
        )
        self._loop_watch = LoopWatch(self._watchdog)
        self._scheduler = Scheduler(
            store, settings.name, self._tasks, self._schedules, starting=not settings.burst
        )
        self._presence = Service("presence", self._report)
        self._roles: list[Role] = [
            self.keeper,
            Reaper(store, settings.sweep, self.meter),
            self._presence,
            self._loop_watch,
            self.updates,
            self.hook_dispatcher,
            LogFields(),
        ]
        if not self._wakeups.subscribe(lambda hint: self._received(loop, hint)):
            self._roles.append(Service("wake-ups", lambda: self._receive(loop)))
        if settings.capture_logs:
            self._roles.append(LogCapture(self.updates))
        if settings.claims and not settings.burst:
            self._roles.append(self._scheduler)
        if self._claimer.sites and not settings.tenants:
            self._roles.append(ExecutionCleanup(store, lambda: self._claimer.runners))
        if settings.prunes:
            self._roles.append(Pruner(store, settings.retention, settings.audit_retention))
        file = settings.health_file
        self._roles.append(HealthWatch(self.health, None if file is None else Path(file)))

    async def __aexit__(self, *_: object) -> None:
        try:
            await to_its_end(self._end(), self._drain.hurry)
        finally:
            await self._stack.aclose()  # in the task that entered it: cancel scopes require that

    def request_drain(self) -> None:
        """Stop claiming jobs; running ones get their grace. A second call stops them at once."""
        again, self._drain_requested = self._drain_requested, True
        if again and self._lives:
            self._drain.hurry()
        elif self._lives:
            self._begin_drain()

    def _begin_drain(self) -> None:
        logger.info("draining: no new jobs; %d running", len(self.attempts.unfinished()))
        self._scheduler.retire()
        self._claimer.drain()
        self._finished.set()

    def _stop_claiming(self) -> None:
        """The surrounding program is ending. It may first finish its own work, such as open requests; running jobs go
        on meanwhile, and their grace begins when the worker's block ends."""
        logger.info("SIGTERM: no new jobs; %d running", len(self.attempts.unfinished()))
        self._scheduler.retire()
        self._claimer.drain()
        self._presence.nudge()

    def sites_of(self, task: str) -> list[str]:
        """The sites where this worker can adopt executions of the task."""
        return self._claimer.sites_of(task)

    def health(self) -> Health:
        """Whether the worker is healthy, and what is wrong if not."""
        return judge(
            self._claimer,
            self.attempts,
            self.settler,
            self.hook_dispatcher,
            self._loop_watch,
            self.settings,
            self._roles,
            self._store.problems,
            finished=self._finished.is_set(),
        )

    # -- roles -----------------------------------------------------------------------------------------------------
    async def _claim_until_done(self) -> None:
        await self._claimer.run()
        if self._claimer.draining:
            # A claim that was under way may still have brought jobs; they are handed back.
            logger.info("claiming has stopped")
        self._finished.set()

    def _on_left_behind(self) -> None:
        self._changed.set()
        if too_many_left_behind(self.attempts, self.settings) and not self.gave_up:
            self.gave_up = True
            logger.error(
                "half of this worker's places are taken by handlers that ignore their stop: draining"
            )
            self.request_drain()

    def _listen(self) -> Wakeups:
        """Open the wake-ups. A worker without claims needs no connection for them: its keeper reads stop requests."""
        claims = self.settings.claims
        return self._store.wakeups(self.settings.listen_url) if claims else self._store.local_wakeups()

    def _receive(self, loop: asyncio.AbstractEventLoop) -> float:
        hint = self._wakeups.wait(1.0)
        if hint:
            self._received(loop, hint)
        return 0.0

    def _received(self, loop: asyncio.AbstractEventLoop, hint: Hint) -> None:
        if Hint.STOP in hint:
            self.keeper.expect_stop_request()
        if Hint.WORK in hint:
            self._call_on(loop, self._changed.set)
        if Hint.HOOKS in hint:
            self.hook_dispatcher.hint(hint)

    def _serve_webhooks(self) -> None:
        self._call_on(self._loop, self._claimer.serve_webhooks)

    def _call_on(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has just ended
            loop.call_soon_threadsafe(call)

    def _report(self) -> float:
        """Record this worker in the database, for `why`."""
        health = self.health()
        self._store.report_worker(
            WorkerCard(
                name=self.settings.name,
                queues=self._claimer.queues,
                tasks=self._claimer.tasks,
                tenants=self.settings.tenants,
                sites=tuple(self._claimer.sites),
                concurrency=self.settings.concurrency + self.settings.threads if self.settings.claims else 0,
                running=max(0, health.running - self.starter.webhooks),  # deliveries take no places of jobs
                draining=self._claimer.draining or self._finished.is_set(),
                version=self._version,
                problems=(*(WorkerProblem(None, text) for text in health.problems), *health.tenants),
            )
        )
        self.meter.flush()
        return PRESENCE_EVERY

    # -- end -------------------------------------------------------------------------------------------------------
    async def _end(self) -> None:
        self.hook_dispatcher.finishes = self.settings.burst and not self._drain_requested
        self._scheduler.retire()
        self._claimer.drain()
        self._finished.set()
        self._presence.nudge()
        if not await self._drain.run(self._loop_tasks[0]):
            self.gave_up = self._away = True
        self._lives = self._drain_requested = False
        for task in self._loop_tasks:
            task.cancel()
        await asyncio.gather(*self._loop_tasks, return_exceptions=True)
        self._wakeups.close()
        # All at once: with the database away each of them may hang for a while.
        await asyncio.gather(*(_threads.call(role.stop) for role in self._roles))
        if not self._away:
            await _threads.call(self._sign_off)
        self.starter.close()
        await self._executions.close()
        await _threads.call(self._journal.close)
        worker, attempts = self.settings.name, self.attempts
        attempts.give_up()
        self._executor.shutdown(wait=False, cancel_futures=True)
        logger.info("worker %s ended: %d settled, %d refused", worker, attempts.ended, attempts.fenced)

    def _sign_off(self) -> None:
        try:
            self.meter.flush()
            self._store.forget_worker(self.settings.name)
        except Exception as error:
            logger.debug("could not sign off: %s", error)


# -- the process -------------------------------------------------------------------------------------------------------


def tune_process() -> None:
    """Tune garbage collection and thread switching. A job makes a dozen short-lived objects and no cycles: by default
    the collector would scan all live objects for them repeatedly, a sixth of the time of a cheap job. And a thread that
    has the database's reply would wait 5 ms for the loop to let it run, as long as a claim takes."""
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    sys.setswitchinterval(0.0005)


# -- SIGTERM in a process that is not the worker's own -----------------------------------------------------------------


class _SharedHandler(SignalHandler):
    """The handler that all workers of this process share. They may end in any order: the last one restores the handler
    before theirs. With one handler each, a worker would restore that of a worker which is gone."""

    def __init__(self, before: Any) -> None:
        self.before = before
        self.members: list[tuple[Callable[[], object], Callable[[], object] | None]] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        handled = callable(self.before)
        for receive, take in list(self.members):
            (receive if handled or take is None else take)()
        if handled:
            self.before(number, frame)


@contextlib.contextmanager
def catching_sigterm(
    receive: Callable[[], object], take: Callable[[], object] | None = None
) -> Iterator[None]:
    """Until the block ends, SIGTERM calls `receive`, and then the previous handler.

    Without a previous handler it calls `take` instead; without `take`, the signal ends the process as before. Only the
    main thread may set handlers, so elsewhere nothing is called. A handler that is set later replaces this one: then
    only that handler is called.
    """
    now: Any = signal.getsignal(signal.SIGTERM)
    taken = take is not None and now is signal.SIG_DFL
    if threading.current_thread() is not threading.main_thread() or not (taken or callable(now)):
        yield
        return
    shared: _SharedHandler = now if isinstance(now, _SharedHandler) else _SharedHandler(now)
    shared.members.append((receive, take))
    if shared is not now:
        signal.signal(signal.SIGTERM, shared)
    try:
        yield
    finally:
        shared.members.remove((receive, take))
        found: Any = signal.getsignal(signal.SIGTERM)
        if not shared.members and found is shared:
            signal.signal(signal.SIGTERM, shared.before)
