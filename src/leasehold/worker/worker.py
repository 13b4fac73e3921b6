"""The worker: wires the roles together, lives, drains and ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from leasehold.domain.errors import InvalidInput
from leasehold.domain.schedules import Schedule
from leasehold.domain.views import WorkerCard
from leasehold.run.exits import ExitGuard
from leasehold.run.journal import Journal
from leasehold.run.waits import Waits
from leasehold.stores.contract import Hint, Store, Wakeups
from leasehold.tasks.definition import TaskDefinition
from leasehold.worker.attempts import Attempts
from leasehold.worker.batch_writer import BatchWriter
from leasehold.worker.health_file import HealthFile
from leasehold.worker.hooks import HookCaller, Hooks
from leasehold.worker.intake import Intake
from leasehold.worker.lease_keeper import LeaseKeeper
from leasehold.worker.log_capture import LogCapture
from leasehold.worker.log_fields import LogFields
from leasehold.worker.pools import HandlerThreads, StoreThreads
from leasehold.worker.pruner import Pruner
from leasehold.worker.questions import QuestionTeller
from leasehold.worker.reaper import Reaper
from leasehold.worker.scheduler import Scheduler
from leasehold.worker.service import Service
from leasehold.worker.settings import WorkerSettings
from leasehold.worker.settler import Settler
from leasehold.worker.sigterm import hearing_sigterm
from leasehold.worker.stall import StallWatch
from leasehold.worker.starter import Starter
from leasehold.worker.stream_writer import EventWriter
from leasehold.worker.watch import Watch

logger = logging.getLogger("leasehold.worker")

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]

PRESENCE_EVERY = 10.0
STUCK_AFTER = 15.0
TICK = 0.05
LAST_SETTLES = 15.0
"""Seconds, at most, that the last results get to reach the database. After that their leases run out."""
LEAST_SETTLES = 5.0
"""That they get even if the grace is over: it counts from the signal."""


@dataclass(frozen=True, slots=True)
class Health:
    """`ok` only if claims go round and the database takes what it is given."""

    ok: bool
    problems: tuple[str, ...]
    running: int
    unsettled: int
    abandoned: int


def tune_process() -> None:
    """For a process that is the worker's alone. A job makes a dozen short-lived objects and no cycles: by Python's
    default the collector would look at all live ones again and again for that, a sixth of the time of a cheap job. And
    a thread that has the database's answer would wait 5 ms for the loop to let it go on, as long as a claim takes."""
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    sys.setswitchinterval(0.0005)


