"""Waits for jobs: one thread and one read at a time for all waiters, whatever their number.

A waiter gives the mark of the job that it has seen, and gets a future. The thread reads the marks of all awaited jobs a
few times a second, and answers waiters whose job has another mark. There is no notification: one per settle would slow
down every plain job. The first waiter starts the thread, and it ends with the last.
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

POLL_EVERY = 0.2
"""Seconds between two reads."""
GONE = ""
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
        """Return a future, done as soon as the job has another mark. Does not block."""
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
            changed = [f for f, (job_id, mark) in self._waiters.items() if marks.get(job_id, GONE) != mark]
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
