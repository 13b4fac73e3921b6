"""`app.run_by_id`: one job that somebody else has delivered the id of, run in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from leasehold.client.job import FindTask, Job
from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.ids import checked_id
from leasehold.domain.checks.names import checked_name
from leasehold.domain.errors import JobNotFound
from leasehold.domain.frozen import frozen
from leasehold.domain.poll import Poll
from leasehold.domain.run_by_id import ELSEWHERE, NotRun
from leasehold.operations.operations import Operations
from leasehold.threads import to_thread

SOONEST, LATEST = 0.02, 1.0


@frozen
class RunResult:
    """`run_by_id` has run the job, and the database has its ending: see `job.state`. `retry_in`: seconds after which it
    is due again, as after a failure that is retried; None: it is at rest, or waits for somebody's word, so a message
    that brought its id is done with."""

    job: Job[Any]
    retry_in: float | None

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return self.job.id


class Begun(Protocol):
    """A run that is under way."""

    @property
    def end(self) -> Future[None]: ...

    @property
    def stop(self) -> Callable[[], None]: ...

    @property
    def flush(self) -> Callable[[], None]: ...


OnAsked = Callable[[Future[Any]], None]
"""Told of what will be the run, before it is begun."""
Start = Callable[[str, str | None, OnAsked], Begun | NotRun]


class RunById:
    """`start` claims a job in the name of an owner and begins it here, or says why not."""

    def __init__(self, operations: Operations, find_task: FindTask, start: Start) -> None:
        self._operations = operations
        self._find_task = find_task
        self._start = start

    def run(self, job_id: str, worker: str | None, wait: Duration) -> RunResult | NotRun:
        call = _Call(self, job_id, worker, wait)
        try:
            while isinstance(begun := call.ask(), NotRun):
                if (pause := call.pause(begun)) is None:
                    return begun
                time.sleep(pause)
            begun.end.result()
        except BaseException:
            # Whoever waits has to leave, by Ctrl-C or a time limit of its own: nothing may be left behind.
            call.hand_back()
            raise
        return self.ended(call.id, begun)

    async def run_async(self, job_id: str, worker: str | None, wait: Duration) -> RunResult | NotRun:
        """Holds no thread while it waits."""
        call = _Call(self, job_id, worker, wait)
        while True:
            requested = asyncio.ensure_future(to_thread(call.ask))
            try:
                begun = await asyncio.shield(requested)
                if not isinstance(begun, NotRun):
                    await asyncio.shield(asyncio.wrap_future(begun.end))
                    return await to_thread(self.ended, call.id, begun)
                if (pause := call.pause(begun)) is None:
                    return begun
                await asyncio.sleep(pause)
            except asyncio.CancelledError:
                await _hand_back(requested)
                raise

    def begin(self, job_id: str, worker: str | None, on_request: OnAsked) -> Begun | NotRun:
        try:
            job = self._operations.get(job_id)
        except JobNotFound as missing:
            return NotRun(job_id, None, str(missing), None)
        if self._find_task(job.task) is None:
            return NotRun(job_id, job.state, f"no task is named {job.task!r} here", ELSEWHERE)
        return self._start(job_id, worker, on_request)

    def ended(self, job_id: str, begun: Begun) -> RunResult:
        begun.flush()
        row = self._operations.get(job_id)
        job = Job[Any](row.id, self._operations, self._find_task, row)
        return RunResult(job, self._operations.ask_again_in(row))


async def _hand_back(requested: asyncio.Future[Begun | NotRun]) -> None:
    """What was asked for may be under way though nobody has heard of it yet."""
    begun = await requested
    if not isinstance(begun, NotRun):
        begun.stop()
        await asyncio.wrap_future(begun.end)


class _Call:
    """One `run_by_id`, of either colour: asks, and says how long to wait before the next time."""

    def __init__(self, by_id: RunById, job_id: str, worker: str | None, wait: Duration) -> None:
        self.id = checked_id(job_id)
        self._by_id = by_id
        self._worker = None if worker is None else checked_name(worker, "worker")
        self._poll = Poll(SOONEST, LATEST, time.monotonic, seconds(wait, "wait"))
        self._requested: Future[Begun] | None = None
        """What will be the run, once there is a lease for it: known before it begins."""

    def ask(self) -> Begun | NotRun:
        return self._by_id.begin(self.id, self._worker, self._note)

    def _note(self, requested: Future[Begun]) -> None:
        self._requested = requested

    def hand_back(self) -> None:
        """It may have begun though we have not heard of it."""
        if self._requested is not None and self._requested.exception() is None:
            begun = self._requested.result()
            begun.stop()
            begun.end.result()

    def pause(self, answer: NotRun) -> float | None:
        """None: there is nothing to wait for, or no time."""
        return None if answer.retry_in is None else self._poll.pause(answer.retry_in)
