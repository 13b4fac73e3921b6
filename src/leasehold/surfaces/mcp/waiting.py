"""Waiting for a job without holding a thread."""

from __future__ import annotations

import time
from typing import Any

from leasehold.domain.states import State
from leasehold.operations.watch import AT_REST
from leasehold.surfaces.guard.callers import Caller
from leasehold.threads import to_thread
from leasehold.types import Job

SETTLED = AT_REST | {State.WAITING, State.PAUSED}
"""States that a job does not leave by itself."""


async def settled(caller: Caller, id: str, seconds: float) -> Job[Any]:
    """The job, as soon as it has ended, waits or is paused, or when the time is over."""
    until = time.monotonic() + seconds
    while True:
        mark = await to_thread(caller.operations.job_mark, id) if seconds else None
        job = await to_thread(caller.job, id)
        left = until - time.monotonic()
        if job.state in SETTLED or left <= 0 or mark is None:
            return job
        await caller.operations.await_job(job.id, mark, left)
