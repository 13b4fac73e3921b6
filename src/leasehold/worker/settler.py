"""The settler: sends endings to the database in batches, in the background, while the next jobs are claimed.

The settler keeps a result until the database has stored it or reports that the lease was lost. After a lost reply it
reads the row: a lost reply never makes user code run again. Endings of jobs whose rows are locked are put off and tried
separately: other endings do not wait for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from leasehold.domain.errors import StoreError
from leasehold.domain.job import TIED
from leasehold.domain.outcome import Outcome, Success
from leasehold.run.attempt import Attempt
from leasehold.stores.results import Ending, Settled
from leasehold.worker.hooks import HookDispatcher
from leasehold.worker.logs import log_ends
from leasehold.worker.meter import Meter
from leasehold.worker.writers import UpdateWriter

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

logger = logging.getLogger("leasehold.worker")

Entry = tuple[Attempt, Outcome]

LARGE_BATCH = 200
"""From this many endings on, a batch is sent while another is under way; fewer endings wait for that batch to end."""
MOST_BATCHES = 2
SEND_BESIDE_AFTER = 0.5
"""Seconds after which endings are sent while a slow batch is under way, however few they are."""
RETRY_LOCKED, RETRY_LOCKED_SLOWEST = 0.02, 0.1
"""Seconds until endings whose rows were locked are tried again. Mostly a renewal or an operator's verb holds the lock;
otherwise their leases may have run out, and the endings should arrive before a reaper does."""
LOCKED_LONG = 2.0
"""Seconds of waiting for a locked row after which a warning is logged."""


class Written(NamedTuple):
    accepted: list[Attempt]
    fenced: list[Attempt]
    """Attempts whose lease was lost."""
    locked: list[Entry]
    """Endings to try again: their rows are locked, or their tenant did not answer."""


class Effects(NamedTuple):
    """Effects that the endings of a batch may have on other jobs, watchers and hooks."""

    frees: bool
    """The next job of a lane, the job itself, or a job that waits for a slot may be claimable now."""
    grouped: bool
    listened: bool
    """Hooks listen to one of them."""


@dataclass(eq=False)
class Settler:
    store: JobStore
    worker: str
    executor: Executor
    updates: UpdateWriter
    hooks: HookDispatcher
    meter: Meter
    on_settled: Callable[[Sequence[Attempt], Sequence[Attempt]], None]

    def __post_init__(self) -> None:
        self._waiting: list[Entry] = []
        self._batches_under_way = 0
        self._batches_in_doubt = 0
        self._sent_at = 0.0
        self._locked: list[Entry] = []
        """Endings whose rows were locked."""
        self._some_locked = asyncio.Event()
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        """Cleared by `drained`, which waits for it."""

    @property
    def in_trouble(self) -> bool:
        return self._batches_in_doubt > 0

    def put(self, attempt: Attempt, outcome: Outcome) -> None:
        # In this order: the keeper must not take our own settle for a lost lease.
        attempt.ended_at = time.monotonic()
        waiting = self._waiting
        waiting.append((attempt, outcome))
        if not 1 < len(waiting) < LARGE_BATCH:
            # Between these two sizes `_may_send` gives the same answer until the batch under way ends.
            self._more.set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._locked)

    @property
    def _busy(self) -> bool:
        return bool(self._waiting or self._batches_under_way or self._locked)

    async def drained(self) -> None:
        while self._busy:
            self._empty.clear()
            await self._empty.wait()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as batches:
            batches.create_task(self._send_locked())
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
        if self._batches_under_way >= MOST_BATCHES or not self._waiting:
            return False
        return len(self._waiting) >= LARGE_BATCH or time.monotonic() >= self._sent_at + SEND_BESIDE_AFTER

    async def _send(self, batch: list[Entry]) -> None:
        self._sent_at = time.monotonic()
        look_again = asyncio.get_running_loop().call_later(SEND_BESIDE_AFTER, self._more.set)
        try:
            locked = await self._settle(batch)
            if locked:
                self._locked += locked
                self._some_locked.set()
        finally:
            look_again.cancel()
            self._batches_under_way -= 1
            self._more.set()
            if not self._busy:
                self._empty.set()

    async def _send_locked(self) -> None:
        while True:
            await self._some_locked.wait()
            pause, warn_at = RETRY_LOCKED, time.monotonic() + LOCKED_LONG
            while self._locked:
                await asyncio.sleep(pause)
                pause = min(2 * pause, RETRY_LOCKED_SLOWEST)
                batch = list(self._locked)
                # Other endings may have been appended meanwhile.
                self._locked[: len(batch)] = await self._settle(batch)
                if self._locked and time.monotonic() >= warn_at:
                    warn_at = float("inf")
                    logger.warning(
                        "%d result(s) are kept: an open transaction has locked their rows, "
                        "or their tenant is in trouble",
                        len(self._locked),
                    )
            self._some_locked.clear()
            if not self._busy:
                self._empty.set()

    async def _settle(self, batch: list[Entry], doubtful: bool = False) -> list[Entry]:
        """Write these endings and report them; returns those whose rows were locked. `doubtful`: an earlier try may
        have arrived although its reply was lost."""
        try:
            written = await self._write(batch, doubtful)
        except Exception:
            # Not the database's fault: one job's ending must not hold up the others'.
            if len(batch) > 1:
                logger.exception("settling %d jobs failed; trying them one by one", len(batch))
                return [left for entry in batch for left in await self._settle([entry], doubtful=True)]
            logger.exception("job %s could not be settled; its lease will run out", batch[0][0].grant.id)
            written = Written([], [batch[0][0]], [])
        try:
            self.on_settled(written.accepted, written.fenced)
        except Exception:
            logger.exception(
                "lost track of %d ending(s), which is a bug; their leases will run out", len(batch)
            )
        return written.locked

    async def _write(self, batch: list[Entry], doubtful: bool) -> Written:
        """Try until the database answers."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self.executor, self._write_once, batch, doubtful)
        except StoreError as error:
            logger.warning("%d result(s) are kept until the database takes them: %s", len(batch), error)
        self._batches_in_doubt += 1
        pause = 0.1
        try:
            while True:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, 5.0)
                with contextlib.suppress(StoreError):
                    written = await loop.run_in_executor(self.executor, self._write_once, batch, True)
                    logger.info("the database is back; %d result(s) taken", len(written.accepted))
                    return written
        finally:
            self._batches_in_doubt -= 1

    # -- in a thread -----------------------------------------------------------------------------------------------
    def _write_once(self, batch: list[Entry], doubtful: bool) -> Written:
        batch, unfinished = self._finish_streams(batch)
        endings, effects = self._endings_of(batch, doubtful)
        settled = self.store.settle(endings, wait=False)
        locked: list[Entry] = []
        if settled.locked or settled.unanswered:
            ids = {*settled.locked, *settled.unanswered}
            batch, locked = _split(batch, lambda attempt: attempt.grant.id in ids)
            self._doubt(locked, set(settled.unanswered))
        attempts = [attempt for attempt, _ in batch]
        fenced: list[Attempt] = []
        if settled.fenced:
            fenced, unknown = self._fenced(attempts, set(settled.fenced), doubtful)
            if unknown:
                batch, again = _split(batch, unknown.__contains__)
                locked += again
                attempts = [attempt for attempt, _ in batch]
        log_ends(batch, settled.decided, fenced)
        self.meter.count(batch, settled.decided, fenced)
        self._notify(settled, effects)
        accepted = [attempt for attempt in attempts if attempt not in fenced] if fenced else attempts
        return Written(accepted, fenced, unfinished + locked)

    def _finish_streams(self, batch: list[Entry]) -> tuple[list[Entry], list[Entry]]:
        """Write the attempts' updates before their endings: a reader who sees a job at rest sees all its updates. The
        second list holds the entries whose rows are locked: they must be tried again."""
        streams = [attempt.stream for attempt, _ in batch if attempt.stream is not None]
        unwritten = self.updates.finish(streams) if streams else None
        return _split(batch, lambda attempt: attempt.stream in unwritten) if unwritten else (batch, [])

    def _endings_of(self, batch: list[Entry], doubtful: bool) -> tuple[list[Ending], Effects]:
        """Return the endings to send, without those that an earlier try has stored. One loop does it all: it runs for
        every job."""
        stored = self._arrived([attempt for attempt, _ in batch])[0] if doubtful else set()
        endings, frees, grouped, listened = [], False, False, False
        tasks = self.hooks.notified_tasks
        for attempt, outcome in batch:
            grant = attempt.grant
            special = grant.special
            if tasks is not None and grant.task in tasks:
                # The path of tied jobs looks for listeners; that of plain jobs does not.
                special, listened = max(special, TIED), True
            if attempt not in stored:
                endings.append(Ending(grant.id, grant.token, outcome, grant.seq, special))
            if grant.lane is not None or attempt.holds_slots or type(outcome) is not Success:
                frees = True
            if grant.group is not None:
                grouped = True
        return endings, Effects(frees, grouped, listened)

    def _notify(self, settled: Settled, effects: Effects) -> None:
        if settled.freed or effects.frees:
            self.store.notify_workers()
        if settled.freed or effects.grouped:
            self.store.notify_watchers()
        if effects.listened or (effects.grouped and self.hooks.notifies_groups):
            self.store.notify_hooks()
        elif settled.decided:
            self.hooks.hint()

    def _fenced(
        self, attempts: Sequence[Attempt], refused: set[str], doubtful: bool
    ) -> tuple[list[Attempt], set[Attempt]]:
        """Return the refused attempts, except those whose ending is stored after all: an earlier try, or a
        `ctx.complete` whose reply was lost, may have been on its way at the last read. The second set holds those of
        which it could not be read."""
        fenced = [attempt for attempt in attempts if attempt.grant.id in refused]
        landed, unknown = self._arrived([attempt for attempt in fenced if doubtful or attempt.in_doubt])
        return [attempt for attempt in fenced if attempt not in landed | unknown], unknown

    def _arrived(self, attempts: Sequence[Attempt]) -> tuple[set[Attempt], set[Attempt]]:
        """Attempts whose ending the database has, and those whose tenant does not answer."""
        if not attempts:
            return set(), set()
        leases = {attempt.grant.id: attempt.grant.token for attempt in attempts}
        verdicts = self.store.read_settlements(leases, self.worker)
        done = {attempt for attempt in attempts if verdicts[attempt.grant.id] == "done"}
        return done, {attempt for attempt in attempts if verdicts[attempt.grant.id] == "unknown"}

    @staticmethod
    def _doubt(entries: Sequence[Entry], unanswered: set[str]) -> None:
        for attempt, _ in entries:
            attempt.in_doubt |= attempt.grant.id in unanswered


def _split(batch: list[Entry], is_locked: Callable[[Attempt], bool]) -> tuple[list[Entry], list[Entry]]:
    """The free entries, and the locked ones."""
    free: list[Entry] = []
    locked: list[Entry] = []
    for entry in batch:
        (locked if is_locked(entry[0]) else free).append(entry)
    return free, locked
