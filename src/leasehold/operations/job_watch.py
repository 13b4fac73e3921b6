"""Those who wait for jobs: one thread for all of them and one read a look, whatever their number.

A waiter gives the mark of the job as it has seen it, and gets a future. The thread reads the marks of all jobs that are
waited for, a few times a second, and answers those whose job has another one. It is not woken: a bell that rings for
every settle would cost every plain job. It is started by the first waiter, and ends with the last.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore


logger = logging.getLogger("leasehold.jobs")

EVERY = 0.2
"""Seconds between two looks."""
GONE = ""
"""The mark of a job that is not there."""


class JobWatch:
    """Of one store in one process."""

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._waiters: dict[Future[None], tuple[str, str]] = {}
        """Each with the job, and the mark that it knows."""
        self._thread: threading.Thread | None = None
        self._left = threading.Event()

    def expect(self, job_id: str, mark: str) -> Future[None]:
        """Done as soon as the job's mark is another one. Does not block."""
        future: Future[None] = Future()
        with self._lock:
            self._waiters[future] = (job_id, mark)
            if self._thread is None:
                self._left.clear()
                self._thread = threading.Thread(target=self._run, name="leasehold job watch", daemon=True)
                self._thread.start()
        return future

    def drop(self, future: Future[None]) -> None:
        """The waiter has gone."""
        with self._lock:
            self._waiters.pop(future, None)
            if not self._waiters:
                self._left.set()

    def _run(self) -> None:
        while True:
            self._left.wait(EVERY)
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
            moved = [f for f, (job_id, mark) in self._waiters.items() if marks.get(job_id, GONE) != mark]
            for future in moved:
                del self._waiters[future]
        for future in moved:
            with contextlib.suppress(InvalidStateError):  # the waiter has just given up
                future.set_result(None)

    def _fail(self, error: Exception) -> None:
        """The database is away: whoever waits is told, and may wait again."""
        with self._lock:
            self._thread = None
            futures = list(self._waiters)
            self._waiters.clear()
        logger.debug("stopped watching jobs: %s", error)
        for future in futures:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)
