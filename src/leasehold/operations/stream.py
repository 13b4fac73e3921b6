"""Watches jobs: yields updates and changes of state in order, and waits for many jobs with one thread and one read.

A watcher polls, with one indexed read each time, often while updates come and less often while they do not. There is no
notification: one for every update would wake every worker as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING

from leasehold.domain.errors import JobNotFound, WaitTimedOut
from leasehold.domain.job import Job
from leasehold.domain.poll import Poll
from leasehold.domain.states import ENDED, State
from leasehold.domain.stream import STATE, Update, UpdatePage
from leasehold.operations import jobs
from leasehold.operations.arguments import checked_job_id
from leasehold.operations.local import LocalOperator
from leasehold.threads import to_thread

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

PAGE = 500
FIRST_READ_AFTER, SLOWEST_READ_EVERY = 0.1, 1.0

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
            # There may be more updates; the state is reported after every update stored before it.
            self.pause = 0.0
            return updates
        now = (seen.state, seen.attempt)
        if now != self._reported:
            self._reported = now
            data = {"state": seen.state.value, "attempt": seen.attempt}
            updates.append(Update(self._since, STATE, data, attempt=seen.attempt))
        self.over = seen.state in ENDED
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
        watch = self.watch(job_id, since, timeout)
        while not watch.over:
            yield from watch.look()
            if not watch.over:
                if watch.pause:
                    self._check_wait(f"job {job_id}")
                time.sleep(watch.pause)

    async def aupdates(self, job_id: str, since: int, timeout: float | None) -> AsyncIterator[Update]:
        watch = self.watch(job_id, since, timeout)
        while not watch.over:
            for update in await to_thread(watch.look):
                yield update
            if not watch.over:
                await asyncio.sleep(watch.pause)

    def watch(self, job_id: str, since: int, timeout: float | None) -> Watch:
        """Return a watcher of the job's updates from `since` on; the caller polls it."""
        return Watch(job_id, lambda *place: self.call(jobs.read_stream, *place), since, timeout)

    def ended(self, job_id: str, timeout: float | None) -> tuple[Job, str | None]:
        poll = Poll(RESULT_FIRST_AFTER, RESULT_SLOWEST_EVERY, time.monotonic, timeout)
        while (row := self.call(jobs.get, job_id)).state not in ENDED:
            pause = _pause(poll, row, timeout)
            self._check_wait(f"job {job_id}")
            time.sleep(pause)
        return row, self._result_of(row)

    async def aended(self, job_id: str, timeout: float | None) -> tuple[Job, str | None]:
        poll = Poll(RESULT_FIRST_AFTER, RESULT_SLOWEST_EVERY, time.monotonic, timeout)
        while (row := await to_thread(self.call, jobs.get, job_id)).state not in ENDED:
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


# -- one thread for all waiters ----------------------------------------------------------------------------------------
# A waiter gives the mark of the job that it has seen, and gets a future. The thread reads the marks of all awaited jobs
# a few times a second, and answers waiters whose job has another mark. There is no notification: one per settle would
# slow down every plain job. The first waiter starts the thread, and it ends with the last.

logger = logging.getLogger("leasehold.jobs")

POLL_EVERY = 0.2
"""Seconds between two reads."""
GONE_MARK = ""
"""The mark of a job that does not exist."""


class JobWatch:
    """Watches the jobs of one store, in one process."""

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._waiters: dict[Future[None], tuple[str, str]] = {}
        """Each waiter, with its job and the mark that it has seen."""
        self._thread: threading.Thread | None = None
        self._no_waiters = threading.Event()

    def expect(self, job_id: str, mark: str) -> Future[None]:
        """Return a future that is done once the job has another mark. Does not block."""
        future: Future[None] = Future()
        with self._lock:
            self._waiters[future] = (job_id, mark)
            if self._thread is None:
                self._no_waiters.clear()
                self._thread = threading.Thread(target=self._run, name="leasehold job watch", daemon=True)
                self._thread.start()
        return future

    def drop(self, future: Future[None]) -> None:
        """Remove a waiter."""
        with self._lock:
            self._waiters.pop(future, None)
            if not self._waiters:
                self._no_waiters.set()

    def _run(self) -> None:
        while True:
            self._no_waiters.wait(POLL_EVERY)
            with self._lock:
                if not self._waiters:
                    self._thread = None
                    return
                ids = sorted({job_id for job_id, _ in self._waiters.values()})
            try:
                marks = self.store.mark_jobs(ids)
            except Exception as error:
                self._fail(error)
                return
            self._answer(marks)

    def _answer(self, marks: dict[str, str]) -> None:
        with self._lock:
            changed = [
                f for f, (job_id, mark) in self._waiters.items() if marks.get(job_id, GONE_MARK) != mark
            ]
            for future in changed:
                del self._waiters[future]
        for future in changed:
            with contextlib.suppress(InvalidStateError):  # the waiter has just left
                future.set_result(None)

    def _fail(self, error: Exception) -> None:
        """Pass a database error to all waiters, who may wait again."""
        with self._lock:
            self._thread = None
            futures = list(self._waiters)
            self._waiters.clear()
        logger.debug("stopped watching jobs: %s", error)
        for future in futures:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)


# -- waiting -----------------------------------------------------------------------------------------------------------


class JobWaits(LocalOperator):
    _job_watch: JobWatch | None = None

    def job_mark(self, job_id: str) -> str:
        """Return a mark of the job's present state, for `await_job`. Raises JobNotFound."""
        job_id = checked_job_id(job_id)
        mark = self._store.mark_jobs([job_id]).get(job_id)
        if mark is None:
            raise JobNotFound(job_id)
        return mark

    async def await_job(self, job_id: str, mark: str, seconds: float) -> bool:
        """Wait until the job has another mark, at most `seconds`. False: the time is over. Holds no thread."""
        watch = self._watch_of_jobs(await to_thread(lambda: self._store))
        future = watch.expect(checked_job_id(job_id), mark)
        try:
            await asyncio.wait_for(asyncio.wrap_future(future), seconds)
        except TimeoutError:
            return False
        finally:
            watch.drop(future)
        return True

    def _watch_of_jobs(self, store: JobStore) -> JobWatch:
        """Return the watch that all waiters share; a new one after a fork or for another store."""
        watch = self._job_watch
        if watch is None or watch.store is not store or watch.pid != os.getpid():
            watch = self._job_watch = JobWatch(store)
        return watch
