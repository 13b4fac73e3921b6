"""Watches a job: its updates and changes of state, in order, from any process, resumable.

A watcher polls, with one indexed read each time, often while updates come and less often while they do not. There is no
notification: one for every update would wake every worker as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator

from leasehold.domain.errors import WaitTimedOut
from leasehold.domain.job import Job
from leasehold.domain.poll import Poll
from leasehold.domain.states import State
from leasehold.domain.stream import STATE, Update, UpdatePage
from leasehold.operations import jobs
from leasehold.operations.local import LocalOperator
from leasehold.threads import to_thread

PAGE = 500
FIRST_READ_AFTER, SLOWEST_READ_EVERY = 0.1, 1.0
AT_REST = frozenset({State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED})

RESULT_FIRST_AFTER, RESULT_SLOWEST_EVERY = 0.02, 0.5
"""Seconds between two reads of a job whose result is awaited."""

Read = Callable[[str, int, int], UpdatePage]


class Watch:
    """A watcher's position in the stream. `look` reads; `pause` is the time to wait before the next `look`."""

    def __init__(self, job_id: str, read: Read, since: int, timeout: float | None) -> None:
        self._job_id = job_id
        self._read = read
        self._since = since
        self._timeout = timeout
        self._poll = Poll(FIRST_READ_AFTER, SLOWEST_READ_EVERY, time.monotonic, timeout)
        self._reported: tuple[State, int] | None = None
        self.pause = 0.0
        self.over = False
        """Whether the job has ended and every update was returned."""

    def look(self) -> list[Update]:
        seen = self._read(self._job_id, self._since, PAGE)
        updates = list(seen.updates)
        if updates:
            self._since = updates[-1].seq
        if len(seen.updates) == PAGE:
            # There may be more updates: the state comes after all that were stored before it.
            self.pause = 0.0
            return updates
        now = (seen.state, seen.attempt)
        if now != self._reported:
            self._reported = now
            data = {"state": seen.state.value, "attempt": seen.attempt}
            updates.append(Update(self._since, STATE, data, attempt=seen.attempt))
        self.over = seen.state in AT_REST
        if updates:
            self._poll.again()
        if not self.over:
            self._wait(seen.state)
        return updates

    def _wait(self, state: State) -> None:
        pause = self._poll.pause()
        if pause is None:
            raise WaitTimedOut(self._job_id, self._timeout or 0.0, state.value)
        self.pause = pause


class WatchOperations(LocalOperator):
    """The methods that wait for one job, by polling."""

    def updates(self, job_id: str, since: int, timeout: float | None) -> Iterator[Update]:
        watch = self._watch(job_id, since, timeout)
        while not watch.over:
            yield from watch.look()
            if not watch.over:
                time.sleep(watch.pause)

    async def aupdates(self, job_id: str, since: int, timeout: float | None) -> AsyncIterator[Update]:
        watch = self._watch(job_id, since, timeout)
        while not watch.over:
            for update in await to_thread(watch.look):
                yield update
            if not watch.over:
                await asyncio.sleep(watch.pause)

    def _watch(self, job_id: str, since: int, timeout: float | None) -> Watch:
        return Watch(job_id, lambda *place: self.call(jobs.read_stream, *place), since, timeout)

    def ended(self, job_id: str, timeout: float | None) -> tuple[Job, str | None]:
        poll = Poll(RESULT_FIRST_AFTER, RESULT_SLOWEST_EVERY, time.monotonic, timeout)
        while (row := self.call(jobs.get, job_id)).state not in AT_REST:
            time.sleep(_pause(poll, row, timeout))
        return row, self._result_of(row)

    async def aended(self, job_id: str, timeout: float | None) -> tuple[Job, str | None]:
        poll = Poll(RESULT_FIRST_AFTER, RESULT_SLOWEST_EVERY, time.monotonic, timeout)
        while (row := await to_thread(self.call, jobs.get, job_id)).state not in AT_REST:
            await asyncio.sleep(_pause(poll, row, timeout))
        return row, row.result if row.result_ref is None else await to_thread(self._result_of, row)

    def _result_of(self, row: Job) -> str | None:
        return self.result_text(row) if row.state is State.SUCCEEDED else None

    def result_text(self, job: Job) -> str | None:
        """Return the result as encoded JSON, from the row or from its file. Raises ResultMissing."""
        return job.result if job.result_ref is None else self._store.read_result(job.id, job.result_ref)


def _pause(poll: Poll, row: Job, timeout: float | None) -> float:
    pause = poll.pause()
    if pause is None:
        raise WaitTimedOut(row.id, timeout or 0.0, row.state.value)
    return pause
