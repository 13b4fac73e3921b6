"""Support for tests: a real store in a temporary file, a clock to advance, and assertions about enqueued jobs.

    from leasehold.testing import sandbox

    def test_an_order_is_shipped(tmp_path):
        with sandbox(app, tmp_path) as box:
            place_order(1)
            box.assert_enqueued("ship", order_id=1)
            box.drain()
            box.clock.advance(600)      # a job delayed by ten minutes is due now
            box.drain()

With pytest, the fixture `leasehold_sandbox` does the same: `box = leasehold_sandbox(app)`.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from leasehold.app import Leasehold
from leasehold.client.job import Job
from leasehold.client.mirrors import AnyTask
from leasehold.run.attempt import Attempt
from leasehold.run.journal import Waits
from leasehold.run.state import RunState
from leasehold.stores.open import resolve_url
from leasehold.threads import to_thread
from leasehold.worker.settings import WorkerSettings

__all__ = ["ManualClock", "OpenSandbox", "Sandbox", "sandbox"]

POLL_EVERY = 0.005
START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A clock that stands still until it is advanced. A store opened with it takes the time from here, on any
    database."""

    def __init__(self, start: datetime = START) -> None:
        self.reset(start)

    def reset(self, start: datetime = START) -> None:
        """Set the clock back to this time."""
        self._now = start
        self._monotonic = 1000.0

    def now(self) -> datetime:
        """The time that the clock shows."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since some start; never set back."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move the clock on by this many seconds."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Change only the wall clock, as when someone sets it, or a failover leads to a machine with another time."""
        self._now += timedelta(seconds=seconds)


class ClockWaits(Waits):
    """Lets attempts wait on the test's clock, which moves when a test advances it, or when all attempts wait."""

    longest_pause = math.inf

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: list[_Wait] = []

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def wait(self, run: RunState, seconds: float, timed: bool = True) -> None:
        with self._noted(run, seconds, timed) as wait:
            while not wait.over(self._clock) and not run.wait(POLL_EVERY):
                pass

    async def wait_async(self, run: RunState, seconds: float, timed: bool = True) -> None:
        with self._noted(run, seconds, timed) as wait:
            while not wait.over(self._clock):
                await asyncio.sleep(POLL_EVERY)

    @contextmanager
    def _noted(self, run: RunState, seconds: float, timed: bool) -> Iterator[_Wait]:
        wait = _Wait(run, timed, self._clock.monotonic() + seconds, time.monotonic() + min(seconds, 0.02))
        with self._lock:
            self._waiting.append(wait)
        try:
            yield wait
        finally:
            with self._lock:
                self._waiting.remove(wait)

    def move_on(self, running: Collection[RunState]) -> None:
        """If all of these attempts only wait, move the clock to the end of the first wait."""
        with self._lock:
            waiting = {id(wait.run) for wait in self._waiting}
            until = min((wait.until for wait in self._waiting if wait.timed), default=None)
            if running and until is not None and all(id(run) in waiting for run in running):
                self._clock.advance(max(0.0, until - self._clock.monotonic()))


@dataclass(frozen=True, slots=True, eq=False)
class _Wait:
    run: RunState
    timed: bool
    until: float
    poll_at: float
    """In real time: a wait that the clock does not end, such as for a free slot, polls."""

    def over(self, clock: ManualClock) -> bool:
        if self.timed:
            return clock.monotonic() >= self.until
        return time.monotonic() >= self.poll_at


def _report(running: Iterable[Attempt]) -> str:
    return "\n".join(_describe(run) for run in running) or "no job runs"


def _describe(run: Attempt) -> str:
    grant = run.grant
    doing = f"waits for {', '.join(run.waits_for)}" if run.waits_for else "runs"
    where = "".join(traceback.StackSummary.from_list(_stack(run)[-6:]).format()).rstrip()
    return f"job {grant.id} ({grant.task}, attempt {grant.attempt}) {doing}\n{where}"


def _stack(run: Attempt) -> list[traceback.FrameSummary]:
    """Return the stack of the handler: on the event loop, or in its thread."""
    frames: list[FrameType] = []
    if run.task is not None:
        awaited: Any = run.task.get_coro()
        while awaited is not None:
            frames += [f] if (f := getattr(awaited, "cr_frame", None)) is not None else []
            awaited = getattr(awaited, "cr_await", None)
        return [traceback.FrameSummary(f.f_code.co_filename, f.f_lineno, f.f_code.co_name) for f in frames]
    for frame in sys._current_frames().values():
        stack = list(traceback.walk_stack(frame))
        if any(one.f_locals.get("self") is run for one, _ in stack):
            return list(traceback.StackSummary.extract(reversed(stack)))
    return []


