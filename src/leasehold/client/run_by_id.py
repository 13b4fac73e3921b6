"""`app.run_by_id`: runs one job in this process, by an id that another queue delivered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from typing import Any, Protocol

from leasehold.client.job import FindTask, Job
from leasehold.domain.checks.ids import checked_id
from leasehold.domain.checks.texts import checked_name
from leasehold.domain.checks.times import Duration, seconds
from leasehold.domain.errors import JobNotFound
from leasehold.domain.frozen import frozen
from leasehold.domain.poll import Poll
from leasehold.domain.records import RETRY_ELSEWHERE, NotRun
from leasehold.operations import jobs
from leasehold.operations.operations import Operations
from leasehold.threads import to_thread

FIRST_TRY_AFTER, SLOWEST_TRY_EVERY = 0.02, 1.0
SIGNALS_SEEN_WITHIN = 1.0


@frozen
class RunResult:
    """`run_by_id` ran the job, and stored how the attempt ended: see `job.state`. `retry_in`: seconds after which the
    job is due again, such as after a failure with a retry left. None: the job has ended, or waits for an answer or an
    operator, so a message that carried its id can be acknowledged."""

    job: Job[Any]
    retry_in: float | None

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return self.job.id


class Begun(Protocol):
    """An attempt that has begun."""

    @property
    def end(self) -> Future[None]: ...

    @property
    def stop(self) -> Callable[[], None]: ...

    @property
    def flush(self) -> Callable[[], None]: ...


OnRequest = Callable[[Future[Any]], None]
"""Called with the future of the attempt, before it begins."""
Start = Callable[[str, str | None, OnRequest], Begun | NotRun]


class RunById:
    """Claims jobs by id and waits for their ends. `start` claims a job under a worker's name and begins it here, or
    returns why it cannot."""

    def __init__(self, operations: Operations, find_task: FindTask, start: Start) -> None:
        self._operations = operations
        self._find_task = find_task
        self._start = start

    def run(self, job_id: str, worker: str | None, wait: Duration) -> RunResult | NotRun:
        call = _Call(self, job_id, worker, wait)
        try:
            while isinstance(begun := call.begin(), NotRun):
                if (pause := call.pause(begun)) is None:
                    return begun
                time.sleep(pause)
            _wait_for(begun.end)
        except BaseException:
            # Ctrl-C or a time limit ends the wait: the job must not run on without its caller.
            call.hand_back()
            raise
        return self.ended(call.id, begun)

    async def run_async(self, job_id: str, worker: str | None, wait: Duration) -> RunResult | NotRun:
        """Like `run`, but holds no thread while it waits."""
        call = _Call(self, job_id, worker, wait)
        while True:
            requested = asyncio.ensure_future(to_thread(call.begin))
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

    def begin(self, job_id: str, worker: str | None, on_request: OnRequest) -> Begun | NotRun:
        try:
            job = self._operations.call(jobs.get, job_id)
        except JobNotFound as missing:
            return NotRun(job_id, None, str(missing), None)
        if self._find_task(job.task) is None:
            return NotRun(job_id, job.state, f"no task is named {job.task!r} here", RETRY_ELSEWHERE)
        return self._start(job_id, worker, on_request)

    def ended(self, job_id: str, begun: Begun) -> RunResult:
        begun.flush()
        row = self._operations.call(jobs.get, job_id)
        job = Job[Any](row.id, self._operations, self._find_task, row)
        return RunResult(job, self._operations.claimable_in(row))


def _wait_for(end: Future[None]) -> None:
    # A signal just before a wait, or to another thread, does not end the wait, and Python handles it only after that.
    while not end.done():
        futures.wait((end,), SIGNALS_SEEN_WITHIN)
    end.result()


async def _hand_back(requested: asyncio.Future[Begun | NotRun]) -> None:
    """Stop the attempt that this request may have begun, even if its caller has no response yet."""
    begun = await requested
    if not isinstance(begun, NotRun):
        begun.stop()
        await asyncio.wrap_future(begun.end)


class _Call:
    """One call of `run_by_id`, sync or async: requests the attempt, and computes the pause before the next request."""

    def __init__(self, by_id: RunById, job_id: str, worker: str | None, wait: Duration) -> None:
        self.id = checked_id(job_id)
        self._by_id = by_id
        self._worker = None if worker is None else checked_name(worker, "worker")
        self._poll = Poll(FIRST_TRY_AFTER, SLOWEST_TRY_EVERY, time.monotonic, seconds(wait, "wait"))
        self._requested: Future[Begun] | None = None
        """The future of the attempt, known once the job is claimed, before it begins."""

    def begin(self) -> Begun | NotRun:
        return self._by_id.begin(self.id, self._worker, self._note)

    def _note(self, requested: Future[Begun]) -> None:
        self._requested = requested

    def hand_back(self) -> None:
        """Stop the attempt, which may have begun even if the request has not returned."""
        if self._requested is not None and self._requested.exception() is None:
            begun = self._requested.result()
            begun.stop()
            _wait_for(begun.end)

    def pause(self, answer: NotRun) -> float | None:
        """Seconds until the next request. None: waiting does not help, or the time is over."""
        return None if answer.retry_in is None else self._poll.pause(answer.retry_in)
