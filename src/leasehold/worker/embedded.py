"""The embedded worker of `run_now` and `run_by_id`: starts a job in this process at once, or refuses it.

The job goes through the same records as any other. The store decides and grants the lease (`Store.run_now`,
`Store.claim_by_id`). The attempt needs what a worker gives: renewals, steps, updates, time limits, settling, the drain.
So it gets a worker, in a thread with its own event loop, that claims nothing by itself and runs given jobs. The first
call starts the thread, and the app's end stops it. There is one per worker name, and one for calls without a name.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

from leasehold.domain.errors import AtCapacity, DatabaseUnreachable, InvalidInput, JobNotFound
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Enqueued, Grant, NewJob, Sighting
from leasehold.domain.records import NotRun
from leasehold.run.attempt import Attempt
from leasehold.stores.results import ClaimDenied, Full
from leasehold.worker.settings import WorkerSettings, new_worker_name
from leasehold.worker.worker import Worker

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

MOST_ATTEMPTS = 1000
"""Most attempts on the loop, and in threads. The caps decide; this is only a safety bound."""

THREAD_ENDS_WITHIN = 1.0
"""Seconds for the thread itself to end."""

MOST_LOOKS = 1000
"""Most first sightings to keep, of expired leases of jobs requested by id."""


def embedded_settings(grace: float | None, worker: str | None) -> WorkerSettings:
    return WorkerSettings(
        queues=(),
        claims=False,
        concurrency=MOST_ATTEMPTS,
        threads=MOST_ATTEMPTS,
        max_executions=MOST_ATTEMPTS,
        shutdown_grace=grace,
        prunes=False,
        name=worker or new_worker_name(),
    )


@frozen
class Begun:
    """An attempt that was started by its job's id."""

    end: Future[None]
    """Done when the database has the attempt's ending, or has given its lease to another worker."""
    stop: Callable[[], None]
    """Hand the job back, as a drain would. Callable from any thread."""
    flush: Callable[[], None]
    """Wait for the hooks that the attempt's end notified. Not on the loop."""


class EmbeddedWorker:
    """The embedded workers of one app. Thread-safe; a forked child starts its own."""

    def __init__(
        self, find_store: Callable[[], JobStore], make_worker: Callable[[str | None], Worker]
    ) -> None:
        self._find_store = find_store
        self._make_worker = make_worker
        self._start_anew()

    def _start_anew(self) -> None:
        self._pid = os.getpid()
        self._hosts: dict[str | None, _Host] = {}
        """Hosts by the worker name that the caller requested."""
        self._sightings = FirstSightings()
        self._starting = threading.Lock()

    def run(self, job: NewJob, max_running: int, store: JobStore | None = None) -> Enqueued:
        """Start the job, or raise AtCapacity. `created` is false if another job holds its unique key: the answer names
        that job. `store`: a part of the worker's store."""
        store = store or self._find_store()
        host = self._enter(None)
        try:
            sent_at = time.monotonic()
            answer = _decided(store, job, host.worker, max_running)
            if isinstance(answer, Full):
                raise AtCapacity(job.task, max_running, answer.holders, answer.retry_after)
            if isinstance(answer, Enqueued):
                return answer
            host.begin(answer, sent_at)
            return Enqueued(answer.id, created=True)
        finally:
            host.leave()

    def run_by_id(
        self,
        job_id: str,
        worker: str | None,
        on_request: Callable[[Future[Begun]], None],
        store: JobStore | None = None,
    ) -> Begun | NotRun:
        """Claim this job and begin it, or say why not. `on_request` gets the future of the attempt before it begins: an
        exception may interrupt the caller at any moment, and the caller must still know about the attempt."""
        store = store or self._find_store()
        host = self._enter(worker)
        try:
            if host.is_here:
                raise InvalidInput(
                    "run_by_id",
                    "would block the event loop that has to run the job",
                    "await app.arun_by_id(…)",
                )
            sent_at = time.monotonic()
            answer = self._claim(store, job_id, host)
            if isinstance(answer, ClaimDenied):
                return NotRun(job_id, answer.state, answer.why, answer.retry_in)
            return host.begin(answer, sent_at, on_request)
        finally:
            host.leave()

    def _claim(self, store: JobStore, job_id: str, host: _Host) -> Grant | ClaimDenied:
        try:
            return self._sightings.claim(store, job_id, host.worker, host.sites_for(store, job_id))
        except DatabaseUnreachable:
            # The job may have been granted, and only the reply was lost.
            mine = [grant for grant in store.find_leases_of(host.worker) if grant.id == job_id]
            if mine and not host.holds(job_id):
                return mine[0]
            return self._sightings.claim(store, job_id, host.worker, host.sites_for(store, job_id))

    def close(self) -> None:
        """Drain: running jobs get their grace; then they are stopped and settled. A later call starts new workers."""
        if self._pid != os.getpid():
            return
        with self._starting:
            hosts, self._hosts = list(self._hosts.values()), {}
            _living.discard(self)
        for host in hosts:
            if host.lives_here:
                host.close()

    def _enter(self, worker: str | None) -> _Host:
        if self._pid != os.getpid():
            # A fork copies the object, and the lock in the state that another thread left it.
            self._start_anew()
        with self._starting:
            host = self._hosts.get(worker)
            if host is None or not host.lives_here:
                host = _Host(self._make_worker(worker))
                host.start()
                self._hosts[worker] = host
                _living.add(self)
            host.enter()
            return host