class Role(Protocol):
    """What lives beside the loop as long as the worker does."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Worker:
    """Serves queues until it is drained.

    async with app.worker(concurrency=20):      # inside another program
        ...
    await app.worker().run()                    # as the program
    """

    def __init__(
        self,
        store: Store,
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
        self._tasks = tasks
        self.settings = settings
        self._lifespan = lifespan
        self._hooks = hooks or Hooks()
        self._schedules = schedules
        self._waits = waits
        self._version = version
        self._stack = AsyncExitStack()
        self._drain_asked = False
        self._away = False
        """The database did not take the last results: nobody is asked to sign us off."""
        self.gave_up = False
        """Too many handlers ignored their stop, or results could not be settled: the process should be replaced (exit
        code 75)."""

    # -- life ------------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Work until `request_drain`, or in a burst until nothing is left. As the program: this process is the
        worker's, and so are its garbage collection and its threads' turns."""
        tune_process()
        async with self:
            await self.finished()

    async def finished(self) -> None:
        """Wait until it claims nothing more: it was told to drain, or, in a burst, nothing is left."""
        await self._finished.wait()

    async def __aenter__(self) -> Self:
        self._finished, self._hurry = asyncio.Event(), asyncio.Event()
        self._wakeups = await asyncio.to_thread(self._listen)
        resources = None
        if self._lifespan is not None:
            resources = await self._stack.enter_async_context(self._lifespan())
        loop = asyncio.get_running_loop()
        self._wire(loop, resources)
        exits = ExitGuard(loop)
        exits.start()
        self._stack.callback(exits.stop)
        if self.settings.drain_on_sigterm:
            self._stack.enter_context(hearing_sigterm(lambda: self._call_on(loop, self._stop_claiming)))
        if self.settings.burst:
            # What is due by now shall be there before it looks for work; and nothing comes by itself while it ends.
            await asyncio.to_thread(self._scheduler.once)
        for role in self._roles:
            role.start()
        self._coroutines = [
            asyncio.create_task(self._intake_until_done(), name="leasehold intake"),
            asyncio.create_task(self.settler.run(), name="leasehold settler"),
            asyncio.create_task(self._watch.run(), name="leasehold watch"),
        ]
        serves = ", ".join(self.settings.queues) or "what it is handed"
        logger.info("worker %s serves %s", self.settings.owner, serves)
        return self

    def _wire(self, loop: asyncio.AbstractEventLoop, resources: Any) -> None:
        """Every role is complete when it is made: it gets what it needs from those before it."""
        store, settings = self._store, self.settings
        self._changed = asyncio.Event()
        """There may be work, or a place for it: what the intake waits for."""
        freed = self._changed.set
        self._executor = StoreThreads()
        self.events = EventWriter(store)
        self.hook_caller = hooks = HookCaller(self._hooks)
        self.attempts = Attempts(loop, QuestionTeller(store, hooks).tell, freed)
        self.keeper = LeaseKeeper(store.another(), self.attempts, lambda: self._wakeups.hears)
        self.settler = Settler(store, settings.owner, self._executor, self.events, self.attempts.settled)
        handler_writes = HandlerThreads(settings.concurrency)
        self._journal = Journal(
            store, settings.owner, handler_writes, BatchWriter(), self.attempts.on_refused, self._waits
        )
        self.starter = Starter(
            self._tasks,
            settings.threads,
            self.attempts,
            keeper=self.keeper,
            settler=self.settler,
            journal=self._journal,
            events=self.events,
            resources=resources,
            on_freed=freed,
        )
        self._intake = Intake(
            store,
            self._tasks,
            settings,
            self._executor,
            self.attempts,
            starter=self.starter,
            settler=self.settler,
            changed=self._changed,
            on_work=self._wakeups.stir,
        )
        stalls = StallWatch(self.events, hooks, self.attempts.stop)
        self._watch = Watch(self.attempts, self.starter, stalls, settings.stop_grace, self._abandoned)
        self._scheduler = Scheduler(
            store, settings.owner, self._tasks, self._schedules, starting=not settings.burst
        )
        self._presence = Service("presence", self._tell)
        self._roles: list[Role] = [
            self.keeper,
            Reaper(store, settings.sweep),
            self._presence,
            self.events,
            hooks,
            LogFields(),
        ]
        if not self._wakeups.call(lambda hint: self._heard(loop, hint)):
            self._roles.append(Service("wake-ups", lambda: self._hear(loop)))
        if settings.capture_logs:
            self._roles.append(LogCapture(self.events))
        if settings.claims and not settings.burst:
            self._roles.append(self._scheduler)
        if settings.retention is not None:
            self._roles.append(Pruner(store, settings.retention))
        if settings.health_file is not None:
            self._roles.append(HealthFile(Path(settings.health_file), lambda: self.health().ok))

    async def __aexit__(self, *_: object) -> None:
        await self._drain()
        await self._close()

    def request_drain(self) -> None:
        """No new claims; running jobs get their grace. Asked again: they are stopped at once."""
        if self._drain_asked:
            self._hurry.set()
        else:
            logger.info("draining: no new jobs; %d running", len(self.attempts.unfinished()))
        self._drain_asked = True
        self._scheduler.retire()
        self._intake.drain()
        self._finished.set()

    def _stop_claiming(self) -> None:
        """The program that we are in is told to end. It may first see to its own, such as open requests; what runs
        goes on meanwhile, and its grace begins when our block ends."""
        logger.info("SIGTERM: no new jobs; %d running", len(self.attempts.unfinished()))
        self._scheduler.retire()
        self._intake.drain()
        self._presence.nudge()

    def health(self) -> Health:
        problems = []
        waited = time.monotonic() - self._intake.progress_at
        if waited > STUCK_AFTER and not self._intake.waits_for_place and not self._finished.is_set():
            problems.append(f"no claim for {waited:.0f} s: a handler may block the event loop")
        if self._intake.trouble is not None:
            problems.append(f"no claims: {self._intake.trouble}")
        elif self.settler.in_trouble:
            problems.append("the database does not take results")
        if self._too_many_abandoned:
            problems.append(f"{self.attempts.abandoned} handlers ignored their stop")
        return Health(
            not problems,
            tuple(problems),
            len(self.attempts.unfinished()),
            len(self.attempts.held) - len(self.attempts.unfinished()),
            self.attempts.abandoned,
        )

    # -- roles -----------------------------------------------------------------------------------------------------
    async def _intake_until_done(self) -> None:
        await self._intake.run()
        self._finished.set()

    def _abandoned(self) -> None:
        self._changed.set()
        if self._too_many_abandoned and not self.gave_up:
            self.gave_up = True
            logger.error(
                "half of this worker's places are taken by handlers that ignore their stop: draining"
            )
            self.request_drain()

    @property
    def _too_many_abandoned(self) -> bool:
        """Half of the places on the loop, or of the threads, are gone: better to start afresh."""
        on_loop, in_threads = self.attempts.abandoned_on_loop, self.attempts.abandoned_in_threads
        return 2 * on_loop >= self.settings.concurrency > 0 or 2 * in_threads >= self.settings.threads > 0

    def _listen(self) -> Wakeups:
        """One that claims nothing needs no connection to listen on: the keeper looks at the flags of what it holds."""
        claims = self.settings.claims
        return self._store.wakeups(self.settings.listen_url) if claims else self._store.near_wakeups()

    def _hear(self, loop: asyncio.AbstractEventLoop) -> float:
        hint = self._wakeups.wait(1.0)
        if hint:
            self._heard(loop, hint)
        return 0.0

    def _heard(self, loop: asyncio.AbstractEventLoop, hint: Hint) -> None:
        if Hint.STOP in hint:
            self.keeper.look()
        if Hint.WORK in hint:
            self._call_on(loop, self._changed.set)

    def _call_on(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has just ended
            loop.call_soon_threadsafe(call)

    def _tell(self) -> float:
        """Say who we are, for `why`; and look whether the claim loop still goes round."""
        health = self.health()
        if not health.ok:
            logger.error("not well: %s", "; ".join(health.problems))
        self._store.beat_worker(
            WorkerCard(
                owner=self.settings.owner,
                queues=self.settings.queues,
                kinds=tuple(sorted(self._tasks)),
                concurrency=self.settings.concurrency + self.settings.threads if self.settings.claims else 0,
                running=health.running,
                draining=self._finished.is_set(),
                version=self._version,
            )
        )
        return PRESENCE_EVERY

    # -- end -------------------------------------------------------------------------------------------------------
    async def _drain(self) -> None:
        self._scheduler.retire()
        self._intake.drain()
        self._finished.set()
        self._presence.nudge()
        grace = self.settings.grace
        ends_at = None if grace is None else time.monotonic() + grace
        # A claim that is under way may still bring jobs: they are handed back. A database that is away may keep it.
        await asyncio.wait([self._coroutines[0]], timeout=self._patience(ends_at))
        if not await self._idle_in_time(ends_at):
            logger.warning("%d job(s) did not end in time: stopping them", len(self.attempts.unfinished()))
            self.attempts.stop_all("drain")
            # The watch abandons those who do not obey, so this ends.
            while self.attempts.unfinished():
                await asyncio.sleep(TICK)
        try:
            await asyncio.wait_for(self.settler.drained(), self._patience(ends_at))
        except TimeoutError:
            self.gave_up = self._away = True
            logger.error(
                "%d result(s) could not be settled: the database does not take them, their leases will run out",
                len(self.attempts.held),
            )

    def _patience(self, ends_at: float | None) -> float:
        """Seconds for the database, within the grace."""
        if self._hurry.is_set():
            return LEAST_SETTLES
        left = LAST_SETTLES if ends_at is None else ends_at - time.monotonic()
        return max(LEAST_SETTLES, min(LAST_SETTLES, left))

    async def _idle_in_time(self, ends_at: float | None) -> bool:
        """False: the grace is over, or somebody is in a hurry, and jobs still run."""
        while self.attempts.unfinished():
            if self._hurry.is_set() or (ends_at is not None and time.monotonic() >= ends_at):
                return False
            await asyncio.sleep(TICK)
        return True

    async def _close(self) -> None:
        for coroutine in self._coroutines:
            coroutine.cancel()
        await asyncio.gather(*self._coroutines, return_exceptions=True)
        self._wakeups.close()
        # At once: with the database away each of them may hang for a while.
        await asyncio.gather(*(asyncio.to_thread(role.stop) for role in self._roles))
        if not self._away:
            await asyncio.to_thread(self._sign_off)
        self.starter.close()
        await asyncio.to_thread(self._journal.close)
        await self._stack.aclose()
        self.attempts.give_up()
        self._executor.shutdown(wait=False, cancel_futures=True)
        logger.info(
            "worker %s ended: %d settled, %d refused",
            self.settings.owner,
            self.attempts.ended,
            self.attempts.fenced,
        )

    def _sign_off(self) -> None:
        try:
            self._store.forget_worker(self.settings.owner)
        except Exception as error:
            logger.debug("could not sign off: %s", error)
