"""Hooks in a worker: called whoever made the move, again after trouble, and not at all where nobody listens."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable

import pytest

from leasehold import Leasehold
from leasehold.domain.states import State
from leasehold.errors import InvalidInput, StoreError
from leasehold.operations import webhooks
from leasehold.operations.doctor import examine
from leasehold.types import Fail, Notification
from leasehold.worker import hooks
from tests.backends import Backend
from tests.workers import burst, until


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


# --- a hook that hangs ----------------------------------------------------------------------------------------------


class Hanging:
    """A hook that does not return until it is let go."""

    def __init__(self, app: Leasehold) -> None:
        self.received: list[str] = []
        self.begun = threading.Event()
        self.go_on = threading.Event()
        app.on("cancelled", name="a hook that hangs")(self.hang)

        @app.task
        def work() -> None: ...

        self._work = work

    def cancel_many(self, number: int) -> list[str]:
        jobs = [self._work.enqueue() for _ in range(number)]
        for job in jobs:
            job.cancel()
        return [job.id for job in jobs]

    def hang(self, event: Notification) -> None:
        self.begun.set()
        assert self.go_on.wait(60)
        self.received.append(event.job_id)


def test_a_hook_that_hangs_holds_up_no_other_hook_and_gets_its_events_in_order_afterwards(
    app: Leasehold, backend: Backend
):
    hanging = Hanging(app)
    received: list[str] = []

    @app.on("cancelled", name="z: called after the other")
    def receive(event: Notification) -> None:
        received.append(event.job_id)

    async def serve() -> None:
        async with app.worker(queues="elsewhere", retention=None):
            ids = await asyncio.to_thread(hanging.cancel_many, 45)
            await until(lambda: len(received) == 45)
            assert (received, hanging.received) == (ids, [])
            hanging.go_on.set()
            await until(lambda: len(hanging.received) == 45)
            assert hanging.received == ids

    asyncio.run(serve())
    assert backend.query("SELECT count(*) FROM leasehold.outbox") == [(0,)]


def test_the_events_behind_a_stuck_call_go_to_other_workers_and_the_worker_says_what_is_stuck(
    app: Leasehold, backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "leasehold.hooks")
    monkeypatch.setattr(hooks, "LONGEST_CALL", 0.5)
    hanging = Hanging(app)
    elsewhere = backend.open()
    taken: list[str] = []

    def take() -> int:
        taken.extend(one.event.job_id for one in elsewhere.take_events(["a hook that hangs"], 10, 60.0))
        return len(taken)

    burst(app, queues="elsewhere")
    ids = hanging.cancel_many(3)

    async def serve() -> None:
        async with app.worker(queues="elsewhere", retention=None) as worker:
            await until(lambda: worker.health().problems)
            health = worker.health()
            assert health.ok
            assert ["a hook that hangs has not returned" in problem for problem in health.problems] == [True]
            await until(lambda: take() == 2)
            hanging.go_on.set()
            await until(lambda: not worker.health().problems)
            assert sorted(hanging.received + taken) == sorted(ids)

    asyncio.run(serve())
    log = [record.message for record in caplog.records if "hook a hook that hangs" in record.message]
    assert ["has not returned" in log[0], "has returned after" in log[1], len(log)] == [True, True, 2]


def test_a_worker_ends_though_a_hook_hangs_and_its_event_stays(
    app: Leasehold, backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(hooks, "ENDS_WITHIN", 0.2)
    hanging = Hanging(app)

    async def serve() -> None:
        async with app.worker(queues="elsewhere", retention=None):
            await asyncio.to_thread(hanging.cancel_many, 3)
            assert await asyncio.to_thread(hanging.begun.wait, 20)

    asyncio.run(serve())
    assert hanging.received == []
    assert "left hook a hook that hangs" in caplog.text
    tries = backend.query("SELECT tries FROM leasehold.outbox ORDER BY tries")
    assert tries == [(0,), (0,), (1,)], (
        "two were given back, and the one under way is due again when its time is over"
    )
    hanging.go_on.set()


def test_a_burst_delivers_all_events_as_long_as_its_hooks_return(
    app: Leasehold, backend: Backend, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hooks, "DELIVERY_BATCH", 2)
    received: list[str] = []
    app.on("cancelled")(lambda event: received.append(event.job_id))
    app.on("cancelled", name="again")(lambda event: received.append(event.job_id))

    @app.task
    def work() -> None: ...

    burst(app, queues="elsewhere")
    jobs = [work.enqueue() for _ in range(15)]
    for job in jobs:
        job.cancel()
    burst(app, queues="elsewhere")
    assert sorted(received) == sorted(2 * [job.id for job in jobs])
    assert backend.query("SELECT count(*) FROM leasehold.outbox") == [(0,)]


def test_what_the_database_did_not_take_about_a_call_is_not_a_second_call(
    app: Leasehold, backend: Backend, monkeypatch: pytest.MonkeyPatch
):
    store = app.__internals__.store
    drop, fails = store.drop_events, [StoreError("away"), StoreError("still away")]

    def drop_events(ids: list[str]) -> None:
        if fails:
            raise fails.pop()
        drop(ids)

    monkeypatch.setattr(store, "drop_events", drop_events)
    received: list[str] = []
    app.on("cancelled")(lambda event: received.append(event.job_id))

    @app.task
    def work() -> None: ...

    async def serve() -> None:
        async with app.worker(queues="elsewhere", retention=None):
            job = await work.aenqueue()
            await job.acancel()
            await until(lambda: received and backend.query("SELECT count(*) FROM leasehold.outbox") == [(0,)])

    asyncio.run(serve())
    assert len(received) == 1
    assert not fails
