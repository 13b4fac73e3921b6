"""Watching a job: its events and its changes of state, in order, from any process, resumable.

A watcher looks again and again: one indexed read a look, often while things happen and less often while they do not.
It is not woken: a bell that rings for every event would wake every worker as well.
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
SOONEST, LATEST = 0.1, 1.0
AT_REST = frozenset({State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED})

FIRST_LOOK, SLOWEST_LOOK = 0.02, 0.5
"""Seconds between two looks of one who waits for a result."""

Read = Callable[[str, int, int], UpdatePage]


class Watch:
    """One watcher's place in the stream. `look` reads; `pause` says how long to wait before the next look."""

    def __init__(self, job_id: str, read: Read, since: int, timeout: float | None) -> None:
        self._job_id = job_id
        self._read = read
        self._since = since
        self._timeout = timeout
        self._poll = Poll(SOONEST, LATEST, time.monotonic, timeout)
        self._reported: tuple[State, int] | None = None
        self.pause = 0.0
        self.over = False
        """The job has come to rest, and everything was shown."""

    def look(self) -> list[Update]:
        seen = self._read(self._job_id, self._since, PAGE)
        events = list(seen.updates)
        if events:
            self._since = events[-1].seq
        if len(seen.updates) == PAGE:
            # More may be there: the state comes behind all that was stored before it.
            self.pause = 0.0
            return events
        now = (seen.state, seen.attempt)
        if now != self._reported:
            self._reported = now
            data = {"state": seen.state.value, "attempt": seen.attempt}
            events.append(Update(self._since, STATE, data, attempt=seen.attempt))
        self.over = seen.state in AT_REST
        if events:
            self._poll.again()
        if not self.over:
            self._wait(seen.state)
        return events

    def _wait(self, state: State) -> None:
        pause = self._poll.pause()
        if pause is None:
            raise WaitTimedOut(self._job_id, self._timeout or 0.0, state.value)
        self.pause = pause


class WatchOperations(LocalOperator):
    """What waits for one job, by looking again and again."""

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
        poll = Poll(FIRST_LOOK, SLOWEST_LOOK, time.monotonic, timeout)
        while (row := self.call(jobs.get, job_id)).state not in AT_REST:
            time.sleep(_pause(poll, row, timeout))
        return row, self._result_of(row)

    async def aended(self, job_id: str, timeout: float | None) -> tuple[Job, str | None]:
        poll = Poll(FIRST_LOOK, SLOWEST_LOOK, time.monotonic, timeout)
        while (row := await to_thread(self.call, jobs.get, job_id)).state not in AT_REST:
            await asyncio.sleep(_pause(poll, row, timeout))
        return row, row.result if row.result_ref is None else await to_thread(self._result_of, row)

    def _result_of(self, row: Job) -> str | None:
        return self.result_text(row) if row.state is State.SUCCEEDED else None

    def result_text(self, job: Job) -> str | None:
        """Encoded JSON, from the row or from its file. Raises ResultMissing."""
        return job.result if job.result_ref is None else self._store.read_result(job.id, job.result_ref)


def _pause(poll: Poll, row: Job, timeout: float | None) -> float:
    pause = poll.pause()
    if pause is None:
        raise WaitTimedOut(row.id, timeout or 0.0, row.state.value)
    return pause
