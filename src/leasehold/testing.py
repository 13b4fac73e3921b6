"""Support for tests: a real store in a temporary file, a clock to advance, and questions about what was enqueued.

    from leasehold.testing import sandbox

    def test_an_order_is_shipped(tmp_path):
        with sandbox(app, tmp_path) as box:
            place_order(1)
            box.assert_enqueued("ship", order_id=1)
            box.drain()
            box.clock.advance(600)      # what was delayed by ten minutes is due now
            box.drain()

With pytest, the fixture `leasehold_sandbox` does the same: `box = leasehold_sandbox(app)`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from leasehold.app import Leasehold
from leasehold.client.job import Job

START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """Stands still until it is advanced. A store that is opened with it takes its now from here, on every database."""

    def __init__(self, start: datetime = START) -> None:
        self.reset(start)

    def reset(self, start: datetime = START) -> None:
        self._now = start
        self._monotonic = 1000.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """The wall clock alone, as when it is set or a failover brings another one."""
        self._now += timedelta(seconds=seconds)


class Sandbox:
    """An app on a store of its own."""

    def __init__(self, app: Leasehold, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock

    def drain(self) -> int:
        """Run what is due, and what becomes due by it, on a real worker; how many runs have ended. Delayed jobs stay
        until the clock is advanced."""
        return asyncio.run(self.adrain())

    async def adrain(self) -> int:
        inside = self.app.__internals__
        queues = sorted(
            {queue for queue, _ in inside.store.list_gates()} | set(inside.tasks.queues().values())
        )
        if not queues:
            return 0
        worker = self.app.worker(queues=queues, burst=True, retention=None, sweep=3600.0)
        await worker.run()
        return worker.attempts.ended

    def enqueued(self, task: str | None = None, **args: Any) -> list[Job[Any]]:
        """Jobs of this task whose arguments include these, oldest first; in any state."""
        found = []
        page = self.app.jobs(kind=task, limit=500)
        while True:
            found += [self.app.get(job.id) for job in page.jobs]
            if page.next is None:
                break
            page = self.app.jobs(kind=task, limit=500, before=page.next)
        return [job for job in reversed(found) if args.items() <= job.args.items()]

    def assert_enqueued(self, task: str, *, count: int | None = None, **args: Any) -> list[Job[Any]]:
        """There is such a job, or exactly `count` of them."""
        found = self.enqueued(task, **args)
        wanted = len(found) > 0 if count is None else len(found) == count
        if not wanted:
            there = [f"{job.kind} {json.dumps(job.args)} ({job.state})" for job in self.enqueued()]
            expected = "at least one" if count is None else str(count)
            listed = "\n  ".join(there) or "nothing"
            raise AssertionError(
                f"expected {expected} {task!r} with {json.dumps(args)}, found {len(found)}; there is:\n  {listed}"
            )
        return found


@contextmanager
def sandbox(app: Leasehold, folder: str | Path, clock: ManualClock | None = None) -> Iterator[Sandbox]:
    """Put the app on a new SQLite file in `folder`, with a clock of its own, until the block ends."""
    clock = clock or ManualClock()
    internals = app.__internals__
    url = f"sqlite:///{Path(folder).resolve()}/leasehold-sandbox.db"
    with internals.moved_to(replace(internals.place, url=url, clock=clock)):
        yield Sandbox(app, clock)
