"""What is in flight in one worker: started, stopped, watched, and abandoned when it does not obey."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from leasehold.domain.job import Grant
from leasehold.domain.outcome import Asked, HandedBack, Outcome, Success
from leasehold.domain.states import Flag
from leasehold.run.attempt import Attempt, StopCause, run_async, run_sync
from leasehold.run.context import Context, SyncContext
from leasehold.run.journal import Journal
from leasehold.run.state import RunState
from leasehold.stores.answers import Ending
from leasehold.tasks.definition import TaskDefinition
from leasehold.worker.lease_keeper import LeaseKeeper
from leasehold.worker.log_capture import current_run
from leasehold.worker.pools import HandlerThreads
from leasehold.worker.questions import QuestionTeller
from leasehold.worker.settings import WorkerSettings
from leasehold.worker.settler import Settler
from leasehold.worker.stall import StallWatch
from leasehold.worker.stream_writer import EventWriter

logger = logging.getLogger("leasehold.worker")

WATCH_EVERY = 0.2
AHEAD = 0.05
"""Seconds: plain jobs that will have their turn within this are claimed though no thread is free for them yet."""
MOST_AHEAD = 60
UNHURRIED = 2 * AHEAD
"""A pace at which nothing is claimed ahead."""
LONGEST_IN_LINE = 1.0
"""Seconds that a plain job may wait for a thread before it is given back."""
NO_THREAD = "no thread of its worker was free"
TOO_LATE = "its lease had run out before it could start"


class Attempts:
    def __init__(
        self,
        tasks: Mapping[str, TaskDefinition],
        settings: WorkerSettings,
        on_freed: Callable[[], None],
        on_abandoned: Callable[[], None],
    ) -> None:
        self._tasks = tasks
        self._settings = settings
        self._on_freed = on_freed
        self._on_abandoned = on_abandoned
        self._threads = HandlerThreads(settings.threads)
        self._loop = asyncio.get_running_loop()
        self.settler: Settler
        self.keeper: LeaseKeeper
        self.journal: Journal
        self.events: EventWriter
        self.stalls: StallWatch
        self.teller: QuestionTeller
        """All set by the worker, which wires them together."""
        self.resources: Any = None
        self.clock_offset = 0.0
        """Seconds that the database's clock is ahead of ours: deadlines are its instants."""
        self.held: dict[str, Attempt] = {}
        """Leases we hold: running, or ended and not settled yet. The keeper renews them all."""
        self.on_loop = 0
        self.in_threads = 0
        self._abandoned = {"loop": 0, "thread": 0}
        self._queued: dict[Attempt, None] = {}
        """Those that wait for a thread. Who takes one out, a thread or the watch, has it: the pop is atomic."""
        self._left: deque[tuple[Attempt, Outcome | None, float]] = deque()
        self._collecting = False
        self._pace = UNHURRIED
        """Seconds that a plain job takes: at once as long as the longest, only slowly shorter again."""
        self._asked: dict[Attempt, Asked] = {}
        """Those that are about to park."""
        self.ended = self.fenced = self.lost = 0

    # -- start -----------------------------------------------------------------------------------------------------
    def start(self, grant: Grant, sent_at: float) -> None:
        self.begin(self.hold(grant, sent_at))

    def hold(self, grant: Grant, sent_at: float) -> Attempt:
        """From here on its lease is renewed, and it takes a place, though its handler has not begun yet."""
        definition = self._tasks[grant.kind]
        run = Attempt(
            RunState(grant, self.events), definition, self.journal, time.monotonic(), self.resources
        )
        run.renewed(sent_at)
        if definition.timeout is not None or grant.deadline_at is not None:
            self._limit(run)
        self._hold(run)
        if definition.is_async:
            self.on_loop += 1
        else:
            self.in_threads += 1
        return run

    def begin(self, run: Attempt) -> None:
        if run.definition.is_async:
            run.task = start_task(self._loop, self._run_async(run), run.grant.id)
        else:
            self._queued[run] = None
            self._threads.submit(lambda: self._run_in_thread(run))

    def hand_back(self, grant: Grant, reason: str) -> None:
        """A lease that came too late to be used."""
        run = Attempt(RunState(grant), self._tasks[grant.kind], None, time.monotonic(), settled=True)
        run.renewed(time.monotonic())
        self._hold(run)
        self.settler.put(run, Ending(grant.id, grant.token, HandedBack(reason)))

    def _hold(self, run: Attempt) -> None:
        self.held[run.grant.id] = run
        self.keeper.expect(run)

    def _limit(self, run: Attempt) -> None:
        timeout = run.definition.timeout
        if timeout is not None:
            run.limit_at = run.started_at + timeout
        if run.grant.deadline_at is not None:
            left = (run.grant.deadline_at - datetime.now(UTC)).total_seconds() - self.clock_offset
            if timeout is None or left < timeout:
                run.limit_at, run.limit_cause = run.started_at + left, "deadline"

    async def _run_async(self, run: Attempt) -> None:
        if self._settings.capture_logs:
            current_run.set(run.state)  # of this asyncio task alone
        # A worker that was frozen between the claim and this line may have lost the lease: it must not start now.
        late = time.monotonic() >= run.lease_until
        outcome = HandedBack(TOO_LATE) if late else await run_async(run, Context(run))
        if run.steps is not None:
            await run.steps.finish_async()
        self._ended(run, outcome)

    def _run_in_thread(self, run: Attempt) -> None:
        if self._queued.pop(run, run) is run:
            return  # taken back: it had waited too long for a thread
        began_at = run.started_at = time.monotonic()
        if run.limit_at is not None:
            self._limit(run)
        if self._settings.capture_logs:
            current_run.set(run.state)
        outcome: Outcome | None
        if run.cause is not None:
            outcome = run.outcome_when_stopped()
        elif began_at >= run.lease_until:
            outcome = HandedBack(TOO_LATE)
        else:
            outcome = run_sync(run, SyncContext(run))
        if run.steps is not None:
            run.steps.finish()
        current_run.set(None)  # the thread outlives the run and must not keep it
        self._left.append((run, outcome, time.monotonic() - began_at))
        if not self._collecting:
            # One call to the loop for all that end until it comes: to wake it is dear.
            self._collecting = True
            try:
                self._loop.call_soon_threadsafe(self._collect)
            except RuntimeError:
                logger.warning("job %s ended after its worker; its lease will run out", run.grant.id)

    def _collect(self) -> None:
        """Those that have ended in threads."""
        # First the flag: what is put in from here on asks for another call.
        self._collecting = False
        while self._left:
            run, outcome, seconds = self._left.popleft()
            self._pace += (seconds - self._pace) * (1.0 if seconds > self._pace else 0.1)
            self._ended(run, outcome)

    @property
    def thread_room(self) -> int:
        """Plain jobs that could be started now: one for every free thread, and as many more as will have their turn in
        a moment, by how quick the last ones were. Quick jobs would else wait for the database most of the time."""
        ahead = min(int(AHEAD / max(self._pace, 1e-6)), MOST_AHEAD) * self._settings.threads
        return self._settings.threads + ahead - self.in_threads

    def _take_back(self, run: Attempt) -> None:
        """It waits for a thread that its neighbours do not give up: another worker may have one."""
        if self._queued.pop(run, run) is run:
            return  # it has just begun
        self._pace = UNHURRIED
        self._free_unit(run)
        self._settle(run, HandedBack(NO_THREAD))

    # -- end -------------------------------------------------------------------------------------------------------
    def _ended(self, run: Attempt, outcome: Outcome | None) -> None:
        self._free_unit(run)
        if run.abandoned:
            self._abandoned[_place(run)] -= 1
            logger.info("job %s: the abandoned handler has ended after all", run.grant.id)
        else:
            self._close_books(run, outcome)

    def _close_books(self, run: Attempt, outcome: Outcome | None) -> None:
        if run.state.completed:
            if not isinstance(outcome, Success):
                logger.warning(
                    "job %s has succeeded; what came after ctx.complete is ignored: %s", run.grant.id, outcome
                )
            run.settled = True
            self.settled([run], [])
        elif outcome is None:
            self._drop(run)
        else:
            self._settle(run, outcome)

    def _settle(self, run: Attempt, outcome: Outcome) -> None:
        # In this order: the keeper must not take our own settle for a lost lease.
        run.settled = True
        if type(outcome) is Asked:
            self._asked[run] = outcome
        self.settler.put(run, Ending(run.grant.id, run.grant.token, outcome))

    def _drop(self, run: Attempt) -> None:
        run.settled = True
        self._let_go(run)
        self.lost += 1

    def _let_go(self, run: Attempt) -> None:
        """Only this run: a job that went back to the queue may have been claimed again, by us, before we heard that
        its last ending was taken. Its new lease must stay in the books, or nobody would renew it."""
        if self.held.get(run.grant.id) is run:
            del self.held[run.grant.id]

    def settled(self, accepted: Sequence[Attempt], fenced: Sequence[Attempt]) -> None:
        """The database has spoken."""
        for run in accepted:
            self._let_go(run)
        for run in fenced:
            self._let_go(run)
            logger.warning(
                "job %s: result of attempt %d refused, lease %d had been lost; its successor's counts",
                run.grant.id,
                run.grant.attempt,
                run.grant.token,
            )
        if self._asked:
            self._tell_questions(accepted, fenced)
        self.ended += len(accepted)
        self.fenced += len(fenced)
        self._on_freed()

    def _tell_questions(self, accepted: Sequence[Attempt], fenced: Sequence[Attempt]) -> None:
        for run in fenced:
            self._asked.pop(run, None)
        for run in accepted:
            if (asked := self._asked.pop(run, None)) is not None:
                self.teller.tell(run, asked)

    def _free_unit(self, run: Attempt) -> None:
        if run.definition.is_async:
            self.on_loop -= 1
        else:
            self.in_threads -= 1
        self._on_freed()

    # -- stop ------------------------------------------------------------------------------------------------------
    def stop(self, run: Attempt, cause: StopCause) -> None:
        """From any thread."""
        run.stop(cause)
        if run.task is not None:
            self._loop.call_soon_threadsafe(run.task.cancel)

    def on_flag(self, run: Attempt, flag: Flag) -> None:
        """Called by the keeper, in its thread."""
        if flag is not Flag.FINISH and not run.settled:
            logger.info("job %s: %s requested", run.grant.id, flag.value)
            self.stop(run, "flag")

    def on_lost(self, run: Attempt) -> None:
        """Called by the keeper, in its thread."""
        if run.cause != "lost":
            logger.warning("job %s: lease %d is lost; stopping the handler", run.grant.id, run.grant.token)
            run.cause = None
            self.stop(run, "lost")

    def on_refused(self, job_id: str, token: int) -> None:
        """A handler's own write was refused: from any thread."""
        run = self.held.get(job_id)
        if run is not None and run.grant.token == token:
            self.on_lost(run)

    def stop_all(self, cause: StopCause) -> None:
        for run in self.unfinished():
            self.stop(run, cause)

    def unfinished(self) -> list[Attempt]:
        """From any thread: hence a copy, which the loop cannot change meanwhile."""
        return [run for run in list(self.held.values()) if not run.settled]

    # -- watch -----------------------------------------------------------------------------------------------------
    async def watch(self) -> None:
        """Time limits, leases that could not be renewed, and stops that were not obeyed."""
        while True:
            await asyncio.sleep(WATCH_EVERY)
            now = time.monotonic()
            for run in self.unfinished():
                if run in self._queued:
                    if now >= run.started_at + LONGEST_IN_LINE:
                        self._take_back(run)
                elif run.cause is None:
                    if run.limit_at is not None and now >= run.limit_at:
                        self.stop(run, run.limit_cause)
                    elif now >= run.lease_until:
                        logger.warning("job %s: its lease could not be renewed; stopping it", run.grant.id)
                        self.stop(run, "unrenewed")
                    elif run.definition.stall_after is not None:
                        self.stalls.look(run, now)
                elif now >= run.stopped_at + self._settings.stop_grace:
                    self._abandon(run)

    def _abandon(self, run: Attempt) -> None:
        """The handler runs on and keeps its unit of capacity; the job ends as it was asked to."""
        logger.error(
            "job %s: %s ignored its stop for %g s and is abandoned; it keeps a place in this worker",
            run.grant.id,
            run.grant.kind,
            self._settings.stop_grace,
        )
        run.abandoned = True
        self._abandoned[_place(run)] += 1
        self._close_books(run, run.outcome_when_stopped())
        self._on_abandoned()

    @property
    def abandoned(self) -> int:
        return sum(self._abandoned.values())

    @property
    def too_many_abandoned(self) -> bool:
        """Half of the places on the loop, or of the threads, are gone: better to start afresh."""
        places = {"loop": self._settings.concurrency, "thread": self._settings.threads}
        return any(0 < places[place] <= 2 * count for place, count in self._abandoned.items() if count)

    def close(self) -> None:
        self._threads.close()


if sys.version_info >= (3, 12):

    def start_task(
        loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None], name: str
    ) -> asyncio.Task[None]:
        """It begins at once; one that never has to wait is done when this returns, without a turn of the loop."""
        return asyncio.Task(coroutine, loop=loop, name=name, eager_start=True)
else:

    def start_task(
        loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None], name: str
    ) -> asyncio.Task[None]:
        return loop.create_task(coroutine, name=name)


def _place(run: Attempt) -> str:
    return "loop" if run.definition.is_async else "thread"
