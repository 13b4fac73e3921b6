"""Drains a worker: running jobs get their grace, and ended ones are settled."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from leasehold.threads import until_done
from leasehold.worker.attempts import Attempts
from leasehold.worker.settler import Settler

logger = logging.getLogger("leasehold.worker")

CHECK_RUNNING_EVERY = 0.05
LAST_SETTLES = 15.0
"""Most seconds for the last results to reach the database. After that their leases run out."""
LEAST_SETTLES = 5.0
"""Seconds for the last results even if the grace is over: the grace counts from the signal."""


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
        """Drain, once the claimer has its request to end. Returns False if the database did not take the last
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