class FirstSightings:
    """Keeps the first sighting of an expired lease for the next request of the same job: a takeover needs two."""

    def __init__(self) -> None:
        self._first: dict[str, Sighting] = {}

    def claim(
        self, store: JobStore, job_id: str, worker: str, sites: Sequence[str] = ()
    ) -> Grant | ClaimDenied:
        seen = self._first.pop(job_id, None)
        answer = store.claim_by_id(job_id, worker, sites, sighting=seen)
        if isinstance(answer, ClaimDenied) and answer.sighting is not None:
            return self._keep(answer, answer.sighting, seen)
        return answer

    def _keep(self, denied: ClaimDenied, sighting: Sighting, seen: Sighting | None) -> ClaimDenied:
        """Keep the first sighting: it counts, not the latest."""
        if seen is not None and (seen.token, seen.expires_at) == (sighting.token, sighting.expires_at):
            left = seen.lease_seconds / 3 - (sighting.seen_at - seen.seen_at)
            denied, sighting = replace(denied, retry_in=max(0.0, left)), seen
        while len(self._first) >= MOST_LOOKS:
            self._first.pop(next(iter(self._first)), None)
        self._first[denied.id] = sighting
        return denied


def _decided(store: JobStore, job: NewJob, worker: str, max_running: int) -> Grant | Full | Enqueued:
    try:
        return store.run_now(job, worker, max_running)
    except DatabaseUnreachable:
        # The job may have been granted, and only the reply was lost: the same call finds out.
        return store.run_now(job, worker, max_running)


class _Host:
    """The thread, its loop, and the worker on it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.worker = worker.settings.name
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
        """Whether the thread is alive: a fork copies the object, but not its thread."""
        return self._pid == os.getpid() and self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()
        self._ready.result()

    def enter(self) -> None:
        """Count a call under way: it may bring a lease, which the worker must still be able to take."""
        with self._quiet:
            self._calls += 1

    def leave(self) -> None:
        with self._quiet:
            self._calls -= 1
            self._quiet.notify_all()

    def sites_for(self, store: JobStore, job_id: str) -> list[str]:
        """The sites where the job's execution, if it has one, can be adopted: the claim may find its lease lost."""
        try:
            job = store.get(job_id)
        except JobNotFound:
            return []
        return self._worker.sites_of(job.task) if job.execution_site is not None else []

    def holds(self, job_id: str) -> bool:
        return job_id in self._worker.attempts.held

    def begin(
        self, grant: Grant, sent_at: float, on_request: Callable[[Future[Begun]], None] | None = None
    ) -> Begun:
        """Hold the lease and begin the attempt. Callable from any thread; on the loop's own thread it begins the
        attempt directly."""
        begun: Future[Begun] = Future()
        if on_request is not None:
            on_request(begun)
        if self.is_here:
            self._begin(grant, sent_at, begun)
        else:
            # In an empty context: an attempt must not see context variables of its caller.
            self._loop.call_soon_threadsafe(self._begin, grant, sent_at, begun, context=contextvars.Context())
        try:
            return begun.result()
        except BaseException:
            # Interrupted: no caller will wait for the attempt, or know about it.
            begun.add_done_callback(_stop_begun)
            raise

    @property
    def is_here(self) -> bool:
        """Whether the caller is an attempt on this loop."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        with self._quiet:
            self._quiet.wait_for(lambda: self._calls == 0)
        self._loop.call_soon_threadsafe(self._ending.set)
        try:
            self._ended.wait()
        except KeyboardInterrupt:
            # A user who interrupts the grace wants to end now: stop the attempts at once.
            self._loop.call_soon_threadsafe(self._worker.request_drain)
            self._ended.wait()
            raise
        finally:
            # Everything is settled by now. The loop itself may wait for ever, for a thread of a handler that hangs.
            self._thread.join(THREAD_ENDS_WITHIN)

    def _begin(self, grant: Grant, sent_at: float, begun: Future[Begun]) -> None:
        attempts = self._worker.attempts
        try:
            attempt = self._worker.starter.start_one(grant, sent_at)
            end = attempts.end_of(attempt)
        except BaseException as error:
            begun.set_exception(error)
        else:
            begun.set_result(Begun(end, lambda: self._stop(attempt), self._worker.hook_dispatcher.flush))

    def _stop(self, attempt: Attempt) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has just ended, and the attempt with it
            self._worker.attempts.stop(attempt, "drain")

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


def _stop_begun(begun: Future[Begun]) -> None:
    if begun.exception() is None:
        begun.result().stop()


_living: set[EmbeddedWorker] = set()
"""Embedded workers with a live thread: their jobs must be ended even if no code refers to the app any more."""


def _close_all() -> None:
    for one in list(_living):
        one.close()


# `atexit` is too late: by then the interpreter accepts no new work for its thread pools, which settle the last results.
# This runs before that, when the main thread has ended. concurrent.futures does the same, and is imported above, so
# that it runs after this.
threading._register_atexit(_close_all)  # type: ignore[attr-defined] # not in typeshed
