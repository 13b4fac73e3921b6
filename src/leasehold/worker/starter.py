"""The starter: begins granted jobs, on the loop or in a thread, and passes on their outcomes."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from leasehold.domain.hooks import WEBHOOK_TASK
from leasehold.domain.job import Grant
from leasehold.domain.outcome import Detached, HandedBack, Outcome, Success
from leasehold.domain.tracing import Tracing
from leasehold.run.attempt import Attempt, Ended, run_here
from leasehold.run.executions import Executions
from leasehold.run.external import ExternalAttempt
from leasehold.run.journal import Journal
from leasehold.run.middleware import run_traced
from leasehold.run.state import current_run
from leasehold.tasks.definition import TaskDefinition
from leasehold.worker.attempts import Attempts
from leasehold.worker.lease_keeper import LeaseKeeper
from leasehold.worker.logs import log_starts, log_success
from leasehold.worker.meter import Meter
from leasehold.worker.process.attempt import ProcessAttempt, Processes
from leasehold.worker.service import HandlerThreads
from leasehold.worker.settler import Settler
from leasehold.worker.writers import UpdateWriter

logger = logging.getLogger("leasehold.worker")

LONGEST_TURN = 0.02
"""Longest time, in seconds, for which starting jobs may block the loop."""
AHEAD = 0.05
"""Seconds: sync jobs that will get a thread within this time are claimed before a thread is free."""
MOST_AHEAD = 60
UNHURRIED = 2 * AHEAD
"""A pace at which nothing is claimed ahead."""
LONGEST_IN_LINE = 1.0
"""Most seconds that a sync job may wait for a thread before it is given back."""
NO_THREAD = "no thread of its worker was free"


@dataclass(eq=False)
class Starter:
    tasks: Mapping[str, TaskDefinition]
    thread_count: int
    attempts: Attempts
    _: KW_ONLY
    keeper: LeaseKeeper
    settler: Settler
    meter: Meter
    journal: Journal
    executions: Executions
    updates: UpdateWriter
    processes: Processes
    resources: Any
    on_freed: Callable[[], None]
    tracing: Tracing | None = None

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = HandlerThreads(self.thread_count)
        self.on_loop = 0
        self.in_threads = 0
        self.external = 0
        self.webhooks = 0
        """Deliveries to webhooks: they run on the loop, in places of their own."""
        self._webhook_task = self.tasks.get(WEBHOOK_TASK)
        self._waiting_for_thread: dict[Attempt, None] = {}
        """Attempts waiting for a thread. `pop` is atomic: the thread or the watchdog that pops one owns it."""
        self._left_threads: deque[tuple[Attempt, Outcome | None, float]] = deque()
        self._collecting = False
        self._pace = UNHURRIED
        """Seconds that a sync job takes: rises at once to the longest, falls only slowly."""

    # -- start -----------------------------------------------------------------------------------------------------
    async def start(self, grants: Sequence[Grant], sent_at: float) -> None:
        """Start the jobs of one claim."""
        began_at = time.monotonic()
        log_starts(grants)
        # Hold all before the first begins: it may run for long, and the leases of the others must be renewed.
        for attempt in self._make_attempts(grants, sent_at):
            self._begin(attempt)
            if time.monotonic() - began_at > LONGEST_TURN:
                # Handlers may compute before they first wait. Let others have the loop in between.
                await asyncio.sleep(0)
                began_at = time.monotonic()

    def start_one(self, grant: Grant, sent_at: float) -> Attempt:
        """Start a job that was granted to this worker outside its queues. Call this on the loop."""
        log_starts([grant])
        (attempt,) = self._make_attempts([grant], sent_at)
        self._begin(attempt)
        return attempt

    def hand_back(self, grants: Sequence[Grant], reason: str) -> None:
        """Hand back leases that came too late to be used."""
        now = time.monotonic()
        for grant in grants:
            attempt = Attempt(grant, self.tasks[grant.task], now, now)
            self.attempts.held[grant.id] = attempt
            self.keeper.expect(attempt.renew_at)
            # Another worker must watch an execution that may be alive; the job must not run again beside it.
            self.settler.put(attempt, Detached(reason) if grant.execution_site else HandedBack(reason))

    def _make_attempts(self, grants: Sequence[Grant], sent_at: float) -> list[Attempt]:
        """Make the attempts: from here on their leases are renewed and they take places; no handler has begun yet."""
        tasks, held, now = self.tasks, self.attempts.held, time.monotonic()
        webhook_task = self._webhook_task
        journal, updates, resources = self.journal, self.updates, self.resources
        attempts = []
        on_loop = externals = webhooks = 0
        renew_at = float("inf")
        for grant in grants:
            definition = tasks[grant.task]
            attempt: Attempt
            if definition.external is not None:
                attempt = external = ExternalAttempt(
                    grant, definition, now, sent_at, journal, updates, resources
                )
                external.prepare(definition.external, self.executions)
                externals += 1
            elif definition.in_child_process:
                attempt = in_child = ProcessAttempt(grant, definition, now, sent_at, journal, updates)
                in_child.processes = self.processes
            else:
                attempt = Attempt(grant, definition, now, sent_at, journal, updates, resources)
                if definition is webhook_task:
                    webhooks += 1
                else:
                    on_loop += definition.runs_on_loop
            if grant.seconds_left is not None:
                attempt.deadline_at = now + grant.seconds_left
            if attempt.renew_at < renew_at:
                renew_at = attempt.renew_at
            held[grant.id] = attempt
            attempts.append(attempt)
        self.on_loop += on_loop
        self.external += externals
        self.webhooks += webhooks
        self.in_threads += len(attempts) - on_loop - externals - webhooks
        self.keeper.expect(renew_at)
        return attempts

    def _begin(self, attempt: Attempt) -> None:
        definition = attempt.definition
        if definition.runs_on_loop and definition.external is None:
            ended = self._ended_on_loop if definition is not self._webhook_task else self._ended_delivery
            start_task(self._loop, attempt, self._steps(attempt, ended))
        elif isinstance(attempt, ExternalAttempt):
            self.attempts.end_of(attempt).add_done_callback(
                lambda _: self.executions.remove_when_settled(attempt)
            )
            start_task(self._loop, attempt, self._steps(attempt, self._ended_outside))
        else:
            self._waiting_for_thread[attempt] = None
            self._threads.submit(lambda: self._run_in_thread(attempt))

    def _run_in_thread(self, attempt: Attempt) -> None:
        if self._waiting_for_thread.pop(attempt, attempt) is attempt:
            return  # handed back: it had waited too long for a thread
        run_here(self._steps(attempt, self._ended_in_thread))
        current_run.set(None)  # the thread outlives the attempt and must not keep it

    def _steps(self, attempt: Attempt, ended: Ended) -> Coroutine[Any, Any, None]:
        return attempt.run(ended) if self.tracing is None else run_traced(self.tracing, attempt, ended)

    @property
    def thread_room(self) -> int:
        """How many sync jobs could be started now: one for every free thread, and as many more as will soon get a
        thread at the pace of the last jobs. Otherwise quick jobs would wait for the database most of the time."""
        ahead = min(int(AHEAD / max(self._pace, 1e-6)), MOST_AHEAD) * self.thread_count
        return self.thread_count + ahead - self.in_threads

    def hand_back_waiting(self, now: float) -> None:
        """Hand back attempts that have waited too long for a thread: another worker may have a free one."""
        for attempt in list(self._waiting_for_thread):
            if (
                now < attempt.held_at + LONGEST_IN_LINE
                or self._waiting_for_thread.pop(attempt, attempt) is attempt
            ):
                continue  # it has just begun
            self._pace = UNHURRIED
            self.in_threads -= 1
            self.on_freed()
            self.settler.put(attempt, HandedBack(NO_THREAD))

    # -- end -------------------------------------------------------------------------------------------------------
    def _ended_outside(self, attempt: Attempt, outcome: Outcome | None) -> None:
        self.external -= 1
        self._left(attempt, outcome)

    def _ended_delivery(self, attempt: Attempt, outcome: Outcome | None) -> None:
        self.webhooks -= 1
        self._left(attempt, outcome)

    def _ended_on_loop(self, attempt: Attempt, outcome: Outcome | None) -> None:
        self.on_loop -= 1
        if outcome is None or attempt.left_behind or attempt.completed:
            self._left(attempt, outcome)
        else:
            # `_left` and `conclude`, inlined: this runs for every job.
            self.on_freed()
            self.settler.put(attempt, outcome)

    def _left(self, attempt: Attempt, outcome: Outcome | None) -> None:
        self.on_freed()
        if attempt.left_behind:
            self.attempts.came_back(attempt)
        else:
            self.conclude(attempt, outcome)

    def _ended_in_thread(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Hand the outcome to the loop. Runs in the handler's thread."""
        self._left_threads.append((attempt, outcome, time.monotonic() - attempt.started_at))
        if not self._collecting:
            # One wake-up covers every thread that ends before the loop runs; waking it is expensive.
            self._collecting = True
            try:
                self._loop.call_soon_threadsafe(self._collect)
            except RuntimeError:
                logger.warning("job %s ended after its worker; its lease will run out", attempt.grant.id)

    def _collect(self) -> None:
        """Process the attempts that have ended in threads."""
        # Reset the flag first: attempts added from here on request another call.
        self._collecting = False
        while self._left_threads:
            attempt, outcome, seconds = self._left_threads.popleft()
            self._pace += (seconds - self._pace) * (1.0 if seconds > self._pace else 0.1)
            self.in_threads -= 1
            if attempt.left_behind:
                self.attempts.came_back(attempt)
            else:
                self.conclude(attempt, outcome)
        self.on_freed()

    def conclude(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Pass on the outcome; None: another worker has the lease."""
        if attempt.completed:
            if not isinstance(outcome, Success):
                logger.warning(
                    "job %s has succeeded; what came after ctx.complete is ignored: %s",
                    attempt.grant.id,
                    outcome,
                )
            attempt.ended_at = time.monotonic()
            log_success(attempt)
            self.meter.count([(attempt, Success())])
            self.attempts.settled([attempt], [])
        elif outcome is None:
            self.attempts.drop(attempt)
        else:
            self.settler.put(attempt, outcome)

    def close(self) -> None:
        self._threads.close()


if sys.version_info >= (3, 12):

    def start_task(
        loop: asyncio.AbstractEventLoop, attempt: Attempt, steps: Coroutine[Any, Any, None]
    ) -> None:
        """Begin at once; an attempt that never has to wait is done when this returns, without a turn of the loop."""
        task = asyncio.Task(steps, loop=loop, name=attempt.grant.id, eager_start=True)
        if not task.done():
            attempt.task = task
else:

    def start_task(
        loop: asyncio.AbstractEventLoop, attempt: Attempt, steps: Coroutine[Any, Any, None]
    ) -> None:
        # Not by the loop's task factory: that is for tasks that handlers make (`run/exceptions.py`).
        attempt.task = asyncio.Task(steps, loop=loop, name=attempt.grant.id)
