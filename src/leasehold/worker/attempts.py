"""The attempts of one worker: their leases, stops and endings, and the worker's drain."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from leasehold.domain.states import Flag
from leasehold.run.attempt import Attempt, StopCause
from leasehold.threads import until_done
from leasehold.worker.logs import log_job
from leasehold.worker.settler import Settler


class Attempts:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_freed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._on_freed = on_freed
        self.held: dict[str, Attempt] = {}
        """Attempts whose lease this worker holds: running, or ended but not settled. The keeper renews all of them."""
        self._awaited: dict[Attempt, Future[None]] = {}
        self.left_behind_on_loop = 0
        self.left_behind_in_threads = 0
        self.ended = self.fenced = self.lost = 0

    def unfinished(self) -> list[Attempt]:
        """Return a copy, so that any thread may call this while the loop changes the dict."""
        return [attempt for attempt in list(self.held.values()) if not attempt.ended_at]

    # -- stop ------------------------------------------------------------------------------------------------------
    def stop(self, attempt: Attempt, cause: StopCause) -> None:
        """Ask the attempt to end. Callable from any thread."""
        attempt.stop(cause)
        if attempt.definition.runs_on_loop:
            self._loop.call_soon_threadsafe(attempt.wake_handler)

    def stop_all(self, cause: StopCause) -> None:
        for attempt in self.unfinished():
            self.stop(attempt, cause)

    def leave_executions(self) -> None:
        """Stop watching the executions outside this process; they go on."""
        for attempt in self.unfinished():
            if attempt.definition.external is not None:
                self.stop(attempt, "drain")

    def stop_waiting_for_the_folder(self) -> None:
        """Stop the attempts whose handlers have ended, and whose results wait for the folder for results."""
        for attempt in self.unfinished():
            if attempt.unwritten and not attempt.must_stop:
                self.stop(attempt, "drain")

    def on_stop_request(self, attempt: Attempt, flag: Flag) -> None:
        """Stop the attempt as an operator requested. The keeper calls this in its thread."""
        if flag is not Flag.FINISH and not attempt.ended_at:
            log_job(logging.INFO, attempt.grant, "%s requested", flag.value)
            self.stop(attempt, "requested")

    def on_lost(self, attempt: Attempt) -> None:
        """Stop the attempt, because its lease is lost. The keeper calls this in its thread."""
        if attempt.cause != "lost":
            log_job(
                logging.WARNING, attempt.grant, "lease %d is lost; stopping the handler", attempt.grant.token
            )
            attempt.cause = None
            self.stop(attempt, "lost")

    def on_dropped(self, attempt: Attempt) -> None:
        """Stop the attempt, and its execution too, because its tenant was dropped. The keeper calls this in its
        thread."""
        if attempt.cause != "dropped" and not attempt.ended_at:
            log_job(logging.WARNING, attempt.grant, "its tenant was dropped; stopping it")
            attempt.cause = None
            self.stop(attempt, "dropped")

    def on_refused(self, job_id: str, token: int) -> None:
        """Stop the attempt, because a write of its handler was refused. Callable from any thread."""
        attempt = self.held.get(job_id)
        if attempt is not None and attempt.grant.token == token:
            self.on_lost(attempt)

    # -- end -------------------------------------------------------------------------------------------------------
    def settled(self, accepted: Sequence[Attempt], fenced: Sequence[Attempt]) -> None:
        """Record which endings the database accepted, and which it fenced off."""
        held = self.held
        for attempt in accepted:  # `_let_go`, inlined: this runs for every job
            job_id = attempt.grant.id
            if held.get(job_id) is attempt:
                del held[job_id]
        for attempt in fenced:
            attempt.ending_not_stored = True
            self._let_go(attempt)
            if attempt.cause == "dropped":
                continue
            log_job(
                logging.WARNING,
                attempt.grant,
                "result of attempt %d refused, lease %d had been lost; its successor's counts",
                attempt.grant.attempt,
                attempt.grant.token,
            )
        self.ended += len(accepted)
        self.fenced += len(fenced)
        if self._awaited:
            self._resolve_ends()
        self._on_freed()

    def drop(self, attempt: Attempt) -> None:
        """Forget an attempt whose lease another worker has: nothing may be written for it."""
        attempt.ended_at, attempt.ending_not_stored = time.monotonic(), True
        self._let_go(attempt)
        self.lost += 1
        if self._awaited:
            self._resolve_ends()

    def end_of(self, attempt: Attempt) -> Future[None]:
        """Return a future that is done when the attempt has left `held`: the database has its ending, or another worker
        has its lease. Call it on the loop; wait for it anywhere."""
        end = self._awaited.setdefault(attempt, Future())
        self._resolve_ends()
        return end

    def give_up(self) -> None:
        """Resolve the futures of `end_of` for attempts that this ending worker could not settle."""
        while self._awaited:
            attempt, end = self._awaited.popitem()
            attempt.ending_not_stored = True
            end.set_result(None)

    def _resolve_ends(self) -> None:
        gone = [attempt for attempt in self._awaited if self.held.get(attempt.grant.id) is not attempt]
        for attempt in gone:
            self._awaited.pop(attempt).set_result(None)

    def _let_go(self, attempt: Attempt) -> None:
        """Forget this attempt only: we may have claimed the job again before we learned that its last ending was
        stored. Its new lease must stay in `held`, or it would not be renewed."""
        job_id = attempt.grant.id
        if self.held.get(job_id) is attempt:
            del self.held[job_id]

    # -- attempts that ignore a stop --------------------------------------------------------------------------------
    def leave_behind(self, attempt: Attempt) -> None:
        """Count the attempt as left behind: its handler runs on and keeps its unit of capacity."""
        attempt.left_behind = True
        self._count_left_behind(attempt, 1)

    def came_back(self, attempt: Attempt) -> None:
        log_job(logging.INFO, attempt.grant, "the handler left behind has ended after all")
        self._count_left_behind(attempt, -1)

    def _count_left_behind(self, attempt: Attempt, change: int) -> None:
        if attempt.definition.runs_on_loop:
            self.left_behind_on_loop += change
        else:
            self.left_behind_in_threads += change

    @property
    def left_behind(self) -> int:
        return self.left_behind_on_loop + self.left_behind_in_threads


# -- drain -------------------------------------------------------------------------------------------------------------

logger = logging.getLogger("leasehold.worker")

CHECK_RUNNING_EVERY = 0.05
LAST_SETTLES = 15.0
"""Longest wait, in seconds, for the last results to reach the database. After that their leases run out."""
LEAST_SETTLES = 5.0
"""Shortest wait for the last results, even if the grace is over: the grace counts from the signal."""


@dataclass(eq=False)
class Drain:
    """The drain of one worker. Without a grace, jobs may take as long as they need."""

    attempts: Attempts
    settler: Settler
    grace: float | None

    def __post_init__(self) -> None:
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """Stop running jobs at once."""
        self._hurry.set()

    async def run(self, claimer: asyncio.Task[None]) -> bool:
        """Drain, once the claimer is ending. Returns False if the database did not take the last
        results."""
        ends_at = None if self.grace is None else time.monotonic() + self.grace
        # A claim that is under way may still bring jobs: they are handed back. An unreachable database may delay it.
        await asyncio.wait([claimer], timeout=self._patience(ends_at))
        # Executions outside this process need no grace: the next worker goes on watching them.
        self.attempts.leave_executions()
        if not await self._idle_in_time(ends_at):
            logger.warning("%d job(s) did not end in time: stopping them", len(self.attempts.unfinished()))
            self.attempts.stop_all("drain")
            # The watchdog leaves attempts behind that ignore their stop, so this ends.
            while self.attempts.unfinished():
                await asyncio.sleep(CHECK_RUNNING_EVERY)
        try:
            await asyncio.wait_for(self.settler.drained(), self._patience(ends_at))
        except TimeoutError:
            logger.error(
                "%d result(s) could not be settled: the database did not accept them; their leases will run out",
                len(self.attempts.held),
            )
            return False
        return True

    def _patience(self, ends_at: float | None) -> float:
        """Seconds to wait for the database, within the grace."""
        if self._hurry.is_set():
            return LEAST_SETTLES
        left = LAST_SETTLES if ends_at is None else ends_at - time.monotonic()
        return max(LEAST_SETTLES, min(LAST_SETTLES, left))

    async def _idle_in_time(self, ends_at: float | None) -> bool:
        """Return False if the grace is over, or the drain was hurried, and jobs still run."""
        while self.attempts.unfinished():
            self.attempts.stop_waiting_for_the_folder()
            if self._hurry.is_set() or (ends_at is not None and time.monotonic() >= ends_at):
                return False
            await asyncio.sleep(CHECK_RUNNING_EVERY)
        return True


async def to_its_end(work: Coroutine[Any, Any, None], hurry: Callable[[], None]) -> None:
    """Run `work` in a task to its end even if the caller is cancelled repeatedly: half a shutdown would leave threads
    that renew leases for no one. A cancellation calls `hurry`, and is raised at the end.
    """
    ending = asyncio.create_task(work, name="leasehold end")
    cancelled = await until_done(ending, hurry)
    ending.result()
    if cancelled is not None:
        raise cancelled


@asynccontextmanager
async def closed_if_it_fails(stack: AsyncExitStack) -> AsyncIterator[None]:
    """Close the stack if the start fails: without a successful `__aenter__`, Python never calls `__aexit__`."""
    try:
        yield
    except BaseException:
        await stack.aclose()
        raise
