"""The end of a worker's work: what runs gets its grace, and what has ended its way to the database."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from leasehold.worker.attempts import Attempts
from leasehold.worker.settler import Settler

logger = logging.getLogger("leasehold.worker")

TICK = 0.05
LAST_SETTLES = 15.0
"""Seconds, at most, that the last results get to reach the database. After that their leases run out."""
LEAST_SETTLES = 5.0
"""That they get even if the grace is over: it counts from the signal."""


class Drain:
    """Of one worker. Without a grace, jobs may take as long as they like."""

    def __init__(self, attempts: Attempts, settler: Settler, grace: float | None) -> None:
        self._attempts = attempts
        self._settler = settler
        self._grace = grace
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """Stop what runs, at once."""
        self._hurry.set()

    async def run(self, intake: asyncio.Task[None]) -> bool:
        """The intake was told to end. False: the database did not take the last results."""
        ends_at = None if self._grace is None else time.monotonic() + self._grace
        # A claim that is under way may still bring jobs: they are handed back. A database that is away may keep it.
        await asyncio.wait([intake], timeout=self._patience(ends_at))
        # Executions outside of this process need no grace: the next worker goes on watching them.
        self._attempts.leave_executions()
        if not await self._idle_in_time(ends_at):
            logger.warning("%d job(s) did not end in time: stopping them", len(self._attempts.unfinished()))
            self._attempts.stop_all("drain")
            # The watch abandons those who do not obey, so this ends.
            while self._attempts.unfinished():
                await asyncio.sleep(TICK)
        try:
            await asyncio.wait_for(self._settler.drained(), self._patience(ends_at))
        except TimeoutError:
            logger.error(
                "%d result(s) could not be settled: the database did not accept them; their leases will run out",
                len(self._attempts.held),
            )
            return False
        return True

    def _patience(self, ends_at: float | None) -> float:
        """Seconds for the database, within the grace."""
        if self._hurry.is_set():
            return LEAST_SETTLES
        left = LAST_SETTLES if ends_at is None else ends_at - time.monotonic()
        return max(LEAST_SETTLES, min(LAST_SETTLES, left))

    async def _idle_in_time(self, ends_at: float | None) -> bool:
        """False: the grace is over, or somebody is in a hurry, and jobs still run."""
        while self._attempts.unfinished():
            if self._hurry.is_set() or (ends_at is not None and time.monotonic() >= ends_at):
                return False
            await asyncio.sleep(TICK)
        return True


async def to_its_end(work: Coroutine[Any, Any, None], hurry: Callable[[], None]) -> None:
    """In a task of its own, and waited for even if the caller is cancelled meanwhile, be it again and again: half an
    end would leave threads behind that renew leases for nobody. Whoever cancels is in a hurry, and is told at the end.
    """
    ending = asyncio.create_task(work, name="leasehold end")
    cancelled: asyncio.CancelledError | None = None
    while not ending.done():
        try:
            await asyncio.wait([ending])
        except asyncio.CancelledError as error:
            cancelled = error
            hurry()
    ending.result()
    if cancelled is not None:
        raise cancelled


@asynccontextmanager
async def closed_if_it_fails(stack: AsyncExitStack) -> AsyncIterator[None]:
    """For a start: who does not get through `__aenter__` never comes to `__aexit__`."""
    try:
        yield
    except BaseException:
        await stack.aclose()
        raise
