"""Hooks in a worker: called whoever made the move, again after trouble, and not at all where nobody listens."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable

import pytest

from leasehold import Leasehold
from leasehold.domain.states import State
from leasehold.errors import InvalidInput
from leasehold.operations import webhooks
from leasehold.operations.doctor import examine
from leasehold.types import Fail, Notification
from tests.backends import Backend
from tests.workers import burst


def test_successes_are_told_to_who_listens_for_that_kind(app: Leasehold, backend: Backend):
    received: list[Notification] = []
    app.on("succeeded", tasks=["loud"])(received.append)

    @app.task
    async def loud() -> None: ...

    @app.task
    async def quiet() -> None: ...

    job = loud.enqueue()
    quiet.enqueue()
    burst(app)
    assert [(event.name, event.job_id, event.task) for event in received] == [("succeeded", job.id, "loud")]
    assert backend.query("SELECT count(*) FROM leasehold.outbox") == [(0,)]


def test_a_running_worker_hears_of_what_another_process_does(app: Leasehold, backend: Backend):
    received: queue.SimpleQueue[Notification] = queue.SimpleQueue()
    app.on("cancelled")(received.put)

    @app.task
    def work() -> None: ...

    async def serve() -> Notification:
        async with app.worker(queues="elsewhere", retention=None):
            with Leasehold(backend.url, schema=backend.schema) as other:
                await asyncio.to_thread(other.get(job.id).cancel, "no need")
            return await asyncio.to_thread(received.get, True, 30)

    job = work.enqueue()
    event = asyncio.run(serve())
    assert (event.job_id, event.detail) == (job.id, "no need")


def test_a_hook_that_fails_is_called_again_with_the_same_id(app: Leasehold, caplog: pytest.LogCaptureFixture):
    received: list[Notification] = []
    twice = threading.Event()

    @app.on("failed")
    def receive(event: Notification) -> None:
        received.append(event)
        if len(received) == 1:
            raise RuntimeError("not now")
        twice.set()

    @app.task
    def work() -> None:
        raise Fail("broken")

    work.enqueue()

    async def serve() -> None:
        async with app.worker(retention=None):
            assert await asyncio.to_thread(twice.wait, 20)

    asyncio.run(serve())
    assert len({event.id for event in received}) == 1
    assert "again in 1 s" in caplog.text


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [ValueError("half a pair: \ud800, and \x00"), Unspeakable()])
def test_a_hook_may_fail_with_any_text_and_holds_up_no_other(
    app: Leasehold, backend: Backend, error: Exception, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("CRITICAL", "leasehold.hooks")  # xdist cannot carry half a pair in a captured log
    received: list[str] = []

    @app.on("failed")
    def receive(event: Notification) -> None:
        received.append(event.job_id)
        if len(received) == 1:
            raise error

    @app.task
    def work() -> None:
        raise Fail("broken")

    jobs = [work.enqueue() for _ in range(3)]
    burst(app)
    assert sorted(received) == sorted(job.id for job in jobs)
    ((left,),) = backend.query("SELECT error FROM leasehold.outbox")
    assert type(error).__name__ in left


def test_the_host_of_run_now_calls_hooks_too(app: Leasehold):
    received: queue.SimpleQueue[Notification] = queue.SimpleQueue()
    app.on("succeeded")(received.put)

    @app.task(max_running=1)
    async def work() -> int:
        return 1

    job = app.run_now(work)
    assert job.result(timeout=30) == 1
    assert received.get(timeout=30).job_id == job.id


def test_the_doctor_counts_what_was_given_up(app: Leasehold):
    store = app.__internals__.store
    app.on("cancelled", name="mine")(print)

    @app.task
    def work() -> None: ...

    burst(app, queues="elsewhere")
    work.enqueue().cancel()
    (taken,) = store.take_events(["mine"], 10, 60.0)
    store.retry_event(taken.event.id, None, "no use")
    (found,) = [finding for finding in examine(store) if finding.check == "hooks"]
    assert found.verdict == "warn"
    assert "cancelled to mine: no use" in found.detail


def test_two_functions_of_one_name_are_two_listeners(app: Leasehold):
    received: list[str] = []

    def make(text: str) -> Callable[[Notification], None]:
        def hook(event: Notification) -> None:
            received.append(text)

        return hook

    app.on("cancelled")(make("a"))
    app.on("cancelled")(make("b"))

    @app.task
    def work() -> None: ...

    burst(app, queues="elsewhere")
    job = work.enqueue()
    job.cancel()
    burst(app, queues="elsewhere")
    assert job.refresh().state is State.CANCELLED
    assert sorted(received) == ["a", "b"]


def test_what_a_hook_may_wait_for_is_checked(app: Leasehold):
    with pytest.raises(InvalidInput, match="'lane_halted'"):
        app.on("halted")
    with pytest.raises(InvalidInput, match="tasks"):
        app.on("failed", tasks=[""])(print)


def test_a_worker_without_hooks_registers_nothing(app: Leasehold):
    @app.task
    def work() -> None: ...

    work.enqueue()
    burst(app)
    assert app.__internals__.store.list_listeners() == []


def test_a_listener_can_be_removed_by_hand(app: Leasehold):
    app.on("failed", name="mine")(print)

    @app.task
    def work() -> None: ...

    burst(app)
    operations = app.__internals__.operations
    operations.call(webhooks.remove_listener, "mine")
    with pytest.raises(InvalidInput, match="mine"):
        operations.call(webhooks.remove_listener, "mine")
