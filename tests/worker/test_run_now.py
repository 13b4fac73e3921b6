"""`app.run_now`: at once in this process, or AtCapacity; on both stores, by the database's own clock."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from leasehold import AtCapacity, Context, Leasehold, Pause, Retry, Snooze, State, SyncContext
from leasehold.errors import InvalidInput, InvalidState, InvalidTask, JobNotSucceeded
from leasehold.operations import workers
from tests.workers import burst, until

PATIENCE = 20.0


@pytest.fixture
def app_settings() -> dict[str, Any]:
    return {"shutdown_grace": 0.2}


class Gate:
    """Runs that have begun, and a way to let them end."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.open = threading.Event()

    def wait_begun(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.began.acquire(timeout=PATIENCE), "it did not begin"

    async def pass_through(self) -> None:
        self.began.release()
        while not self.open.is_set():
            await asyncio.sleep(0.005)

    def pass_in_thread(self) -> None:
        self.began.release()
        assert self.open.wait(PATIENCE)


def test_async_and_plain_functions_start_at_once_and_give_back_their_results(app):
    gate = Gate()

    @app.task(max_running=1)
    async def double(n: int) -> int:
        await gate.pass_through()
        return 2 * n

    @app.task(max_running=1)
    def triple(ctx: SyncContext, n: int) -> int:
        gate.pass_in_thread()
        return 3 * n

    jobs = [app.run_now(double, 4), app.run_now(triple, n=5)]
    gate.wait_begun(2)
    assert [job.refresh().state for job in jobs] == [State.RUNNING] * 2
    assert all(job.created for job in jobs)
    gate.open.set()
    assert [job.result(timeout=PATIENCE) for job in jobs] == [8, 15]
    assert [job.__row__.attempt for job in jobs] == [1, 1]


def test_over_the_cap_is_refused_with_the_holders_and_nothing_is_stored(app):
    gate = Gate()

    @app.task
    async def hold() -> None:
        await gate.pass_through()

    jobs = [app.run_now(hold.using(max_running=2)) for _ in range(2)]
    with pytest.raises(AtCapacity, match="its max_running is 2") as refused:
        app.run_now(hold.using(max_running=2))
    error = refused.value
    assert (error.task, error.max_running) == ("hold", 2)
    assert [holder.job_id for holder in error.holders] == [job.id for job in jobs]
    assert {holder.worker for holder in error.holders} == {jobs[0].refresh().__row__.worker}
    assert 1 <= error.retry_after <= 30
    assert len(app.jobs().jobs) == 2
    gate.open.set()
    for job in jobs:
        job.result(timeout=PATIENCE)
    app.run_now(hold.using(max_running=1)).result(timeout=PATIENCE)


def test_the_async_twin_does_not_block_the_loop_that_calls_it(app):
    @app.task(max_running=3)
    async def double(n: int) -> int:
        return 2 * n

    async def call() -> list[int]:
        jobs = await asyncio.gather(*(app.arun_now(double, n) for n in range(3)))
        named = await app.arun_now(double.using(max_running=9), n=4)
        return [await job.aresult(timeout=PATIENCE) for job in [*jobs, named]]

    assert asyncio.run(call()) == [0, 2, 4, 8]


def test_fifty_callers_in_threads_never_see_more_runs_than_max_running(app):
    most_at_once, running, most, lock = 6, 0, 0, threading.Lock()

    @app.task(max_running=most_at_once)
    def count() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.pass_in_thread()
        with lock:
            running -= 1

    def call(_: int) -> str | int:
        try:
            return app.run_now(count).id
        except AtCapacity as refused:
            return len(refused.holders)

    gate = Gate()
    with ThreadPoolExecutor(50) as threads:
        reported = list(threads.map(call, range(50)))
    started = [job_id for job_id in reported if isinstance(job_id, str)]
    assert [seen for seen in reported if isinstance(seen, int)] == [most_at_once] * (50 - most_at_once)
    gate.wait_begun(most_at_once)
    gate.open.set()
    for job_id in started:
        app.get(job_id).result(timeout=PATIENCE)
    assert (len(started), most) == (most_at_once, most_at_once)


def test_a_run_longer_than_its_lease_is_renewed_and_survives(app, backend):
    @app.task(max_running=1, lease=2, heartbeat=0.2, queueing=False)
    async def long(ctx: Context) -> int:
        await asyncio.sleep(2.5)
        return ctx.lease_token

    job = app.run_now(long)
    other = backend.open()
    first = other.get(job.id).lease_expires_at
    assert job.result(timeout=PATIENCE) == 1
    row = job.__row__
    assert (row.attempt, row.crashes, row.settled_token) == (1, 0, 1)
    assert row.finished_at > first, "it did not outlive its first lease, so nothing was shown"


def test_steps_events_and_checks_work_as_under_a_worker(app, backend):
    @app.task(max_running=1)
    async def study(ctx: Context, n: int) -> int:
        found = await ctx.step("search", lambda: n + 1)
        ctx.progress(1, 2, "half")
        ctx.emit("page", {"n": found})
        return found

    job = app.run_now(study, 1)
    assert job.result(timeout=PATIENCE) == 2
    assert backend.query("SELECT name FROM leasehold.step WHERE job_id = ?", job.id) == [("search",)]
    assert [event.data for event in job.watch() if event.kind == "page"] == [{"n": 2}]
    assert str(job.progress()) == "1 of 2: half"
    with pytest.raises(InvalidInput, match="n: "):
        app.run_now(study, "many")


def test_a_cancel_reaches_a_run_at_its_next_beat(app):
    gate = Gate()

    @app.task(max_running=1, lease=6, heartbeat=0.2)
    async def hold() -> None:
        await gate.pass_through()

    job = app.run_now(hold)
    gate.wait_begun()
    job.cancel()
    with pytest.raises(JobNotSucceeded):
        job.result(timeout=PATIENCE)
    assert job.state is State.CANCELLED


def test_a_handler_may_itself_run_another_now(app):
    @app.task(max_running=1)
    async def inner(n: int) -> int:
        return n + 1

    @app.task(max_running=1)
    async def outer() -> str:
        return app.run_now(inner, 1).id  # on the very loop that has to begin it

    job = app.run_now(outer)
    assert app.get(job.result(timeout=PATIENCE)).result(timeout=PATIENCE) == 2


def test_a_run_does_not_see_the_context_of_whoever_asked_for_it(app):
    variable = contextvars.ContextVar("variable", default="nothing")

    @app.task(max_running=1)
    async def look() -> str:
        return variable.get()

    variable.set("the caller's")
    assert app.run_now(look).result(timeout=PATIENCE) == "nothing"


def test_tasks_that_are_registered_later_can_be_run_too(app):
    @app.task(max_running=1)
    async def first() -> int:
        return 1

    assert app.run_now(first).result(timeout=PATIENCE) == 1

    @app.task(max_running=1)
    async def second() -> int:
        return 2

    assert app.run_now(second).result(timeout=PATIENCE) == 2


def test_the_run_of_a_queue_worker_counts(app):
    gate = Gate()

    @app.task(max_running=1)
    async def hold() -> None:
        await gate.pass_through()

    async def scene() -> None:
        queued = hold.enqueue()
        async with app.worker(retention=None, name="queue-worker"):
            await asyncio.to_thread(gate.wait_begun)
            with pytest.raises(AtCapacity) as refused:
                await app.arun_now(hold)
            assert [(h.job_id, h.worker) for h in refused.value.holders] == [(queued.id, "queue-worker")]
            gate.open.set()
            await queued.aresult(timeout=PATIENCE)
            await (await app.arun_now(hold)).aresult(timeout=PATIENCE)

    asyncio.run(scene())


def test_the_runner_takes_nothing_from_queues_and_says_so(app):
    @app.task(max_running=1)
    async def one() -> None: ...

    app.run_now(one).result(timeout=PATIENCE)
    queued = one.enqueue()
    cards = asyncio.run(_cards(app))
    assert [(card.queues, card.concurrency) for card in cards] == [((), 0)]
    assert "no_worker" in [hold.cause for hold in queued.explain()]
    assert queued.refresh().state is State.QUEUED


async def _cards(app: Leasehold) -> list:
    await until(lambda: app.__internals__.operations.call(workers.list_workers))
    return app.__internals__.operations.call(workers.list_workers)


def test_close_gives_runs_their_grace_and_hands_back_what_does_not_end(backend):
    app = Leasehold(backend.url, schema=backend.schema, shutdown_grace=3)
    brief, endless = Gate(), Gate()

    @app.task(max_running=1)
    async def ends() -> str:
        await brief.pass_through()
        return "in time"

    @app.task(max_running=1)
    async def stays() -> None:
        await endless.pass_through()

    one, other = app.run_now(ends), app.run_now(stays)
    brief.wait_begun()
    endless.wait_begun()
    brief.open.set()
    app.close()
    assert one.result(timeout=0) == "in time"
    row = other.refresh().__row__
    assert (row.state, row.worker, row.reason) == (State.QUEUED, None, "its worker was stopped")
    endless.open.set()
    burst(app)
    assert other.refresh().state is State.SUCCEEDED
    assert app.run_now(ends).result(timeout=PATIENCE) == "in time", "a closed app can be used again"
    app.close()


def test_close_does_not_wait_for_a_thread_that_hangs(backend):
    hanging, let_go = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        let_go.wait()

    with Leasehold(backend.url, schema=backend.schema, shutdown_grace=0) as app:

        @app.task(max_running=1)
        async def hangs() -> None:
            await asyncio.to_thread(hang)

        job = app.run_now(hangs)
        assert hanging.wait(PATIENCE)
    try:
        assert not let_go.is_set()
        assert job.refresh().state is State.QUEUED
    finally:
        let_go.set()


def test_a_failure_goes_to_the_queue_and_workers_take_it_from_there(app):
    tries = []

    @app.task(max_running=1, retry=Retry(max_attempts=2, backoff=0))
    async def flaky() -> str:
        tries.append(1)
        if len(tries) < 2:
            raise ConnectionError("once")
        return "at last"

    job = app.run_now(flaky)
    asyncio.run(until(lambda: job.refresh().state is State.QUEUED))
    burst(app)
    assert (job.result(timeout=0), job.__row__.attempt) == ("at last", 2)


# -- without a queue ---------------------------------------------------------------------------------------------------


def test_a_task_without_a_queue_refuses_every_way_into_one(app):
    @app.task(queueing=False, max_running=2)
    async def now_only(n: int = 0) -> int:
        return n

    @app.task(max_running=1)
    async def parent(ctx: Context) -> None:
        ctx.enqueue(now_only)

    for way in (
        lambda: now_only.enqueue(),
        lambda: now_only.enqueue_many([{"n": 1}]),
        lambda: app.enqueue("now_only"),
        lambda: now_only.using(delay=5).enqueue(),
        lambda: now_only.bind(1).enqueue(),
        lambda: app.chain(now_only.bind(1)).enqueue(),
        lambda: app.dag().add("a", now_only),
        lambda: asyncio.run(now_only.aenqueue()),
    ):
        with pytest.raises(InvalidInput, match=r"app\.run_now") as refused:
            way()
        assert refused.value.field == "queueing"
    job = app.run_now(parent)
    with pytest.raises(JobNotSucceeded, match="queueing"):
        job.result(timeout=PATIENCE)
    assert [one.id for one in app.jobs().jobs] == [job.id]
    assert app.run_now(now_only, 3).result(timeout=PATIENCE) == 3


@pytest.mark.parametrize(
    ("signal", "reported"), [(ValueError("no"), "no"), (Snooze(5), "snoozed"), (Pause("later"), "later")]
)
def test_a_run_without_a_queue_fails_where_another_would_go_on(app, signal, reported):
    @app.task(queueing=False, max_running=1)
    def run() -> None:
        raise signal

    job = app.run_now(run)
    with pytest.raises(JobNotSucceeded, match=reported):
        job.result(timeout=PATIENCE)
    assert (job.state, job.__row__.attempt) == (State.FAILED, 1)
    with pytest.raises(InvalidState, match=r"app\.run_now"):
        job.resume()
    with pytest.raises(InvalidState, match=r"app\.run_now"):
        job.retry()
    assert len(app.jobs().jobs) == 1


def test_a_run_without_a_queue_that_close_interrupts_fails_and_says_why(backend):
    gate = Gate()
    with Leasehold(backend.url, schema=backend.schema, shutdown_grace=0) as app:

        @app.task(queueing=False, max_running=1)
        async def run() -> None:
            await gate.pass_through()

        job = app.run_now(run)
        gate.wait_begun()
    assert job.refresh().state is State.FAILED
    assert job.error == "its worker was stopped; its task takes no queue, so it cannot go on"


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, -1, True, "4", 2.0])
def test_max_running_is_a_number_of_runs(app, count):
    with pytest.raises(InvalidTask, match="max_running"):

        @app.task(max_running=count)
        def run() -> None: ...


