"""A stop reaches whoever runs the job at once: the heartbeat, here a minute, is only the floor. On both stores."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from leasehold import Context, Leasehold, State, SyncContext
from leasehold.domain.states import Flag
from leasehold.operations import jobs
from leasehold.stores.database.wakeups import Hint, listen_here
from leasehold.stores.store import JobStore
from tests.backends import put
from tests.workers import until

LEASE = 180.0
SOON = 12.0
"""Seconds, on a machine with much else to do. The heartbeat is five times as long."""
PATIENCE = 20.0


class Handlers:
    """Tasks that run until they are stopped, and tell when they begin and when they are stopped."""

    def __init__(self, app: Leasehold) -> None:
        self.began = threading.Event()
        self.stopped_at = 0.0
        self.ended = threading.Event()

        @app.task(max_running=9, lease=LEASE)
        async def on_loop(ctx: Context) -> None:
            self.began.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.notify()

        @app.task(max_running=9, lease=LEASE)
        def in_thread(ctx: SyncContext) -> None:
            self.began.set()
            try:
                ctx.wait(PATIENCE)
            finally:
                self.notify()

        self.tasks: dict[str, Any] = {"on_loop": on_loop, "in_thread": in_thread}

    def notify(self) -> None:
        self.stopped_at = time.monotonic()
        self.ended.set()


@pytest.fixture
def handlers(app: Leasehold) -> Handlers:
    return Handlers(app)


def verbs(app: Leasehold) -> dict[str, Callable[[Any], object]]:
    return {
        "cancel": lambda job: job.cancel(),
        "pause": lambda job: job.pause(),
        "stop": lambda job: app.group("g").stop(mode="immediate"),
        "stop_in_full": lambda job: app.stop(tasks=[job.task], mode="full"),
    }


@pytest.mark.parametrize("verb", ["cancel", "pause", "stop", "stop_in_full"])
@pytest.mark.parametrize("task", ["on_loop", "in_thread"])
def test_a_running_handler_is_stopped_long_before_the_next_heartbeat(
    app: Leasehold, handlers: Handlers, verb: str, task: str
):
    async def scenario() -> None:
        job = handlers.tasks[task].using(group="g").enqueue()
        async with app.worker(retention=None, shutdown_grace=0):
            assert await asyncio.to_thread(handlers.began.wait, PATIENCE)
            asked_at = time.monotonic()
            await asyncio.to_thread(verbs(app)[verb], job)
            assert await asyncio.to_thread(handlers.ended.wait, PATIENCE)
            assert handlers.stopped_at - asked_at < SOON
            wanted = State.PAUSED if verb == "pause" else State.CANCELLED
            await until(lambda: job.refresh().state is wanted)

    asyncio.run(scenario())


def test_a_worker_learns_at_once_that_its_run_shall_be_the_last(app: Leasehold, handlers: Handlers):
    async def scenario() -> None:
        job = handlers.tasks["on_loop"].using(group="g").enqueue()
        async with app.worker(retention=None, shutdown_grace=0) as worker:
            assert await asyncio.to_thread(handlers.began.wait, PATIENCE)
            run = worker.attempts.held[job.id]
            asked_at = time.monotonic()
            stopping = asyncio.create_task(app.group("g").astop(mode="graceful", wait=0))
            await until(lambda: run.flag is Flag.FINISH)
            assert time.monotonic() - asked_at < SOON
            await stopping
            assert not handlers.ended.is_set(), "it may end in its own time"
            await job.acancel()
            assert await asyncio.to_thread(handlers.ended.wait, PATIENCE), "the stronger flag is heard too"

    asyncio.run(scenario())


def test_a_run_that_was_started_at_once_is_stopped_at_once(app: Leasehold, handlers: Handlers):
    for task in ("on_loop", "in_thread"):
        handlers.began.clear()
        handlers.ended.clear()
        job = app.run_now(handlers.tasks[task])
        assert handlers.began.wait(PATIENCE)
        asked_at = time.monotonic()
        job.cancel()
        assert handlers.ended.wait(PATIENCE)
        assert handlers.stopped_at - asked_at < SOON


def test_a_run_that_was_started_at_once_hears_those_who_cannot_ring(app: Leasehold, handlers: Handlers):
    """Its host listens to nobody: while it holds a run, it looks."""
    job = app.run_now(handlers.tasks["on_loop"])
    assert handlers.began.wait(PATIENCE)
    asked_at = time.monotonic()
    app.__internals__.store.cancel(job.id)  # the store's verb rings no bell
    assert handlers.ended.wait(PATIENCE)
    assert handlers.stopped_at - asked_at < SOON


def test_flags_are_read_by_number_and_token(store: JobStore):
    flagged, other_one, ended = (put(store) for _ in range(3))
    grants = {grant.id: grant for grant in store.claim("worker-1", ["default"], 3)}
    leases = {grant.id: (grant.seq, grant.token) for grant in grants.values()}
    assert store.read_stop_requests(leases) == {}
    assert store.read_stop_requests({}) == {}
    store.cancel(flagged.id)
    store.pause(ended.id)
    assert store.read_stop_requests(leases) == {flagged.id: Flag.CANCEL, ended.id: Flag.PAUSE}
    assert store.read_stop_requests({flagged.id: (grants[flagged.id].seq, 7)}) == {}, "another's lease"
    assert store.read_stop_requests({other_one.id: (grants[other_one.id].seq, 1)}) == {}


def test_a_snooze_wakes_the_workers(app: Leasehold, handlers: Handlers):
    """One that sleeps until the old due time would come too late for an earlier one."""
    job = put(app.__internals__.store, delay=3600.0)
    listener = listen_here(app.__internals__.store.label)
    app.__internals__.operations.call(jobs.snooze, job.id, until=datetime(2000, 1, 1, tzinfo=UTC))
    assert listener.wait(PATIENCE) & Hint.WORK


def test_hints_come_with_what_they_are_about(app: Leasehold, handlers: Handlers):
    listener = listen_here(app.__internals__.store.label)
    app.__internals__.store.notify_holders()
    assert listener.wait(PATIENCE) == Hint.STOP
    app.__internals__.store.notify_workers()
    app.__internals__.store.notify_holders()
    assert listener.wait(PATIENCE) == Hint.WORK | Hint.STOP
    assert not listener.wait(0)
