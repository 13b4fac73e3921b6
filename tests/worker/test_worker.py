"""A worker inside this process, on both stores, by the database's own clock."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

import psycopg
import pytest

from leasehold import Context, Fail, Leasehold, Pause, Retry, RetryIn, Snooze, State, SyncContext
from leasehold.domain.outcome import HandedBack, Success
from leasehold.errors import InvalidInput, SchemaIncomplete
from leasehold.stores.results import Ending
from leasehold.worker import health
from leasehold.worker.worker import catching_sigterm
from tests.backends import Backend
from tests.connections import file_of
from tests.plans.traced import Traced
from tests.workers import burst, until


def test_async_and_plain_functions_run_and_give_back_their_results(app):
    threads = set()

    @app.task
    async def double(n: int) -> int:
        threads.add(threading.current_thread())
        return 2 * n

    @app.task
    def triple(n: int) -> int:
        threads.add(threading.current_thread())
        return 3 * n

    jobs = [double.enqueue(n) for n in range(30)] + [triple.enqueue(n) for n in range(30)]
    burst(app)
    assert [job.result(timeout=0) for job in jobs] == [2 * n for n in range(30)] + [3 * n for n in range(30)]
    assert len(threads) > 1


def test_a_handler_learns_about_its_own_run(app):
    seen = {}

    @app.task(lane="l", queue="q")
    async def look(ctx: Context) -> None:
        seen.update(
            id=ctx.job_id, attempt=ctx.attempt, token=ctx.lease_token, lane=ctx.lane, stop=ctx.stop_requested
        )

    job = look.using(group="g").enqueue()
    burst(app, queues="q")
    assert seen == {"id": job.id, "attempt": 1, "token": 1, "lane": "l", "stop": False}


def test_a_failing_job_is_tried_again_and_its_attempts_keep_their_errors(app):
    tries = []

    @app.task(retry=Retry(max_attempts=3, backoff=0))
    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError(f"try {len(tries)}")
        return "at last"

    job = flaky.enqueue()
    burst(app)
    assert job.result(timeout=0) == "at last"
    assert (job.__row__.attempt, job.__row__.failures) == (3, 2)
    assert job.error is None
    first, second, last = job.attempts()
    assert first.error.startswith("ConnectionError: try 1")
    assert second.error.startswith("ConnectionError: try 2")
    assert "in flaky" in second.error
    assert (last.outcome, last.error) == ("succeeded", None)


def test_an_exception_that_is_never_retried_fails_at_once(app):
    @app.task(retry=Retry(max_attempts=5, backoff=0, never=(ValueError,)))
    def strict() -> None:
        raise ValueError("no")

    @app.task(retry=Retry(max_attempts=5, backoff=0, on=(TimeoutError,)))
    def picky() -> None:
        raise KeyError("k")

    jobs = [strict.enqueue(), picky.enqueue()]
    burst(app)
    assert [(job.refresh().state, job.attempt) for job in jobs] == [(State.FAILED, 1)] * 2


@pytest.mark.parametrize(
    ("signal", "state", "reason"),
    [
        (Snooze(3600), State.QUEUED, None),
        (RetryIn("1h", "busy"), State.QUEUED, None),
        (Pause("look at this"), State.PAUSED, "look at this"),
        (Fail("never"), State.FAILED, None),
    ],
)
def test_a_handler_may_say_what_shall_become_of_it(app, signal, state, reason):
    @app.task
    async def speak() -> None:
        raise signal

    job = speak.enqueue()
    burst(app)
    assert (job.refresh().state, job.reason) == (state, reason)
    assert job.__row__.failures == (1 if state is State.FAILED else 0)


@pytest.mark.parametrize(
    ("make", "state"), [(Fail, State.FAILED), (Pause, State.PAUSED), (partial(RetryIn, 3600), State.QUEUED)]
)
@pytest.mark.parametrize(("said", "reported"), [(OSError("gone"), "OSError: gone"), (404, "404")])
def test_a_reason_that_is_no_text_is_told_as_one(app, make, state, said, reported):
    """`raise Fail(error)` is written in a hurry; its job must end as if the text had been asked for."""

    @app.task
    async def speak() -> None:
        raise make(said)

    job = speak.enqueue()
    burst(app)
    assert job.refresh().state is state
    assert reported in (job.error, job.reason)


def test_arguments_that_no_longer_fit_fail_without_a_retry_and_resume_with_new_ones(app):
    @app.task
    def work(a: int) -> int:
        return a

    job = work.enqueue(1)

    other = Leasehold(app.url, schema=app.__internals__.location.schema)

    @other.task(name="work")
    def newer(b: int) -> int:
        return b

    burst(other)
    assert job.refresh().state is State.FAILED
    assert "no longer fit" in job.error
    other.get(job.id).resume(args={"b": 7})
    burst(other)
    assert job.refresh().result(timeout=0) == 7
    other.close()


def test_a_result_that_cannot_be_stored_fails_its_own_job_only(app):
    @app.task
    async def odd(n: int) -> float:
        return float("nan") if n == 3 else float(n)

    jobs = [odd.enqueue(n) for n in range(6)]
    burst(app)
    states = [job.refresh().state for job in jobs]
    assert states == [State.SUCCEEDED] * 3 + [State.FAILED] + [State.SUCCEEDED] * 2
    assert "the result is not serializable" in jobs[3].error


def test_an_attempt_that_takes_too_long_is_stopped_and_timed_out(app):
    @app.task(timeout=0.2, retry=Retry(max_attempts=1))
    async def slow() -> None:
        await asyncio.sleep(60)

    @app.task(timeout=0.2, retry=Retry(max_attempts=1))
    def slow_thread(ctx: SyncContext) -> None:
        ctx.wait(60)

    jobs = [slow.enqueue(), slow_thread.enqueue()]
    burst(app)
    assert [job.refresh().state for job in jobs] == [State.TIMED_OUT] * 2
    assert "longer than 0.2 s" in jobs[0].error


def test_a_deadline_ends_the_whole_job(app):
    @app.task(deadline=0.3, retry=Retry(max_attempts=9, backoff=0))
    async def slow() -> None:
        await asyncio.sleep(60)

    job = slow.enqueue()
    burst(app)
    assert job.refresh().state is State.TIMED_OUT


def test_a_job_whose_time_is_over_comes_to_rest_though_nobody_runs_it(app):
    @app.task(start_by=0.05)
    def late() -> None: ...

    @app.task(deadline=0.05)
    def later() -> None: ...

    jobs = [late.using(queue="nobody").enqueue(), later.using(queue="nobody").enqueue()]

    async def run() -> None:
        async with app.worker(sweep=0.05):
            await until(lambda: all(job.refresh().state not in (State.QUEUED,) for job in jobs))

    asyncio.run(run())
    assert [job.state for job in jobs] == [State.CANCELLED, State.TIMED_OUT]


@pytest.mark.parametrize("verb", ["cancel", "pause"])
def test_a_stop_reaches_a_running_job_with_the_next_heartbeat(app, verb):
    @app.task(lease=6, heartbeat=0.3)
    async def long() -> None:
        await asyncio.sleep(60)

    @app.task(lease=6, heartbeat=0.3)
    def long_thread(ctx: SyncContext) -> None:
        ctx.wait(60)

    async def run() -> list:
        jobs = [await long.aenqueue(), await long_thread.aenqueue()]
        async with app.worker():
            await until(lambda: all(job.refresh().state is State.RUNNING for job in jobs))
            for job in jobs:
                await asyncio.to_thread(getattr(job, verb), "enough")
            await until(lambda: all(job.refresh().state is not State.RUNNING for job in jobs))
        return jobs

    jobs = asyncio.run(run())
    expected = State.CANCELLED if verb == "cancel" else State.PAUSED
    assert [(job.state, job.reason) for job in jobs] == [(expected, "enough")] * 2
    assert [job.__row__.failures for job in jobs] == [0, 0]


def test_a_handler_that_blocks_the_event_loop_keeps_its_lease(app):
    @app.task(lease=4, heartbeat=0.2)
    async def rude() -> str:
        time.sleep(5)
        return "done"

    job = rude.enqueue()
    burst(app, sweep=0.1)
    assert job.result(timeout=0) == "done"
    assert (job.__row__.attempt, job.__row__.crashes) == (1, 0)


def test_the_worker_takes_no_more_than_it_can_start(app):
    running, most = set(), []
    met = threading.Event()

    @app.task
    async def work(n: int) -> None:
        running.add(n)
        most.append(len(running))
        if len(running) >= 4:
            met.set()
        await until(met.is_set)  # on a loaded machine short visits might else never meet
        await asyncio.sleep(0.01)
        running.discard(n)

    work.enqueue_many([{"n": n} for n in range(40)])
    burst(app, concurrency=4)
    assert max(most) == 4
    assert app.count()[State.SUCCEEDED] == 40


def test_queues_are_served_in_turn_or_in_order(app):
    order = []

    @app.task
    async def work(queue: str) -> None:
        order.append(queue)

    for queue in ("a", "b"):
        work.using(queue=queue).enqueue_many([{"queue": queue} for _ in range(6)])
    burst(app, queues="a,b", queue_order="strict", concurrency=1)
    assert order == ["a"] * 6 + ["b"] * 6
    order.clear()
    for queue in ("a", "b"):
        work.using(queue=queue).enqueue_many([{"queue": queue} for _ in range(6)])
    burst(app, queues="a,b", concurrency=1)
    assert set(order[:4]) == {"a", "b"}


def test_a_hundred_queues_cost_a_worker_a_few_times_the_statements_of_one(app):
    @app.task
    async def work() -> None: ...

    def statements(queues: list[str]) -> int:
        for queue in queues:
            work.using(queue=queue).enqueue_many([{} for _ in range(400 // len(queues))])
        with Traced(app.__internals__.store) as calls:
            worker = burst(app, queues=queues, concurrency=20)
        assert worker.attempts.ended == 400
        return len(calls)

    one, many = statements(["one"]), statements([f"q{n}" for n in range(100)])
    assert many <= 5 * one, (many, one)


def test_a_kind_without_a_handler_here_stays_queued_for_another_worker(app):
    @app.task
    def known() -> None: ...

    other = Leasehold(app.url, schema=app.__internals__.location.schema)

    @other.task
    def unknown() -> None: ...

    job = unknown.enqueue()
    known.enqueue()
    burst(app)
    assert (job.refresh().state, job.attempt) == (State.QUEUED, 0)
    burst(other)
    assert job.refresh().state is State.SUCCEEDED
    other.close()


def test_resources_of_the_lifespan_reach_the_handlers_and_are_closed(app):
    events = []

    @app.lifespan
    async def resources():
        events.append("open")
        yield {"client": "c"}
        events.append("close")

    @app.task
    async def use(ctx: Context) -> str:
        return ctx.resources["client"]

    job = use.enqueue()
    burst(app)
    assert job.result(timeout=0) == "c"
    assert events == ["open", "close"]


def test_work_that_comes_later_wakes_an_idle_worker(app):
    @app.task
    async def quick() -> float:
        return time.time()

    async def run() -> list[float]:
        async with app.worker(poll=60.0):
            await until(lambda: len(app.__internals__.store.list_workers()) == 1)
            waits = []
            for _ in range(3):
                requested = time.time()
                job = await quick.aenqueue()
                waits.append(await job.aresult(timeout=60) - requested)
            return waits

    assert min(asyncio.run(run())) < 15.0, "with a poll of 60 s only a wake-up can be that quick"


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_delayed_job_and_a_retry_start_when_they_are_due_on_an_idle_worker(app, colour):
    """With a poll of a minute, only who knows when it is due can be there in time."""
    if colour == "async":

        @app.task(name="work", retry=Retry(max_attempts=2, backoff=0.3))
        async def work(ctx: Context) -> None:
            if ctx.attempt == 1:
                raise RuntimeError("again")
    else:

        @app.task(name="work", retry=Retry(max_attempts=2, backoff=0.3))
        def work(ctx: SyncContext) -> None:
            if ctx.attempt == 1:
                raise RuntimeError("again")

    async def run() -> list[float]:
        async with app.worker(poll=60.0):
            await until(lambda: len(app.__internals__.store.list_workers()) == 1)
            job = await work.using(delay=0.3).aenqueue()
            await until(lambda: job.refresh().state is State.SUCCEEDED, 50)
            row = job.__row__
            late = [row.started_at - row.available_at, row.first_started_at - row.created_at]
            return [late[0].total_seconds(), late[1].total_seconds() - 0.3]

    retried, delayed = asyncio.run(run())
    assert 0 <= delayed < 10
    assert 0 <= retried < 10


def test_a_worker_tells_of_itself_while_it_lives(app):
    @app.task
    async def work() -> None: ...

    async def run() -> None:
        async with app.worker(queues="a,b") as worker:
            await until(lambda: len(app.__internals__.store.list_workers()) == 1)
            (card,) = app.__internals__.store.list_workers()
            assert (card.name, card.queues, card.tasks) == (worker.settings.name, ("a", "b"), ("work",))
            assert worker.health().ok

    asyncio.run(run())
    assert app.__internals__.store.list_workers() == []


def test_one_renewal_statement_a_beat_serves_all_leases(app):
    @app.task(lease=6, heartbeat=0.3)
    async def sleep() -> None:
        await asyncio.sleep(1.5)

    sleep.enqueue_many([{} for _ in range(200)])
    began_at = time.monotonic()
    worker = burst(app, concurrency=200)
    took = time.monotonic() - began_at
    assert app.count()[State.SUCCEEDED] == 200
    assert worker.attempts.fenced == worker.attempts.lost == 0
    assert worker.keeper.beats <= took / 0.3 + 5, "however long a loaded machine holds them"


@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency": -1},
        {"concurrency": 0, "threads": 0, "max_executions": 0},
        {"queues": ""},
        {"shutdown_grace": "soon"},
        {"retention": -1},
    ],
)
def test_wrong_settings_of_a_worker_are_refused_by_name(app, settings):
    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidInput) as caught:
        app.worker(**settings)
    assert caught.value.field in settings


def test_a_worker_without_tasks_is_refused(app):
    with pytest.raises(InvalidInput, match=r"app\.include"):
        app.worker()


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_worker_that_was_frozen_before_it_could_start_a_job_does_not_start_it(app, colour):
    """Frozen between the claim and the call, it wakes up with a lease that another may have by now."""
    started = []
    if colour == "async":

        @app.task(name="late", lease=60.0)
        async def late() -> None:
            started.append(1)
    else:

        @app.task(name="late", lease=60.0)
        def late() -> None:
            started.append(1)

    job = late.enqueue()
    (grant,) = app.__internals__.store.claim("frozen", ["default"], 1)
    # Frozen for a lease and more: another has it now.
    app.__internals__.store.settle([Ending(grant.id, grant.token, HandedBack())])
    (successor,) = app.__internals__.store.claim("successor", ["default"], 1)

    async def scene() -> None:
        async with app.worker(queues="other", retention=None) as worker:
            worker.starter.start_one(grant, time.monotonic() - 60.0)
            await until(lambda: worker.attempts.fenced + worker.attempts.lost == 1)

    asyncio.run(scene())
    assert not started
    app.__internals__.store.settle([Ending(successor.id, successor.token, Success())])
    assert job.refresh().state == "succeeded"


def test_an_async_run_that_is_stopped_before_its_first_turn_ends_at_once(app):
    @app.task
    async def work() -> None:
        await asyncio.sleep(3600)

    job = work.enqueue()

    async def scene() -> None:
        async with app.worker(queues="other", retention=None, stop_grace=3600.0) as worker:
            sent_at = time.monotonic()
            (grant,) = app.__internals__.store.claim(worker.settings.name, ["default"], 1)
            worker.starter.start_one(grant, sent_at)
            worker.attempts.stop(worker.attempts.held[grant.id], "drain")
            await until(lambda: worker.attempts.ended == 1)

    asyncio.run(scene())
    assert (job.refresh().state, job.__row__.failures) == ("queued", 0)


def test_a_new_lease_stays_in_the_books_when_the_old_ending_is_heard_of_late(app):
    """A job that goes back to the queue may be claimed again before its worker hears that the ending was taken."""
    again = asyncio.Event()
    attempts = []

    @app.task(retry=Retry(max_attempts=2, backoff=0))
    async def twice(ctx: Context) -> int:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            raise RuntimeError("again")
        await again.wait()
        return ctx.attempt

    async def scenario() -> None:
        job = await twice.aenqueue()
        async with app.worker(retention=None) as worker:
            real = worker.settler.on_settled

            async def hear_late(accepted, fenced) -> None:
                await until(lambda: attempts == [1, 2])
                real(accepted, fenced)
                late.set()

            late = asyncio.Event()
            tasks = []
            worker.settler.on_settled = lambda *received: tasks.append(
                asyncio.create_task(hear_late(*received))
            )
            await asyncio.wait_for(late.wait(), 20)
            worker.settler.on_settled = real
            held = {run.grant.attempt for run in worker.attempts.held.values()}
            again.set()
            assert held == {2}, "the lease of the second attempt is renewed"
            assert await job.aresult(timeout=20) == 2

    asyncio.run(scenario())


def test_quick_plain_jobs_that_were_claimed_ahead_are_given_back_when_a_slow_one_stands_before_them(app):
    go = threading.Event()

    @app.task
    def quick(n: int) -> int:
        return n

    @app.task
    def slow() -> None:
        go.wait()

    async def scene() -> None:
        async with app.worker(threads=1, retention=None, shutdown_grace=1) as first:
            jobs = await asyncio.to_thread(quick.enqueue_many, [{"n": n} for n in range(300)])
            await until(lambda: first.attempts.ended == 300)
            for more in range(1, 20):
                if first.starter.thread_room > 5:
                    break
                # One of the last was kept by the machine: the worker believes that they are slow, for a while.
                await asyncio.to_thread(quick.enqueue_many, [{"n": n} for n in range(50)])
                await until(lambda more=more: first.attempts.ended == 300 + 50 * more)
            assert first.starter.thread_room > 5, "they were quick, so the worker looks ahead"
            blocker = slow.enqueue()
            await until(lambda: blocker.refresh().state == "running")
            behind = await asyncio.to_thread(quick.enqueue_many, [{"n": n} for n in range(5)])
            await until(lambda: all(job.refresh().attempt > 0 for job in behind))
            # Given back at no cost, they wait for a worker that has a thread.
            await until(lambda: all(job.refresh().state == "queued" for job in behind))
            assert first.starter.thread_room <= 0
            async with app.worker(threads=1, retention=None):
                assert [await job.aresult(timeout=20) for job in behind] == list(range(5))
            assert [job.refresh().__row__.failures for job in behind] == [0] * 5
            go.set()
            await until(lambda: blocker.refresh().state == "succeeded")
            assert jobs[0].refresh().attempt == 1

    try:
        asyncio.run(scene())
    finally:
        go.set()


def test_a_worker_that_is_told_to_drain_before_it_has_started_claims_nothing(app):
    """A SIGTERM that comes while the database is slow to answer."""

    @app.task
    async def work() -> None: ...

    job = work.enqueue()
    worker = app.worker()
    worker.request_drain()
    asyncio.run(worker.run())
    assert (job.refresh().state, job.attempt) == (State.QUEUED, 0)


def test_the_grace_of_a_worker_comes_from_the_environment_unless_it_is_given(app, monkeypatch):
    @app.task
    async def work() -> None: ...

    assert app.worker().settings.shutdown_grace == 300.0
    monkeypatch.setenv("SHUTDOWN_GRACE_PERIOD_SECONDS", "45")
    assert app.worker().settings.shutdown_grace == 45.0
    assert app.worker(shutdown_grace="1m").settings.shutdown_grace == 60.0
    assert app.worker(shutdown_grace=None).settings.shutdown_grace is None
    monkeypatch.setenv("SHUTDOWN_GRACE_PERIOD_SECONDS", "none")
    assert app.worker().settings.shutdown_grace is None
    monkeypatch.setenv("SHUTDOWN_GRACE_PERIOD_SECONDS", "soon")
    with pytest.raises(InvalidInput, match="SHUTDOWN_GRACE_PERIOD_SECONDS: 'soon' is not a duration"):
        app.worker()


def test_workers_that_end_in_any_order_leave_the_handler_of_sigterm_as_they_have_found_it():
    """Each put back what it had found: the second one the handler of the first, which was gone."""
    received: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    first = catching_sigterm(lambda: received.append("first"), lambda: received.append("first taken"))
    second = catching_sigterm(lambda: received.append("second"), lambda: received.append("second taken"))
    first.__enter__()
    second.__enter__()
    during = signal.getsignal(signal.SIGTERM)
    during(signal.SIGTERM, None)
    assert received == ["first taken", "second taken"]
    first.__exit__(None, None, None)
    during(signal.SIGTERM, None)
    assert received[2:] == ["second taken"]
    second.__exit__(None, None, None)
    assert signal.getsignal(signal.SIGTERM) is before is signal.SIG_DFL


def test_a_worker_leaves_the_handler_of_sigterm_as_it_has_found_it(app, monkeypatch):
    """And where nobody handles the signal it goes on to end the process."""
    monkeypatch.setattr(
        "leasehold.worker.worker.PRESENCE_EVERY", 3600.0
    )  # others hear of the drain at once, or never

    @app.task
    async def work() -> None: ...

    async def serve(**settings) -> tuple[object, object]:
        before = signal.getsignal(signal.SIGTERM)
        async with app.worker(**settings):
            during = signal.getsignal(signal.SIGTERM)
            if during is not before:
                during(signal.SIGTERM, None)
                await until(lambda: any(card.draining for card in app.__internals__.store.list_workers()), 60)
        assert signal.getsignal(signal.SIGTERM) is before
        return before, during

    before, during = asyncio.run(serve())
    assert before is during is signal.SIG_DFL
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        before, during = asyncio.run(serve())
        assert before is not during
        assert received == [signal.SIGTERM]
        before, during = asyncio.run(serve(drain_on_sigterm=False))
        assert before is during
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_a_worker_that_serves_the_queue_of_none_of_its_tasks_says_so(app, caplog):
    @app.task(queue="reports")
    def report() -> None: ...

    with caplog.at_level("INFO", "leasehold.worker"):
        burst(app)
    assert "serves default; its tasks also use reports" in caplog.text
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "--queues reports" in warning


@pytest.mark.parametrize("queues", ["reports", "bulk", "default,reports"])
def test_a_worker_that_was_given_its_queues_does_not_warn(app, caplog, queues):
    """Calls may use any queue, by `using(queue="bulk")`."""

    @app.task(queue="reports")
    def report() -> None: ...

    with caplog.at_level("INFO", "leasehold.worker"):
        burst(app, queues=queues)
    assert "WARNING" not in {record.levelname for record in caplog.records}


def test_a_worker_whose_block_is_cancelled_again_and_again_hands_back_and_leaves_nothing_behind(app):
    """As cancel scopes do it. What it left behind would renew its leases for as long as the process lives."""
    closed: list[str] = []

    @app.lifespan
    async def lifespan():
        yield "resources"
        closed.append("closed")

    @app.task
    async def wait() -> None:
        await asyncio.Event().wait()

    job = wait.enqueue()
    worker = app.worker(retention=None)

    async def serve() -> None:
        async with worker:
            await asyncio.Event().wait()

    async def live() -> None:
        serving = asyncio.create_task(serve())
        await until(lambda: job.refresh().state is State.RUNNING)
        while not serving.done():
            serving.cancel()
            await asyncio.sleep(0)
        assert serving.cancelled()

    before = set(threading.enumerate())
    asyncio.run(live())
    left = {thread.name for thread in set(threading.enumerate()) - before if thread.is_alive()}
    assert not left & {"leasehold-lease keeper", "leasehold-reaper", "leasehold-presence"}
    assert (job.refresh().state, closed) == (State.QUEUED, ["closed"])


@pytest.mark.parametrize("breaks", ["before", "after"])
def test_a_worker_that_cannot_start_leaves_nothing_open(app, monkeypatch, breaks):
    """Whoever tries again every few seconds would else open another connection each time."""
    events = []

    @app.lifespan
    async def resources():
        if breaks == "before":
            raise OSError("not there yet")
        events.append("open")
        yield
        events.append("close")

    @app.task
    async def work() -> None: ...

    worker = app.worker(retention=None)
    if breaks == "after":
        monkeypatch.setattr(worker, "_wire", lambda *_: 1 / 0)

    async def start() -> None:
        async with worker:
            pytest.fail("it has started")

    before = set(threading.enumerate())
    with pytest.raises((OSError, ZeroDivisionError)):
        asyncio.run(start())
    for listener in [t for t in set(threading.enumerate()) - before if t.name == "leasehold-listen"]:
        listener.join(20)
        assert not listener.is_alive()
    assert worker._wakeups._closed  # on PostgreSQL the end of its thread tells
    assert events == ([] if breaks == "before" else ["open", "close"])


def test_a_claim_that_waits_for_a_lock_in_the_database_is_not_blamed_on_a_handler(backend, app, monkeypatch):
    monkeypatch.setattr(health, "STUCK_AFTER", 0.2)

    @app.task
    async def work() -> None: ...

    @contextmanager
    def locked() -> Iterator[None]:
        if backend.name == "sqlite":
            with closing(sqlite3.connect(file_of(backend), isolation_level=None)) as other:
                other.execute("BEGIN EXCLUSIVE")
                yield
        else:
            with psycopg.connect(backend.url) as other:
                other.execute(f'LOCK TABLE "{backend.schema}".ready')
                yield

    async def live() -> str:
        async with app.worker(poll=0.05) as worker:

            def problem() -> str:
                return next((one for one in worker.health().problems if one.startswith("no claim for")), "")

            await work.using(delay=1.0).aenqueue()  # on SQLite only a claim that finds something waits
            with locked():
                await until(problem)
                return problem()

    assert "the database has not answered it" in asyncio.run(live())


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_worker_does_not_start_on_a_schema_that_lacks_a_table(kind, request, tmp_path):
    """In a database of the test's own."""
    if kind == "sqlite":
        own = Backend(kind, f"sqlite:///{tmp_path}/jobs.db")
    else:
        own = Backend(
            kind, request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_schema")
        )
    with Leasehold(own.url, schema=own.schema) as app:

        @app.task
        def work() -> None: ...

        app.upgrade()
        own.query("DROP TABLE leasehold.audit")
        with pytest.raises(SchemaIncomplete) as refused:
            burst(app)
        (lacking,) = (one for one in app.__internals__.operations.verify() if one.startswith("table "))
        assert f"missing {lacking.removeprefix('table ')};" in str(refused.value)
        assert "leasehold db verify" in str(refused.value)
        assert "leasehold db sql" in str(refused.value)
        assert "db upgrade" not in str(refused.value)
