"""The settler: endings go out in batches, in the background, while the next jobs are claimed.

A result that was computed is kept until the database has taken it or says that the lease was lost. After a lost reply
the row itself tells which: user code is never run again because of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from leasehold.domain.errors import StoreError
from leasehold.domain.outcome import Outcome, Success
from leasehold.run.attempt import Attempt
from leasehold.stores.answers import Ending
from leasehold.stores.contract import Store
from leasehold.worker.job_log import tell_ends
from leasehold.worker.stream_writer import EventWriter

logger = logging.getLogger("leasehold.worker")

Entry = tuple[Attempt, Outcome]

LARGE = 200
"""So many endings go out beside the batch that is under way; fewer do better to wait for it, and for more."""
AT_ONCE = 2
STUCK = 0.5
"""Seconds after which others go out beside a batch, however few they are: it may wait for a row that somebody has
locked."""


class Settler:
    def __init__(
        self,
        store: Store,
        owner: str,
        executor: Executor,
        events: EventWriter,
        on_settled: Callable[[Sequence[Attempt], Sequence[Attempt]], None],
    ) -> None:
        self._store = store
        self._owner = owner
        self._executor = executor
        self._events = events
        self._on_settled = on_settled
        self._waiting: list[Entry] = []
        self._batches_under_way = 0
        self._batches_in_doubt = 0
        self._sent_at = 0.0
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        """Cleared by who waits for it."""

    @property
    def in_trouble(self) -> bool:
        return self._batches_in_doubt > 0

    def put(self, run: Attempt, outcome: Outcome) -> None:
        # In this order: the keeper must not take our own settle for a lost lease.
        run.settled = True
        self._waiting.append((run, outcome))
        self._more.set()

    def __len__(self) -> int:
        return len(self._waiting)

    async def drained(self) -> None:
        while self._waiting or self._batches_under_way:
            self._empty.clear()
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
        if self._batches_under_way >= AT_ONCE or not self._waiting:
            return False
        return len(self._waiting) >= LARGE or time.monotonic() >= self._sent_at + STUCK

    async def _send(self, batch: list[Entry]) -> None:
        self._sent_at = time.monotonic()
        look_again = asyncio.get_running_loop().call_later(STUCK, self._more.set)
        try:
            await self._settle(batch)
        except Exception:
            logger.exception("%d ending(s) were not heard of: a bug; their leases will run out", len(batch))
        finally:
            look_again.cancel()
            self._batches_under_way -= 1
            self._more.set()
            if not self._waiting and not self._batches_under_way:
                self._empty.set()

    async def _settle(self, batch: list[Entry], doubtful: bool = False) -> None:
        """With `doubtful` an earlier try may have arrived without our hearing of it."""
        try:
            accepted, fenced = await self._written(batch, doubtful)
        except Exception:
            # Not the database's fault: one job's ending must not hold up the others'.
            if len(batch) > 1:
                logger.exception("settling %d jobs failed; trying them one by one", len(batch))
                for entry in batch:
                    await self._settle([entry], doubtful=True)
                return
            logger.exception("job %s could not be settled; its lease will run out", batch[0][0].grant.id)
            accepted, fenced = [], [batch[0][0]]
        self._on_settled(accepted, fenced)

    async def _written(self, batch: list[Entry], doubtful: bool) -> tuple[list[Attempt], list[Attempt]]:
        """Those that the database has taken and those whose lease was lost: asked until it answers."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self._write, batch, doubtful)
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

    # -- in a thread -----------------------------------------------------------------------------------------------
    def _write(self, batch: list[Entry], doubtful: bool) -> tuple[list[Attempt], list[Attempt]]:
        runs = [run for run, _ in batch]
        if streams := [run.stream for run in runs if run.stream is not None]:
            # First what the runs have told: who sees a job at rest sees all of it.
            self._events.finish(streams)
        done = self._arrived(runs) if doubtful else set()
        endings, may_free, grouped = [], False, False
        for run, outcome in batch:
            grant = run.grant
            if run not in done:
                endings.append(Ending(grant.id, grant.token, outcome, grant.seq, grant.special))
            # The next of a lane, the job itself, or one that waits for a slot, may be claimable by another worker now.
            if grant.lane is not None or run.holds_slots or type(outcome) is not Success:
                may_free = True
            if grant.group_name is not None:
                grouped = True
        settled = self._store.settle(endings)
        fenced = self._fenced(runs, set(settled.fenced), doubtful) if settled.fenced else []
        tell_ends(batch, settled.decided, fenced)
        if settled.freed or may_free:
            self._store.wake()
        if settled.freed or grouped:
            self._store.tell_watchers()
        return [run for run in runs if run not in fenced] if fenced else runs, fenced

    def _fenced(self, runs: Sequence[Attempt], refused: set[str], doubtful: bool) -> list[Attempt]:
        """Without those that were refused because their own success had been there before: sent by an earlier try that
        was still on its way when we looked, or by a `ctx.complete` that heard nothing."""
        fenced = [run for run in runs if run.grant.id in refused]
        landed = self._arrived([run for run in fenced if doubtful or run.in_doubt])
        return [run for run in fenced if run not in landed]

    def _arrived(self, runs: Sequence[Attempt]) -> set[Attempt]:
        """Whose ending the database has, as it says itself."""
        if not runs:
            return set()
        leases = {run.grant.id: run.grant.token for run in runs}
        verdicts = self._store.read_settlements(leases, self._owner)
        return {run for run in runs if verdicts[run.grant.id] == "done"}