def test_without_max_running_the_call_is_refused_and_the_setting_named(app):
    @app.task
    def run() -> None: ...

    with pytest.raises(InvalidInput, match=r"task\.using\(max_running=") as refused:
        app.run_now(run)
    assert refused.value.field == "max_running"
    assert app.jobs().jobs == []


@pytest.mark.parametrize("field", ["delay", "hold", "after"])
def test_what_makes_a_job_wait_does_not_go_with_run_now(app, field):
    @app.task(max_running=1)
    def run() -> None: ...

    other = run.enqueue()
    given = {"delay": 5, "hold": True, "after": [other]}[field]
    with pytest.raises(InvalidInput, match="at once") as refused:
        app.run_now(run.using(**{field: given}))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("field", "setting"),
    [("retry", Retry(max_attempts=2)), ("on_lost", "adopt"), ("on_drain", "pause"), ("queueing", "no")],
)
def test_what_a_task_without_a_queue_cannot_promise_is_refused_where_it_is_written(app, field, setting):
    with pytest.raises(InvalidTask) as refused:

        @app.task(**{"queueing": False, "max_running": 1, field: setting})
        def run() -> None: ...

    assert refused.value.field == field


def test_queueing_is_the_tasks_own_and_not_a_calls(app):
    @app.task(queueing=False, max_running=1)
    def run() -> None: ...

    with pytest.raises(InvalidInput, match="is not a setting of a call"):
        run.using(queueing=True)


def test_an_error_at_the_start_of_the_runner_reaches_the_caller(backend):
    app = Leasehold(backend.url, schema=backend.schema)

    @app.lifespan
    async def resources():
        raise RuntimeError("no such pool")
        yield

    @app.task(max_running=1)
    def run() -> None: ...

    for _ in range(2):
        with pytest.raises(RuntimeError, match="no such pool"):
            app.run_now(run)
    assert app.jobs().jobs == []
    app.close()
