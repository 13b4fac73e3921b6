"""Workers inside the test's own process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from leasehold import Leasehold, Worker


def burst(app: Leasehold, **settings: Any) -> Worker:
    """Run what is due, and what becomes due by it, to its end."""
    worker = app.worker(burst=True, retention=None, **settings)
    asyncio.run(worker.run())
    return worker


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for a condition, not for a while."""
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)
