"""The worker: wires the roles together, lives, drains and ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from leasehold.domain.errors import InvalidInput
from leasehold.domain.views import WorkerCard
from leasehold.run.journal import Journal
from leasehold.stores.contract import Store, Wakeups
from leasehold.tasks.definition import TaskDefinition
from leasehold.worker.attempts import Attempts
from leasehold.worker.batch_writer import BatchWriter
from leasehold.worker.hooks import HookCaller, Hooks
from leasehold.worker.intake import Intake
from leasehold.worker.lease_keeper import LeaseKeeper
from leasehold.worker.log_capture import LogCapture
from leasehold.worker.pools import HandlerThreads, StoreThreads
from leasehold.worker.pruner import Pruner
from leasehold.worker.questions import QuestionTeller
from leasehold.worker.reaper import Reaper
from leasehold.worker.service import Service
from leasehold.worker.settings import WorkerSettings
from leasehold.worker.settler import Settler
from leasehold.worker.stall import StallWatch
from leasehold.worker.stream_writer import EventWriter

logger = logging.getLogger("leasehold.worker")

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]

PRESENCE_EVERY = 10.0
STUCK_AFTER = 15.0
TICK = 0.05
LAST_SETTLES = 15.0
"""Seconds that the last results get to reach the database. After that their leases run out."""


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


class NoWakeups:
    """Of a worker that claims nothing: no thread, and no connection to listen on."""

    hears = False

    def wait(self, seconds: float) -> bool:
        time.sleep(seconds)
        return False

    def call(self, on_hint: Callable[[], None]) -> bool:
        return True

    def stir(self) -> None: ...

    def close(self) -> None: ...


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
        self._version = version
        self._stack = AsyncExitStack()
        self.gave_up = False
        """Too many handlers ignored their stop: the process should be replaced (exit code 75)."""

    # -- life ------------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Work until `request_drain`, or in a burst until nothing is left. As the program: this process is the
        worker's, and so are its garbage collection and its threads' turns."""
        tune_process()
        async with self:
            await self._finished.wait()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._finished = asyncio.Event()
        self._hurry = asyncio.Event()
        self._executor = StoreThreads()
        self.attempts = Attempts(self._tasks, self.settings, self._freed, self._abandoned)
        self.events = self.attempts.events = EventWriter(self._store)
        self._hook_caller = HookCaller(self._hooks)
        self.attempts.stalls = StallWatch(self.events, self._hook_caller, self.attempts.stop)
        self.attempts.teller = QuestionTeller(self._store, self._hook_caller)
        self._log_capture = LogCapture(self.events)
        self.attempts.settler = Settler(
            self._store, self.settings.owner, self._executor, self.attempts.settled, self.events
        )
        self.attempts.journal = Journal(
            self._store,
            self.settings.owner,
            HandlerThreads(self.settings.concurrency),
            BatchWriter(),
            self.attempts.on_refused,
        )
        self._wakeups = await asyncio.to_thread(self._listen)
        self._intake = Intake(
            self._store, self._tasks, self.settings, self.attempts, self._executor, self._wakeups.stir
        )
        if self._lifespan is not None:
            self.attempts.resources = await self._stack.enter_async_context(self._lifespan())
        self.keeper = self.attempts.keeper = LeaseKeeper(
            self._store.another(),
            self.attempts.held,
            on_flag=self.attempts.on_flag,
            on_lost=self.attempts.on_lost,
        )
        self._reaper = Reaper(self._store, self.settings.sweep)
        self._pruner = (
            None if self.settings.retention is None else Pruner(self._store, self.settings.retention)
        )
        self._presence = Service("presence", self._tell)
        called = self._wakeups.call(lambda: self._wake(loop))
        self._ear = None if called else Service("wake-ups", lambda: self._hear(loop))
        for role in self._roles():
            role.start()
        self._coroutines = [
            asyncio.create_task(self._intake_until_done(), name="leasehold intake"),
            asyncio.create_task(self.attempts.settler.run(), name="leasehold settler"),
            asyncio.create_task(self.attempts.watch(), name="leasehold watch"),
        ]
        serves = ", ".join(self.settings.queues) or "what it is handed"
        logger.info("worker %s serves %s", self.settings.owner, serves)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._drain()
        await self._close()

    def request_drain(self) -> None:
        """No new claims; running jobs get their grace. Asked again: they are stopped at once."""
        if self._finished.is_set():
            self._hurry.set()
        else:
            logger.info("draining: no new jobs; %d running", len(self.attempts.unfinished()))
        self._intake.drain()
        self._finished.set()

    def health(self) -> Health:
        problems = []
        waited = time.monotonic() - self._intake.progress_at
        if waited > STUCK_AFTER and not self._intake.waits_for_place and not self._finished.is_set():
            problems.append(f"no claim for {waited:.0f} s: a handler may block the event loop")
        if self._intake.in_trouble or self.attempts.settler.in_trouble:
            problems.append("the database is out of reach")
        if self.attempts.too_many_abandoned:
            problems.append(f"{self.attempts.abandoned} handlers ignored their stop")
        return Health(
            not problems,
            tuple(problems),
            len(self.attempts.unfinished()),
            len(self.attempts.held) - len(self.attempts.unfinished()),
            self.attempts.abandoned,
        )

    # -- roles -----------------------------------------------------------------------------------------------------
    def _roles(self) -> list[Any]:
        roles: list[Any] = [
            self.keeper,
            self._reaper,
            self._presence,
            self.events,
            self._hook_caller,
        ]
        if self._ear is not None:
            roles.append(self._ear)
        if self.settings.capture_logs:
            roles.append(self._log_capture)
        return [*roles, self._pruner] if self._pruner is not None else roles

    async def _intake_until_done(self) -> None:
        await self._intake.run()
        self._finished.set()

    def _freed(self) -> None:
        self._intake.wake()

    def _abandoned(self) -> None:
        self._intake.wake()
        if self.attempts.too_many_abandoned and not self.gave_up:
            self.gave_up = True
            logger.error(
                "half of this worker's places are taken by handlers that ignore their stop: draining"
            )
            self.request_drain()

    def _listen(self) -> Wakeups:
        return self._store.wakeups(self.settings.listen_url) if self.settings.claims else NoWakeups()

    def _hear(self, loop: asyncio.AbstractEventLoop) -> float:
        if self._wakeups.wait(1.0):
            self._wake(loop)
        return 0.0

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has just ended
            loop.call_soon_threadsafe(self._intake.wake)

    def _tell(self) -> float:
        """Say who we are, for `why`; and look whether the claim loop still goes round."""
        health = self.health()
        if not health.ok:
            logger.error("not well: %s", "; ".join(health.problems))
        self.attempts.clock_offset = (self._store.now() - datetime.now(UTC)).total_seconds()
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
        self._intake.drain()
        self._finished.set()
        self._presence.nudge()
        # A claim that is under way may still bring jobs: they are handed back.
        await asyncio.wait([self._coroutines[0]])
        if not await self._idle_in_time():
            logger.warning("%d job(s) did not end in time: stopping them", len(self.attempts.unfinished()))
            self.attempts.stop_all("drain")
            # The watch abandons those who do not obey, so this ends.
            while self.attempts.unfinished():
                await asyncio.sleep(TICK)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.attempts.settler.drained(), LAST_SETTLES)

    async def _idle_in_time(self) -> bool:
        """False: the grace is over, or somebody is in a hurry, and jobs still run."""
        deadline = None if self.settings.grace is None else time.monotonic() + self.settings.grace
        while self.attempts.unfinished():
            if self._hurry.is_set() or (deadline is not None and time.monotonic() >= deadline):
                return False
            await asyncio.sleep(TICK)
        return True

    async def _close(self) -> None:
        for coroutine in self._coroutines:
            coroutine.cancel()
        await asyncio.gather(*self._coroutines, return_exceptions=True)
        self._wakeups.close()
        await asyncio.to_thread(self._stop_roles)
        self.attempts.close()
        await asyncio.to_thread(self.attempts.journal.close)
        await self._stack.aclose()
        self._executor.shutdown(wait=False, cancel_futures=True)
        logger.info(
            "worker %s ended: %d settled, %d refused",
            self.settings.owner,
            self.attempts.ended,
            self.attempts.fenced,
        )

    def _stop_roles(self) -> None:
        for role in self._roles():
            role.stop()
        try:
            self._store.forget_worker(self.settings.owner)
        except Exception as error:
            logger.debug("could not sign off: %s", error)
