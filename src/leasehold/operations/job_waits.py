"""Waits for a job to change, without a thread per waiter."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from leasehold.domain.errors import JobNotFound
from leasehold.operations.arguments import checked_job_id
from leasehold.operations.job_watch import JobWatch
from leasehold.operations.local import LocalOperator
from leasehold.threads import to_thread

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore


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
        """Wait until the job has another mark, at most so long; False: the time is over. Holds no thread."""
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
