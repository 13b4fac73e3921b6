"""The claim loop: claims jobs while there is work and room, else waits for a hint or the next poll."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, NamedTuple

from leasehold.domain.errors import StoreError
from leasehold.domain.hooks import WEBHOOK_QUEUE, WEBHOOK_TASK
from leasehold.domain.job import Grant
from leasehold.domain.outcome import Expired
from leasehold.runners.contract import AnyRunner
from leasehold.stores.results import Ending, Order
from leasehold.tasks.definition import TaskDefinition
from leasehold.worker.attempts import Attempts
from leasehold.worker.hooks import WEBHOOK_PLACES
from leasehold.worker.settings import WorkerSettings
from leasehold.worker.settler import Settler
from leasehold.worker.starter import Starter

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

logger = logging.getLogger("leasehold.worker")

MOST_CLAIMED = 500
"""Most jobs of one claim: with room for more, the next claim runs while these begin."""

CLAIM_AHEAD_FROM = 50
"""From this many jobs on, starting them takes long enough to claim more meanwhile. Fewer begin at once."""


class FreePlaces(NamedTuple):
    """How many more jobs could be started now."""

    on_loop: int
    in_threads: int
    external: int
    webhooks: int


NO_FREE_PLACES = FreePlaces(0, 0, 0, 0)

ABSENT_FOR = 0.1
"""Seconds for which a busy worker does not look again for a class of jobs that it has just not found."""

MOST_UNSETTLED = 5000
"""Most results that may wait for the database. With more, no new work is taken."""


class ClaimUnderWay(NamedTuple):
    """A claim that is under way. Its leases count from when it was sent."""

    sent_at: float
    answer: asyncio.Future[list[Grant]]


class Absence:
    """Remembers that a class of jobs was not found a moment ago."""

    def __init__(self) -> None:
        self._until = 0.0

    @property
    def noted(self) -> bool:
        return time.monotonic() < self._until

    @property
    def seconds_left(self) -> float | None:
        left = self._until - time.monotonic()
        return left if left > 0 else None

    def note(self, absent: bool) -> None:
        if absent and not self.noted:
            self._until = time.monotonic() + ABSENT_FOR


class QueueRotation:
    """The queues in the order of the next claim, which begins after the last queue served."""

    def __init__(self, queues: Sequence[str], strict: bool) -> None:
        self.all = list(queues)
        self.queues = list(queues)
        self._fixed = strict or len(self.queues) < 2

    def served(self, grants: Sequence[Grant]) -> None:
        if self._fixed or not grants:
            return
        served = {grant.queue for grant in grants}
        last = max(number for number, queue in enumerate(self.queues) if queue in served)
        self.queues = self.queues[last + 1 :] + self.queues[: last + 1]


class Claimer:
    def __init__(
        self,
        store: JobStore,
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
        not_external = {name: task for name, task in tasks.items() if task.external is None}
        self._async_tasks = [
            name for name, task in not_external.items() if task.runs_on_loop and name != WEBHOOK_TASK
        ]
        self._sync_tasks = [name for name, task in not_external.items() if not task.runs_on_loop]
        self._task_names = self._async_tasks + self._sync_tasks
        self._known_external = _external(tasks)
        self._loop_turns = QueueRotation(settings.queues, settings.queue_order == "strict")
        self._thread_turns = QueueRotation(settings.queues, settings.queue_order == "strict")
        self._external_turns = QueueRotation(settings.queues, settings.queue_order == "strict")
        self._was_empty = False
        self._serves_webhooks = False
        """Only from the first webhook on: without one, the claim of deliveries would be a wasted statement."""
        self._claimed: list[tuple[Sequence[str], list[str]]] = []
        """The queues and tasks of the last claims."""
        self._absent_on_loop = Absence()
        self._absent_in_threads = Absence()
        self._absent_deliveries = Absence()
        self.draining = False
        """No more claims."""
        self.trouble: Exception | None = None
        """Why the last claim failed."""
        self.progress_at = time.monotonic()
        """When the loop last completed a round, or began to wait for a place."""
        self.waits_for_room = False
        self.asked_at: float | None = None
        """When the claim was sent that the database has not answered yet."""

    @property
    def in_trouble(self) -> bool:
        return self.trouble is not None

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that this worker serves now."""
        return (*self._loop_turns.all, *((WEBHOOK_QUEUE,) if self._serves_webhooks else ()))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that this worker could run now, including those registered since it began."""
        hidden: set[str] = set() if self._serves_webhooks else {WEBHOOK_TASK}
        return tuple(sorted(self._tasks.keys() - hidden))

    def serve_webhooks(self) -> None:
        """Serve webhooks from now on: deliveries are jobs in their own queue, with places and a claim of their own."""
        if WEBHOOK_TASK in self._tasks and self._settings.claims and not self._serves_webhooks:
            self._serves_webhooks = True
            self._changed.set()

    def drain(self) -> None:
        self.draining = True
        self._changed.set()

    async def run(self) -> None:
        """Claim until the drain, or in a burst until nothing is left."""
        if not self._settings.claims:
            self.waits_for_room = True
            while not self.draining:
                await self._adopt_only()
        under_way: ClaimUnderWay | None = None
        while not self.draining or under_way is not None:
            self.progress_at = time.monotonic()
            if under_way is None:
                self._changed.clear()
                room = self._free_places()
                self.waits_for_room = room == NO_FREE_PLACES
                if self.waits_for_room:
                    await self._changed.wait()
                    continue
                under_way = self._send_claim(room)
            grants = await self._receive(under_way)
            sent_at, under_way = under_way.sent_at, None
            if grants is None:
                continue
            if len(grants) >= CLAIM_AHEAD_FROM and not self.draining:
                # Claim more before these begin: they begin while the database works on the next claim.
                room = self._free_places(grants)
                if room != NO_FREE_PLACES:
                    self._changed.clear()
                    under_way = self._send_claim(room)
            await self._begin(grants, sent_at)
            if not grants and under_way is None and not self.draining:
                opens_in = self._opens_in()
                if self._settings.burst and self._is_over(opens_in):
                    return
                await self._wait(opens_in)

    def _free_places(self, coming: Sequence[Grant] = ()) -> FreePlaces:
        """Return the room besides the jobs that are coming."""
        if len(self._settler) >= MOST_UNSETTLED:
            return NO_FREE_PLACES
        external_tasks = self._external_tasks
        tasks = [grant.task for grant in coming]
        in_threads = _count(tasks, self._sync_tasks)
        external = _count(tasks, external_tasks)
        deliveries = _count(tasks, [WEBHOOK_TASK])
        on_loop = len(coming) - in_threads - external - deliveries
        loop_room = self._settings.concurrency - self._starter.on_loop - on_loop if self._async_tasks else 0
        thread_room = self._starter.thread_room - in_threads if self._sync_tasks else 0
        external_room = (
            self._settings.max_executions - self._starter.external - external if external_tasks else 0
        )
        webhook_room = WEBHOOK_PLACES - self._starter.webhooks - deliveries if self._serves_webhooks else 0
        rooms = (loop_room, thread_room, external_room, webhook_room)
        return FreePlaces(*(min(max(0, room), MOST_CLAIMED) for room in rooms))

    @property
    def _external_tasks(self) -> list[str]:
        """The external tasks. A worker that claims nothing by itself also sees those registered since it began."""
        return self._known_external if self._settings.claims else _external(self._tasks)

    @property
    def sites(self) -> list[str]:
        """The sites whose executions this worker can see and stop."""
        return sorted({runner.site for runner in self.runners})

    def sites_of(self, task: str) -> list[str]:
        """The sites where this worker can adopt executions of the task, without those of the task's earlier runners."""
        runner = self._reachable().get(task)
        return [] if runner is None else [runner.site]

    @property
    def runners(self) -> list[AnyRunner]:
        """The reachable runners of its tasks."""
        return list(dict.fromkeys(self._reachable().values()))

    def _reachable(self) -> dict[str, AnyRunner]:
        """The runners that answer, by the tasks that they run."""
        found: dict[str, AnyRunner] = {}
        for name in self._external_tasks:
            external = self._tasks[name].external
            try:
                if external is not None and external.runner.site:
                    found[name] = external.runner
            except Exception as error:
                # A producer that hosts `run_now` of other tasks needs no Docker engine.
                logger.debug("no runner for %s: %s", name, error)
        return found

    async def _adopt_only(self) -> None:
        """Adopt executions for a host of `run_now`: no other worker would take those that an earlier host left."""
        self._changed.clear()
        room = self._free_places()
        if room.external and not self.draining:
            loop = asyncio.get_running_loop()
            under_way = ClaimUnderWay(
                time.monotonic(), loop.run_in_executor(self._executor, self._adopt, room.external)
            )
            await self._begin(await self._receive(under_way) or [], under_way.sent_at)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), self._settings.poll if room.external else None)

    def _adopt(self, room: int) -> list[Grant]:
        """Adopt executions that no worker watches. Runs in a thread."""
        tasks_at: dict[str, list[str]] = {}
        for task, runner in self._reachable().items():
            tasks_at.setdefault(runner.site, []).append(task)
        grants: list[Grant] = []
        for site, tasks in tasks_at.items():
            # Each task at its runner's site: this runner cannot see executions that an earlier runner left elsewhere.
            grants += self._store.adopt(self._settings.name, [site], tasks, room - len(grants))
        return grants

    def _opens_in(self) -> float | None:
        """Seconds until the last claims may find more. Tasks without room are claimed when a place is freed. Tasks that
        were skipped get their turn as soon as they may be looked for again: a hint may have come meanwhile."""
        known = [self._store.opens_in(queues, tasks) for queues, tasks in self._claimed]
        known += [absent.seconds_left for absent in (self._absent_on_loop, self._absent_in_threads)]
        return min((seconds for seconds in known if seconds is not None), default=None)

    def _is_over(self, opens_in: float | None) -> bool:
        """Whether a burst ends, after an empty claim. A store of many tenants that says there may be work now has not
        yet queried all of them."""
        return not self._attempts.held and not self._changed.is_set() and opens_in != 0

    async def _wait(self, opens_in: float | None) -> None:
        seconds = self._settings.poll if opens_in is None else min(self._settings.poll, opens_in)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    def _send_claim(self, room: FreePlaces) -> ClaimUnderWay:
        answer = asyncio.get_running_loop().run_in_executor(self._executor, self._ask, room)
        return ClaimUnderWay(time.monotonic(), answer)

    def _ask(self, room: FreePlaces) -> list[Grant]:
        """Claim, and note since when the database has not answered. Runs in a thread."""
        self.asked_at = time.monotonic()
        try:
            return self._claim(room)
        finally:
            self.asked_at = None

    async def _receive(self, under_way: ClaimUnderWay) -> list[Grant] | None:
        """Return None if the database did not answer, which does not mean that there was nothing."""
        try:
            grants = await under_way.answer
        except StoreError as error:
            await self._wait_out(error)
            return None
        except Exception as error:
            # A bug, or a database that answers strangely: log it each time. A worker that stops claiming while it looks
            # alive would be worse.
            logger.exception("claim: unexpected error; continuing")
            await self._wait_out(error)
            return None
        self.trouble = None
        if grants:
            self._on_work()
        return grants

    async def _begin(self, grants: Sequence[Grant], sent_at: float) -> None:
        if self.draining:
            self._starter.hand_back(grants, "its worker was stopped")
        elif grants:
            await self._starter.start(grants, sent_at)

    def _claim(self, room: FreePlaces) -> list[Grant]:
        """Claim jobs; adopt executions that no worker watches before that. Runs in a thread."""
        self._claimed = []
        grants = self._adopt(room.external)
        left = room.external - len(grants)
        grants += self._claim_from_queues(self._external_tasks, left, self._external_turns) if left else []
        if room.on_loop or room.in_threads or self.in_trouble:
            grants += self._claim_not_external(room.on_loop, room.in_threads)
        if room.webhooks:
            grants += self._claim_deliveries(room.webhooks, busy=bool(grants))
        return grants

    def _claim_not_external(self, loop_room: int, thread_room: int) -> list[Grant]:
        in_doubt = self.in_trouble or self._store.claims_in_doubt
        if self._was_empty and not in_doubt and loop_room and thread_room:
            # Idle: one claim for both kinds of places, with room for whatever it finds.
            grants = self._claim_from_queues(self._task_names, min(loop_room, thread_room), self._loop_turns)
            self._was_empty = not grants
            return grants
        grants = self._recover_lost_grants() if in_doubt else []
        passed_over = self._absent_on_loop.noted or self._absent_in_threads.noted
        left = max(0, loop_room - len(grants))
        on_loop = self._claim_tasks(self._async_tasks, left, self._absent_on_loop, self._loop_turns)
        in_threads = self._claim_tasks(
            self._sync_tasks, thread_room, self._absent_in_threads, self._thread_turns
        )
        # Only while the other class of jobs comes in as fast as it can be taken: empty claims would delay that class.
        self._absent_on_loop.note(not on_loop and len(in_threads) == thread_room > 0)
        self._absent_in_threads.note(not in_threads and len(on_loop) == loop_room > 0)
        grants += on_loop + in_threads
        self._was_empty = not grants
        if self._was_empty and passed_over and loop_room and thread_room:
            # After an empty answer the worker sleeps: look for the skipped tasks after all.
            return self._claim_not_external(loop_room, thread_room)
        return grants

    def _claim_deliveries(self, room: int, busy: bool) -> list[Grant]:
        """Claim deliveries to webhooks. While there are other jobs, the claimer looks for them only now and then."""
        if busy and self._absent_deliveries.noted:
            return []
        queues, tasks = [WEBHOOK_QUEUE], [WEBHOOK_TASK]
        self._claimed.append((queues, tasks))
        grants = self._store.claim(self._settings.name, queues, room, tasks, idle=not busy)
        self._absent_deliveries.note(not grants)
        return grants

    def _claim_tasks(self, tasks: list[str], room: int, absent: Absence, turns: QueueRotation) -> list[Grant]:
        return self._claim_from_queues(tasks, room, turns) if room and not absent.noted else []

    def _claim_from_queues(self, tasks: list[str], room: int, turns: QueueRotation) -> list[Grant]:
        self._claimed.append((turns.all, tasks))
        order: Order = self._settings.queue_order
        grants = self._store.claim(
            self._settings.name, turns.queues, room, tasks, idle=self._was_empty, order=order
        )
        turns.served(grants)
        return grants

    def _recover_lost_grants(self) -> list[Grant]:
        """Return the grants that this worker got while a database was in trouble: the replies were lost, or came too
        late."""
        held = self._store.find_leases_of(self._settings.name)
        lost = {grant.id: grant for grant in held if grant.id not in self._attempts.held}
        # Jobs past their deadline must not run: only an execution elsewhere has to be taken over, and stopped.
        late = [
            grant
            for grant in lost.values()
            if grant.seconds_left is not None and grant.seconds_left <= 0 and grant.execution_site is None
        ]
        if late:
            self._store.settle([Ending(grant.id, grant.token, Expired()) for grant in late])
            for grant in late:
                del lost[grant.id]
        if not lost:
            return []
        # It is unknown how much of the leases' time has passed; a renewal makes them as good as new.
        leases = {grant.id: grant.token for grant in lost.values()}
        renewed = [renewal.id for renewal in self._store.renew(leases) if renewal.extended]
        logger.info("%d lease(s) were granted, but the database's answer was lost", len(renewed))
        return [lost[job_id] for job_id in renewed]

    async def _wait_out(self, error: Exception) -> None:
        if type(self.trouble) is not type(error):
            logger.warning("no claims for now: %s", error)
        self.trouble = error
        await asyncio.sleep(random.uniform(0.2, 1.0))


def _count(tasks: Sequence[str], wanted: Sequence[str]) -> int:
    return sum(map(set(wanted).__contains__, tasks)) if tasks and wanted else 0


def _external(tasks: Mapping[str, TaskDefinition]) -> list[str]:
    return [name for name, task in list(tasks.items()) if task.external is not None]
