"""Run now: a job that starts in this process at once, or is refused, through the same records as any other.

The store decides and grants the lease (`Store.run_now`). The run itself needs what a worker gives: renewals, steps,
events, time limits, settling, the drain. So it gets a worker, in a thread with an event loop of its own, that claims
nothing by itself and runs what it is handed. The thread is started by the first call and ends with the app.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from leasehold.domain.errors import AtCapacity, DatabaseUnreachable
from leasehold.domain.job import Grant, NewJob
from leasehold.stores.answers import Enqueued, Full
from leasehold.stores.contract import Store
from leasehold.worker.settings import WorkerSettings
from leasehold.worker.worker import Worker

MOST_AT_ONCE = 1000
"""Attempts on the loop, and in threads. The caps decide; this only bounds what nobody has thought of."""

LAST_WORDS = 1.0
"""Seconds for the thread itself to end."""


def embedded_settings(grace: float | None) -> WorkerSettings:
    return WorkerSettings(
        queues=(), claims=False, concurrency=MOST_AT_ONCE, threads=MOST_AT_ONCE, grace=grace, retention=None
    )


class EmbeddedWorker:
    """Of one app. Safe to use from several threads."""

    def __init__(self, find_store: Callable[[], Store], make_worker: Callable[[], Worker]) -> None:
        self._find_store = find_store
        self._make_worker = make_worker
        self._host: _Host | None = None
        self._starting = threading.Lock()

    def run(self, job: NewJob, max_running: int) -> Enqueued:
        """Start it, or raise AtCapacity. `created` is false if another job holds its unique key: that one is named."""
        store = self._find_store()
        host = self._enter()
        try:
            sent_at = time.monotonic()
            answer = _decided(store, job, host.owner, max_running)
            if isinstance(answer, Full):
                raise AtCapacity(job.kind, max_running, answer.holders, answer.retry_after)
            if isinstance(answer, Enqueued):
                return answer
            host.begin(answer, sent_at)
            return Enqueued(answer.id, created=True)
        finally:
            host.leave()

    def close(self) -> None:
        """What runs gets its grace; then it is stopped and settled. A later call starts anew."""
        with self._starting:
            host, self._host = self._host, None
            _living.discard(self)
        if host is not None and host.lives_here:
            host.close()

    def _enter(self) -> _Host:
        with self._starting:
            host = self._host
            if host is None or not host.lives_here:
                host = _Host(self._make_worker())
                host.start()
                self._host = host
                _living.add(self)
            host.enter()
            return host


def _decided(store: Store, job: NewJob, owner: str, max_running: int) -> Grant | Full | Enqueued:
    try:
        return store.run_now(job, owner, max_running)
    except DatabaseUnreachable:
        # It may have been granted, and only the answer was lost: the same call finds that out.
        return store.run_now(job, owner, max_running)


class _Host:
    """The thread, its loop, and the worker on it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.owner = worker.settings.owner
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._live, name="leasehold-run-now", daemon=True)
        self._ready: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop
        self._ending: asyncio.Event
        self._calls = 0
        self._quiet = threading.Condition()
        self._ended = threading.Event()

    @property
    def lives_here(self) -> bool:
        """A fork takes the object along, but not its thread."""
        return self._pid == os.getpid() and self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()
        self._ready.result()

    def enter(self) -> None:
        """A call is under way: it may bring a lease, for which the worker must still be there."""
        with self._quiet:
            self._calls += 1

    def leave(self) -> None:
        with self._quiet:
            self._calls -= 1
            self._quiet.notify_all()

    def begin(self, grant: Grant, sent_at: float) -> None:
        """Hold the lease and begin the run. From any thread; from the loop's own without waiting for itself."""
        begun: Future[None] = Future()
        if threading.current_thread() is self._thread:
            self._begin(grant, sent_at, begun)
        else:
            # In an empty context: a run must not see what happens to be set where it was asked for.
            self._loop.call_soon_threadsafe(self._begin, grant, sent_at, begun, context=contextvars.Context())
        begun.result()

    def close(self) -> None:
        with self._quiet:
            self._quiet.wait_for(lambda: self._calls == 0)
        self._loop.call_soon_threadsafe(self._ending.set)
        try:
            self._ended.wait()
        except KeyboardInterrupt:
            # Whoever waits for the grace is in a hurry: the runs are stopped at once.
            self._loop.call_soon_threadsafe(self._worker.request_drain)
            self._ended.wait()
            raise
        finally:
            # Everything is settled by now. The loop itself may wait for ever, for a thread of a handler that hangs.
            self._thread.join(LAST_WORDS)

    def _begin(self, grant: Grant, sent_at: float, begun: Future[None]) -> None:
        try:
            self._worker.start(grant, sent_at)
        except BaseException as error:
            begun.set_exception(error)
        else:
            begun.set_result(None)

    def _live(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        try:
            async with self._worker:
                self._ready.set_result(None)
                await self._ending.wait()
        finally:
            self._ended.set()


_living: set[EmbeddedWorker] = set()
"""Those with a live thread: what they run must be ended even if nobody holds the app any more."""


def _close_all() -> None:
    for one in list(_living):
        one.close()


# `atexit` would be too late: by then the interpreter takes no new work for its thread pools, through which the last
# results are settled. This runs before that, when the main thread has ended. concurrent.futures does the same, and is
# imported above, so that its turn comes after ours.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]
