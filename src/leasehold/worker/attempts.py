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
from leasehold.worker.logs import say
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
        self.abandoned_on_loop = 0
        self.abandoned_in_threads = 0
        self.ended = self.fenced = self.lost = 0

    def unfinished(self) -> list[Attempt]:
        """Return a copy, so that any thread may call this while the loop changes the dict."""
        return [run for run in list(self.held.values()) if not run.settled_at]

    # -- stop ------------------------------------------------------------------------------------------------------
    def stop(self, run: Attempt, cause: StopCause) -> None:
        """Callable from any thread."""
        run.stop(cause)
        if run.definition.is_async:
            self._loop.call_soon_threadsafe(run.interrupt)

    def stop_all(self, cause: StopCause) -> None:
        for run in self.unfinished():
            self.stop(run, cause)

    def leave_executions(self) -> None:
        """Stop watching the executions outside this process; they go on."""
        for run in self.unfinished():
            if run.definition.external is not None:
                self.stop(run, "drain")

    def on_flag(self, run: Attempt, flag: Flag) -> None:
        """Called by the keeper, in its thread."""
        if flag is not Flag.FINISH and not run.settled_at:
            say(logging.INFO, run.grant, "%s requested", flag.value)
            self.stop(run, "flag")

    def on_lost(self, run: Attempt) -> None:
        """Called by the keeper, in its thread."""
        if run.cause != "lost":
            say(logging.WARNING, run.grant, "lease %d is lost; stopping the handler", run.grant.token)
            run.cause = None
            self.stop(run, "lost")

    def on_refused(self, job_id: str, token: int) -> None:
        """A handler's own write was refused. Callable from any thread."""
        run = self.held.get(job_id)
        if run is not None and run.grant.token == token:
            self.on_lost(run)

    # -- end -------------------------------------------------------------------------------------------------------
    def settled(self, accepted: Sequence[Attempt], fenced: Sequence[Attempt]) -> None:
        """Record which endings the database accepted, and which it fenced off."""
        held = self.held
        for run in accepted:  # `_let_go`, inlined: this runs for every job
            job_id = run.grant.id
            if held.get(job_id) is run:
                del held[job_id]
        for run in fenced:
            run.refused = True
            self._let_go(run)
            say(
                logging.WARNING,
                run.grant,
                "result of attempt %d refused, lease %d had been lost; its successor's counts",
                run.grant.attempt,
                run.grant.token,
            )
        self.ended += len(accepted)
        self.fenced += len(fenced)
        if self._awaited:
            self._log_ends()
        self._on_freed()

    def drop(self, run: Attempt) -> None:
        """Forget an attempt whose lease another worker has: nothing may be written for it."""
        run.settled_at, run.refused = time.monotonic(), True
        self._let_go(run)
        self.lost += 1
        if self._awaited:
            self._log_ends()

    def end_of(self, run: Attempt) -> Future[None]:
        """Return a future that is done when the attempt has left `held`: the database has its ending, or another worker
        has its lease. Call it on the loop; wait for it anywhere."""
        end = self._awaited.setdefault(run, Future())
        self._log_ends()
        return end

    def give_up(self) -> None:
        """Resolve the futures of `end_of` for attempts that this ending worker could not settle."""
        while self._awaited:
            run, end = self._awaited.popitem()
            run.refused = True
            end.set_result(None)

    def _log_ends(self) -> None:
        gone = [run for run in self._awaited if self.held.get(run.grant.id) is not run]
        for run in gone:
            self._awaited.pop(run).set_result(None)

    def _let_go(self, run: Attempt) -> None:
        """Forget this attempt only: we may have claimed the job again before we learned that its last ending was
        stored. Its new lease must stay in `held`, or it would not be renewed."""
        job_id = run.grant.id
        if self.held.get(job_id) is run:
            del self.held[job_id]

    # -- attempts that ignore a stop --------------------------------------------------------------------------------
    def abandon(self, run: Attempt) -> None:
        """The handler runs on and keeps its unit of capacity."""
        run.abandoned = True
        self._count_abandoned(run, 1)

    def came_back(self, run: Attempt) -> None:
        say(logging.INFO, run.grant, "the abandoned handler has ended after all")
        self._count_abandoned(run, -1)

    def _count_abandoned(self, run: Attempt, change: int) -> None:
        if run.definition.is_async:
            self.abandoned_on_loop += change
        else:
            self.abandoned_in_threads += change

    @property
    def abandoned(self) -> int:
        return self.abandoned_on_loop + self.abandoned_in_threads


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

    async def run(self, intake: asyncio.Task[None]) -> bool:
        """Drain, after the claimer was requested to end. Returns False if the database did not take the last
        results."""
        ends_at = None if self.grace is None else time.monotonic() + self.grace
        # A claim that is under way may still bring jobs: they are handed back. An unreachable database may delay it.
        await asyncio.wait([intake], timeout=self._patience(ends_at))
        # Executions outside this process need no grace: the next worker goes on watching them.
        self.attempts.leave_executions()
        if not await self._idle_in_time(ends_at):
            logger.warning("%d job(s) did not end in time: stopping them", len(self.attempts.unfinished()))
            self.attempts.stop_all("drain")
            # The watch abandons attempts that ignore their stop, so this ends.
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
