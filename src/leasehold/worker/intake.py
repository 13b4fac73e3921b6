"""The claim loop: takes what can be started now, goes on while there is work, else waits for a hint or a second."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

from leasehold.domain.errors import StoreError
from leasehold.domain.job import Grant
from leasehold.domain.outcome import Expired
from leasehold.stores.answers import Ending, Order
from leasehold.stores.contract import Store
from leasehold.tasks.definition import TaskDefinition
from leasehold.worker.attempts import Attempts
from leasehold.worker.settings import WorkerSettings
from leasehold.worker.settler import Settler
from leasehold.worker.starter import Starter

logger = logging.getLogger("leasehold.worker")

MOST_AT_ONCE = 500
"""Jobs that one claim asks for: with room for more, the next claim runs while these begin."""

MANY = 50
"""Jobs of one claim whose start takes long enough to ask for more meanwhile. A few begin at once."""

NO_ROOM = (0, 0)

ABSENT_FOR = 0.1
"""Seconds for which a busy worker does not look again for jobs of a kind that were not there."""

MOST_UNSETTLED = 5000
"""Results that wait for the database. More than this, and no new work is taken."""


class Asked(NamedTuple):
    """A claim that is under way. Its leases are counted from when it was sent."""

    sent_at: float
    answer: asyncio.Future[list[Grant]]


class Absence:
    """Jobs of a kind that were not there a moment ago."""

    def __init__(self) -> None:
        self._until = 0.0

    @property
    def noted(self) -> bool:
        return time.monotonic() < self._until

    def note(self, absent: bool) -> None:
        if absent and not self.noted:
            self._until = time.monotonic() + ABSENT_FOR


class Turns:
    """The queues, in the order in which the next claim serves them: after the last one that was served."""

    def __init__(self, queues: Sequence[str], strict: bool) -> None:
        self.queues = list(queues)
        self._fixed = strict or len(self.queues) < 2

    def served(self, grants: Sequence[Grant]) -> None:
        if self._fixed or not grants:
            return
        served = {grant.queue for grant in grants}
        last = max(number for number, queue in enumerate(self.queues) if queue in served)
        self.queues = self.queues[last + 1 :] + self.queues[: last + 1]


class Intake:
    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition],
        settings: WorkerSettings,
        executor: Executor,
        attempts: Attempts,
        *,
        starter: Starter,
        settler: Settler,
        changed: asyncio.Event,
        on_work: Callable[[], None],
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._settings = settings
        self._executor = executor
        self._attempts = attempts
        self._starter = starter
        self._settler = settler
        self._changed = changed
        """Set by a wake-up, a freed place, or the drain."""
        self._on_work = on_work
        self._async_kinds = [name for name, task in tasks.items() if task.is_async]
        self._sync_kinds = [name for name, task in tasks.items() if not task.is_async]
        self._kinds = self._async_kinds + self._sync_kinds
        self._loop_turns = Turns(settings.queues, settings.strict)
        self._thread_turns = Turns(settings.queues, settings.strict)
        self._was_empty = False
        self._absent_on_loop = Absence()
        self._absent_in_threads = Absence()
        self._draining = False
        self.trouble: Exception | None = None
        """Why the last claim failed."""
        self.progress_at = time.monotonic()
        """When the loop last went round, or began to wait for a place."""
        self.waits_for_place = False

    @property
    def in_trouble(self) -> bool:
        return self.trouble is not None

    def drain(self) -> None:
        self._draining = True
        self._changed.set()

    async def run(self) -> None:
        """Until the drain, or in a burst until nothing is left."""
        if not self._settings.claims:
            self.waits_for_place = True
            while not self._draining:
                self._changed.clear()
                await self._changed.wait()
        asked: Asked | None = None
        while not self._draining or asked is not None:
            self.progress_at = time.monotonic()
            if asked is None:
                self._changed.clear()
                room = self._room()
                self.waits_for_place = room == NO_ROOM
                if self.waits_for_place:
                    await self._changed.wait()
                    continue
                asked = self._ask(room)
            grants = await self._answer(asked)
            sent_at, asked = asked.sent_at, None
            if grants is None:
                continue
            if len(grants) >= MANY and not self._draining:
                # Ask for more before these begin: they do so while the database is busy with the next claim.
                room = self._room(grants)
                if room != NO_ROOM:
                    self._changed.clear()
                    asked = self._ask(room)
            await self._begin(grants, sent_at)
            if not grants and asked is None and not self._draining:
                if self._settings.burst and not self._attempts.held and not self._changed.is_set():
                    return
                await self._wait()

    def _room(self, coming: Sequence[Grant] = ()) -> tuple[int, int]:
        """Jobs that could be started now, on the loop and in threads, besides those that are coming."""
        if len(self._settler) >= MOST_UNSETTLED:
            return NO_ROOM
        in_threads = sum(not self._tasks[grant.kind].is_async for grant in coming) if self._sync_kinds else 0
        on_loop = len(coming) - in_threads
        loop_room = self._settings.concurrency - self._starter.on_loop - on_loop if self._async_kinds else 0
        thread_room = self._starter.thread_room - in_threads if self._sync_kinds else 0
        return min(max(0, loop_room), MOST_AT_ONCE), min(max(0, thread_room), MOST_AT_ONCE)

    async def _wait(self) -> None:
        opens_in = self._store.opens_in(self._settings.queues, self._kinds)
        seconds = self._settings.poll if opens_in is None else min(self._settings.poll, opens_in)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    def _ask(self, room: tuple[int, int]) -> Asked:
        answer = asyncio.get_running_loop().run_in_executor(self._executor, self._claim, *room)
        return Asked(time.monotonic(), answer)

    async def _answer(self, asked: Asked) -> list[Grant] | None:
        """None: the database did not answer, which does not say that there was nothing."""
        try:
            grants = await asked.answer
        except StoreError as error:
            await self._sit_out(error)
            return None
        except Exception as error:
            # A bug, or a database that answers strangely: told each time, but a worker that no longer claims while
            # it looks alive would be worse.
            logger.exception("claim: unexpected error; going on")
            await self._sit_out(error)
            return None
        self.trouble = None
        if grants:
            self._on_work()
        return grants

    async def _begin(self, grants: Sequence[Grant], sent_at: float) -> None:
        if self._draining:
            self._starter.hand_back(grants, "its worker was stopped")
        elif grants:
            await self._starter.start(grants, sent_at)

    def _claim(self, loop_room: int, thread_room: int) -> list[Grant]:
        """In a thread."""
        if self._was_empty and not self.in_trouble and loop_room and thread_room:
            # Idle: one look for both kinds of places, with room for whatever it finds.
            grants = self._claim_from_queues(self._kinds, min(loop_room, thread_room), self._loop_turns)
            self._was_empty = not grants
            return grants
        grants = self._find_forgotten() if self.in_trouble else []
        passed_over = self._absent_on_loop.noted or self._absent_in_threads.noted
        left = max(0, loop_room - len(grants))
        on_loop = self._claim_kinds(self._async_kinds, left, self._absent_on_loop, self._loop_turns)
        in_threads = self._claim_kinds(
            self._sync_kinds, thread_room, self._absent_in_threads, self._thread_turns
        )
        # Only beside a kind of jobs that comes in as fast as it can be taken: a look for nothing would hold that up.
        self._absent_on_loop.note(not on_loop and len(in_threads) == thread_room > 0)
        self._absent_in_threads.note(not in_threads and len(on_loop) == loop_room > 0)
        grants += on_loop + in_threads
        self._was_empty = not grants
        if self._was_empty and passed_over and loop_room and thread_room:
            # An empty answer sends us to sleep: what was passed over is looked for after all.
            return self._claim(loop_room, thread_room)
        return grants

    def _claim_kinds(self, kinds: list[str], room: int, absent: Absence, turns: Turns) -> list[Grant]:
        return self._claim_from_queues(kinds, room, turns) if room and not absent.noted else []

    def _claim_from_queues(self, kinds: list[str], room: int, turns: Turns) -> list[Grant]:
        order: Order = "strict" if self._settings.strict else "turns"
        grants = self._store.claim(
            self._settings.owner, turns.queues, room, kinds, idle=self._was_empty, order=order
        )
        turns.served(grants)
        return grants

    def _find_forgotten(self) -> list[Grant]:
        """After trouble: leases in our name whose grant never reached us are ours all the same."""
        held = self._store.find_held(self._settings.owner)
        forgotten = {grant.id: grant for grant in held if grant.id not in self._attempts.held}
        # Nobody has run these, and nobody may: only an execution somewhere else has to be taken on, and stopped.
        late = [
            grant
            for grant in forgotten.values()
            if grant.seconds_left is not None and grant.seconds_left <= 0 and grant.execution_site is None
        ]
        if late:
            self._store.settle([Ending(grant.id, grant.token, Expired()) for grant in late])
            for grant in late:
                del forgotten[grant.id]
        if not forgotten:
            return []
        # Nobody knows how much of their time has gone; extended, they are as good as new.
        leases = {grant.id: grant.token for grant in forgotten.values()}
        renewed = [renewal.id for renewal in self._store.renew(leases) if renewal.extended]
        logger.info("%d lease(s) were granted while the database could not say so", len(renewed))
        return [forgotten[job_id] for job_id in renewed]

    async def _sit_out(self, error: Exception) -> None:
        if type(self.trouble) is not type(error):
            logger.warning("no claims for now: %s", error)
        self.trouble = error
        await asyncio.sleep(random.uniform(0.2, 1.0))
