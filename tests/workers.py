"""Workers inside the test's own process, and how tests wait: for a condition, not for a while."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from leasehold import Leasehold, Worker

T = TypeVar("T")

LOOK_EVERY = 0.02
PATIENCE = 60.0
"""Seconds until a wait is given up. Only a test that fails waits that long."""


def burst(app: Leasehold, **settings: Any) -> Worker:
    """Run what is due, and what becomes due by it, to its end."""
    worker = app.worker(burst=True, retention=None, **settings)
    asyncio.run(worker.run())
    return worker


def wait_for(
    condition: Callable[[], T], what: str | Callable[[], str] = "it", seconds: float = PATIENCE
) -> T:
    """The first answer of `condition` that is true."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {seconds:g} s for {what if isinstance(what, str) else what()}")
        time.sleep(LOOK_EVERY)
    return answer


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """`wait_for` beside a worker that runs on this event loop."""
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


@contextmanager
def working(app: Leasehold, **settings: Any) -> Iterator[Worker]:
    """A worker on a loop of its own, drained at the end."""
    ready, over = threading.Event(), threading.Event()
    worker = app.worker(retention=None, **settings)

    async def work() -> None:
        async with worker:
            ready.set()
            await asyncio.to_thread(over.wait)

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(asyncio.run, work())
        try:
            wait_for(lambda: ready.is_set() or running.done())
            yield worker
        finally:
            over.set()
            running.result()