class Sandbox:
    """An app on its own store."""

    def __init__(self, app: Leasehold, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock

    def drain(self, timeout: float = 30.0) -> int:
        """Run due jobs, and the jobs that these make due, on a real worker; return how many attempts ended. Delayed
        jobs stay until the clock is advanced; jobs and questions whose time is over (`deadline`, `start_by`, a
        question's time-out) end first. While all attempts only wait for time to pass (a rate, a step's next try,
        `ctx.wait`), the clock moves on by itself. If jobs still run after `timeout` real seconds, they are stopped and
        the error says what they wait for."""
        return asyncio.run(self.adrain(timeout))

    async def adrain(self, timeout: float = 30.0) -> int:
        store, ends_at = self.app.__internals__.store, time.monotonic() + timeout
        ended = 0
        while True:
            await to_thread(store.expire)
            ended += await self._burst(ends_at, timeout)
            # The clock may have moved on and made other jobs due or late.
            if not await to_thread(store.expire):
                return ended

    async def _burst(self, ends_at: float, timeout: float) -> int:
        internals = self.app.__internals__
        queues = sorted(
            {queue for queue, _ in internals.store.list_gates()} | set(internals.tasks.queues().values())
        )
        if not queues:
            return 0
        settings = WorkerSettings(queues=tuple(queues), burst=True, prunes=False, sweep=3600.0)
        waits = ClockWaits(self.clock)
        worker = internals.make_worker(settings, waits)
        stuck: str | None = None
        async with worker:
            finished = asyncio.create_task(worker.finished())
            while stuck is None and not finished.done():
                await asyncio.wait({finished}, timeout=POLL_EVERY)
                running = worker.attempts.unfinished()
                waits.move_on(running)
                if time.monotonic() > ends_at and not finished.done():
                    stuck = _report(running)
                    worker.request_drain()
                    worker.request_drain()  # the second request does not wait for running jobs
            await finished
        if stuck is not None:
            raise AssertionError(f"the drain has not ended within {timeout:g} s:\n{stuck}")
        return worker.attempts.ended

    def enqueued(self, task: AnyTask | str | None = None, **args: Any) -> list[Job[Any]]:
        """Return the jobs of this task, in any state, whose arguments include these; oldest first."""
        name = task if task is None or isinstance(task, str) else task.name
        found = []
        page = self.app.jobs(task=name, limit=500)
        while True:
            found += [self.app.get(job.id) for job in page.jobs]
            if page.next is None:
                break
            page = self.app.jobs(task=name, limit=500, cursor=page.next)
        return [job for job in reversed(found) if args.items() <= job.args.items()]

    def assert_enqueued(
        self, task: AnyTask | str, *, count: int | None = None, **args: Any
    ) -> list[Job[Any]]:
        """Assert that there is such a job, or exactly `count` of them."""
        found = self.enqueued(task, **args)
        wanted = len(found) > 0 if count is None else len(found) == count
        if not wanted:
            existing = [f"{job.task} {json.dumps(job.args)} ({job.state})" for job in self.enqueued()]
            expected = "at least one" if count is None else str(count)
            listed = "\n  ".join(existing) or "nothing"
            name = task if isinstance(task, str) else task.name
            raise AssertionError(
                f"expected {expected} {name!r} with {json.dumps(args)}, found {len(found)}; there is:\n  {listed}"
            )
        return found


class OpenSandbox(Protocol):
    """The type of the fixture `leasehold_sandbox`: `box = leasehold_sandbox(app)`, which lasts until the test ends."""

    def __call__(self, app: Leasehold, *, url: str | None = None) -> Sandbox: ...


@contextmanager
def sandbox(
    app: Leasehold, folder: str | Path, clock: ManualClock | None = None, *, url: str | None = None
) -> Iterator[Sandbox]:
    """Put the app on a new SQLite file in `folder`, with its own clock, until the block ends. Code that enqueues in its
    own transactions (`tx=`) needs the jobs in the database of its connections: give that database as `url`. Leasehold's
    tables are created there at once: in a SQLite file beside the tables of the test, in PostgreSQL in a schema that is
    removed at the end."""
    clock = clock or ManualClock()
    internals = app.__internals__
    folder = Path(folder).resolve()
    location = replace(
        internals.location,
        url=resolve_url(url or f"sqlite:///{folder}/leasehold-sandbox.db"),
        schema=f"leasehold_sandbox_{secrets.token_hex(4)}",
        listen_url=None,
        pooler=False,
        clock=clock,
        results=None,
    )
    with internals.moved_to(location):
        if url is not None:
            app.upgrade()
        try:
            yield Sandbox(app, clock)
        finally:
            if not location.is_sqlite:
                internals.store.drop()
