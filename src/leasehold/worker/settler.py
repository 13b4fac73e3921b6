"""The settler: endings go out in batches, in the background, while the next jobs are claimed.

A result that was computed is kept until the database has taken it or says that the lease was lost. After a lost reply
the row itself tells which: user code is never run again because of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from leasehold.domain.errors import StoreError
from leasehold.domain.outcome import Success
from leasehold.run.attempt import Attempt
from leasehold.stores.answers import Ending
from leasehold.stores.contract import Store
from leasehold.worker.stream_writer import EventWriter

logger = logging.getLogger("leasehold.worker")

Entry = tuple[Attempt, Ending]

LARGE = 200
"""So many endings go out beside the batch that is under way; fewer do better to wait for it, and for more."""
AT_ONCE = 2


class Settler:
    def __init__(
        self,
        store: Store,
        owner: str,
        executor: Executor,
        on_settled: Callable[[Sequence[Attempt], Sequence[Attempt]], None],
        events: EventWriter,
    ) -> None:
        self._store = store
        self._events = events
        self._owner = owner
        self._executor = executor
        self._on_settled = on_settled
        self._waiting: list[Entry] = []
        self._batches_under_way = 0
        self._batches_in_doubt = 0
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def in_trouble(self) -> bool:
        return self._batches_in_doubt > 0

    def put(self, run: Attempt, ending: Ending) -> None:
        self._waiting.append((run, ending))
        self._empty.clear()
        self._more.set()

    def __len__(self) -> int:
        return len(self._waiting)

    async def drained(self) -> None:
        await self._empty.wait()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as batches:
            while True:
                await self._more.wait()
                self._more.clear()
                if self._may_send():
                    batch, self._waiting = self._waiting, []
                    self._batches_under_way += 1
                    batches.create_task(self._send(batch))

    def _may_send(self) -> bool:
        if not self._batches_under_way:
            return bool(self._waiting)
        return self._batches_under_way < AT_ONCE and len(self._waiting) >= LARGE

    async def _send(self, batch: list[Entry]) -> None:
        try:
            await self._settle(batch)
        except Exception:
            logger.exception("%d ending(s) were not heard of: a bug; their leases will run out", len(batch))
        finally:
            self._batches_under_way -= 1
            self._more.set()
            if not self._waiting and not self._batches_under_way:
                self._empty.set()

    async def _settle(self, batch: list[Entry]) -> None:
        try:
            accepted, fenced = await self._written(batch)
        except Exception:
            # Not the database's fault: one job's ending must not hold up the others'.
            if len(batch) > 1:
                logger.exception("settling %d jobs failed; trying them one by one", len(batch))
                for entry in batch:
                    await self._settle([entry])
                return
            logger.exception("job %s could not be settled; its lease will run out", batch[0][1].id)
            accepted, fenced = [], [batch[0][0]]
        self._on_settled(accepted, fenced)

    async def _written(self, batch: list[Entry]) -> tuple[list[Attempt], list[Attempt]]:
        """Those that the database has taken and those whose lease was lost: asked until it answers."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self._write, batch, False)
        except StoreError as error:
            logger.warning("%d result(s) are kept until the database takes them: %s", len(batch), error)
        self._batches_in_doubt += 1
        pause = 0.1
        try:
            while True:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, 5.0)
                with contextlib.suppress(StoreError):
                    accepted, fenced = await loop.run_in_executor(self._executor, self._write, batch, True)
                    logger.info("the database is back; %d result(s) taken", len(accepted))
                    return accepted, fenced
        finally:
            self._batches_in_doubt -= 1

    def _arrived(self, batch: list[Entry]) -> set[str]:
        """What the rows say of an earlier try. Where a later run has written over it, it cannot be told, and nothing
        is left to do."""
        leases = {ending.id: ending.token for _, ending in batch}
        verdicts = self._store.read_settlements(leases, self._owner)
        return {job_id for job_id, verdict in verdicts.items() if verdict in ("done", "unknown")}

    def _write(self, batch: list[Entry], doubtful: bool) -> tuple[list[Attempt], list[Attempt]]:
        """In a thread. With `doubtful` an earlier try may have arrived without our hearing of it."""
        if streams := [run.state.stream for run, _ in batch if run.state.stream is not None]:
            # First what the runs have told: who sees a job at rest sees all of it.
            self._events.finish(streams)
        done = self._arrived(batch) if doubtful else set()
        rest = [ending for _, ending in batch if ending.id not in done]
        settled = self._store.settle(rest)
        done |= set(settled.accepted)
        if doubtful and settled.fenced:
            # The earlier try may have landed between the look and this one.
            done |= self._arrived(batch)
        if settled.freed or any(_may_free_others(run, ending) for run, ending in batch):
            self._store.wake()
        if settled.freed or any(run.grant.group_name is not None for run, _ in batch):
            self._store.tell_watchers()
        accepted = [run for run, ending in batch if ending.id in done]
        return accepted, [run for run, ending in batch if ending.id not in done]


def _may_free_others(run: Attempt, ending: Ending) -> bool:
    """The next of a lane, the job itself, or one that waits for a slot, may be claimable by another worker now."""
    return run.grant.lane is not None or not isinstance(ending.outcome, Success) or run.state.holds_slots
