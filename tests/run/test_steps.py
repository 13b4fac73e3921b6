"""Steps and checkpoints on both stores, in a worker inside this process."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable
from datetime import date

import pytest
from pydantic import BaseModel

from bench import steps as steps_bench
from bench.commits import counter
from leasehold import Context, Pause, Retry, Snooze, State, SyncContext
from leasehold.domain.errors import InvalidInput
from leasehold.errors import DuplicateStep
from leasehold.operations import jobs
from leasehold.run import steps
from leasehold.run.steps import BATCH_STEPS
from tests.backends import Backend
from tests.workers import burst, until


class Page(BaseModel):
    url: str
    seen: date


@dataclasses.dataclass
class Sum:
    total: int


def stored(backend: Backend, job) -> dict[str, str]:
    """Encoded JSON, by the names of the steps."""
    return dict(
        backend.query("SELECT name, CAST(result AS text) FROM leasehold.step WHERE job_id = ?", job.id)
    )


# --- what is stored is not run again --------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["async", "plain"])
@pytest.mark.parametrize("durable", ["each", "batch"])
def test_a_step_runs_once_however_often_its_job_does(app, colour, durable):
    calls = []

    def count(n: int) -> int:
        calls.append(n)
        return 10 * n

    def end(attempt: int, numbers: list[int]) -> list[int]:
        if attempt == 1:
            raise ConnectionError("once more")
        if attempt == 2:
            raise Snooze(0)
        return numbers

    if colour == "async":

        @app.task(name="work", retry=Retry(backoff=0))
        async def work(ctx: Context) -> list[int]:
            numbers = [await ctx.step(f"n {n}", count, n, durable=durable) for n in range(5)]
            return end(ctx.attempt, numbers)
    else:

        @app.task(name="work", retry=Retry(backoff=0))
        def work(ctx: SyncContext) -> list[int]:
            numbers = [ctx.step(f"n {n}", count, n, durable=durable) for n in range(5)]
            return end(ctx.attempt, numbers)

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) == [0, 10, 20, 30, 40]
    assert job.__row__.attempt == 3
    assert calls == [0, 1, 2, 3, 4]


def test_an_async_step_runs_on_the_loop_and_a_plain_one_in_a_thread(app):
    where = {}

    async def on_loop() -> None:
        where["async"] = threading.current_thread()

    def in_thread() -> None:
        where["plain"] = threading.current_thread()

    @app.task
    async def work(ctx: Context) -> None:
        where["handler"] = threading.current_thread()
        await ctx.step("a", on_loop)
        await ctx.step("b", in_thread)

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) is None
    assert where["async"] is where["handler"]
    assert where["plain"] is not where["handler"]


def test_a_step_is_known_by_its_name_and_not_by_its_place(app):
    ran = []

    def make(name: str):
        def run() -> str:
            ran.append(name)
            return name

        return run

    @app.task(retry=Retry(backoff=0))
    async def work(ctx: Context) -> list[str]:
        names = ["a", "b", "c"] if ctx.attempt == 1 else ["new", "c", "a"]
        got = [await ctx.step(name, make(name)) for name in names]
        if ctx.attempt == 1:
            raise ConnectionError
        return got

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) == ["new", "c", "a"]
    assert ran == ["a", "b", "c", "new"]


@pytest.mark.parametrize("together", [False, True])
def test_a_name_used_twice_in_one_run_is_refused_and_not_retried(app, together):
    @app.task(retry=Retry(backoff=0))
    async def work(ctx: Context) -> None:
        if together:
            await asyncio.gather(ctx.step("same", int), ctx.step("same", int))
        await ctx.step("same", int)
        await ctx.step("same", int)

    @app.task
    def plainly(ctx: SyncContext) -> str:
        ctx.step("same", int)
        with pytest.raises(DuplicateStep) as refused:
            ctx.step("same", int)
        return refused.value.name

    job, other = work.enqueue(), plainly.enqueue()
    burst(app)
    assert job.refresh().state is State.FAILED
    assert job.__row__.attempt == 1
    assert "DuplicateStep: step: 'same' was used before in this run" in job.error
    assert other.result(timeout=0) == "same"


def test_results_come_back_through_the_annotation_on_the_first_run_and_later(app):
    seen = []

    def page(url: str) -> Page:
        return Page(url=url, seen=date(2026, 1, 2))

    def total() -> Sum:
        return Sum(3)

    async def days() -> set[date]:
        return {date(2026, 1, 2)}

    def plain():
        return (1, 2)

    @app.task(retry=Retry(backoff=0))
    async def work(ctx: Context) -> None:
        seen.append(
            [
                await ctx.step("page", page, "u"),
                await ctx.step("total", total),
                await ctx.step("days", days),
                await ctx.step("plain", plain),
                await ctx.step("nothing", lambda: None),
            ]
        )
        if ctx.attempt == 1:
            raise ConnectionError

    work.enqueue()
    burst(app)
    assert seen[0] == seen[1]
    assert seen[0] == [Page(url="u", seen=date(2026, 1, 2)), Sum(3), {date(2026, 1, 2)}, [1, 2], None]


@pytest.mark.parametrize(
    ("result", "reported"), [(float("nan"), "is nan"), ("a\x00b", "NUL"), (object(), "JSON cannot express")]
)
def test_a_result_that_cannot_be_stored_ends_the_job_with_the_step_named(app, result, reported):
    @app.task(retry=Retry(backoff=0))
    async def work(ctx: Context) -> None:
        await ctx.step("odd", lambda: result)

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is State.FAILED
    assert job.__row__.attempt == 1
    assert "step 'odd'" in job.error
    assert reported in job.error


def test_a_result_that_does_not_fit_its_annotation_is_refused_before_it_is_stored(app, backend):
    def number() -> int:
        return "many"

    @app.task
    def work(ctx: SyncContext) -> None:
        ctx.step("n", number)

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is State.FAILED
    assert "does not fit the return annotation" in job.error
    assert stored(backend, job) == {}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("", {}),
        ("x" * 201, {}),
        (7, {}),
        ("a\x00", {}),
        ("ok", {"durable": "never"}),
        ("ok", {"durable": "batch", "tx": True}),
        ("ok", {"retry": 3}),
    ],
)
def test_a_step_that_is_declared_wrongly_does_not_run(app, name, options):
    ran = []

    @app.task
    def work(ctx: SyncContext) -> None:
        with pytest.raises(InvalidInput):
            ctx.step(name, lambda *_: ran.append(1), **options)

    job = work.enqueue()
    burst(app)
    assert (job.result(timeout=0), ran) == (None, [])


def test_an_async_function_has_no_place_in_a_plain_handler_nor_in_a_transaction(app):
    async def step(*_) -> None: ...

    @app.task
    def plain(ctx: SyncContext) -> None:
        with pytest.raises(InvalidInput, match="make the task async"):
            ctx.step("a", step)
        with pytest.raises(InvalidInput, match="give the async function itself"):
            ctx.step("b", lambda: step())

    @app.task
    async def on_loop(ctx: Context) -> None:
        with pytest.raises(InvalidInput, match="give a plain one"):
            await ctx.step("a", step, tx=True)
        with pytest.raises(InvalidInput, match="give the async function itself"):
            await ctx.step("b", lambda: step())

    jobs = plain.enqueue(), on_loop.enqueue()
    burst(app)
    assert [job.result(timeout=0) for job in jobs] == [None, None]


def test_a_paused_job_goes_on_after_its_steps_and_a_fresh_one_from_the_start(app, backend):
    ran = []

    @app.task
    async def work(ctx: Context) -> int:
        await ctx.step("once", ran.append, 1)
        before = ctx.saved
        await ctx.checkpoint({"attempt": ctx.attempt})
        if ctx.attempt == 1 or before is None:
            raise Pause("look")
        return before["attempt"]

    job = work.enqueue()
    burst(app)
    assert job.refresh().state is State.PAUSED
    job.resume(fresh=True)
    assert stored(backend, job) == {}
    assert app.__internals__.operations.call(jobs.history, job.id)[-1].detail == "from the start"
    burst(app)
    assert (job.refresh().state, ran) == (State.PAUSED, [1, 1])
    job.resume()
    burst(app)
    assert (job.result(timeout=0), ran) == (2, [1, 1])


# --- retries of one step --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_step_may_be_tried_again_within_its_run(app, colour):
    tries = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise TimeoutError
        return len(tries)

    async def flaky_async() -> int:
        return flaky()

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> int:
        return await ctx.step(
            "s", flaky_async if colour == "async" else flaky, retry=Retry(backoff=0, on=(TimeoutError,))
        )

    job = work.enqueue()
    burst(app)
    assert (job.result(timeout=0), job.__row__.attempt) == (3, 1)


@pytest.mark.parametrize(
    ("retry", "raised", "runs"),
    [
        (Retry(max_attempts=2, backoff=0), TimeoutError, 2),
        (Retry(backoff=0, on=(TimeoutError,)), KeyError, 1),
        (Retry(backoff=0, never=(KeyError,)), KeyError, 1),
        (Retry(backoff=0), Pause("no failure"), 1),
        (None, TimeoutError, 1),
    ],
)
def test_a_step_is_tried_again_only_as_its_policy_says(app, retry, raised, runs):
    tries = []

    def fail() -> None:
        tries.append(1)
        raise raised

    @app.task(retry=Retry(max_attempts=1))
    def work(ctx: SyncContext) -> None:
        ctx.step("s", fail, retry=retry)

    job = work.enqueue()
    burst(app)
    assert len(tries) == runs
    assert job.refresh().state is (State.PAUSED if isinstance(raised, Pause) else State.FAILED)


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_step_that_waits_for_its_next_try_stops_at_once(app, colour):
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise TimeoutError

    if colour == "async":

        @app.task(name="work", lease=9)
        async def work(ctx: Context) -> None:
            await ctx.step("s", fail, retry=Retry(backoff="1h", max_delay="1h"))
    else:

        @app.task(name="work", lease=9)
        def work(ctx: SyncContext) -> None:
            ctx.step("s", fail, retry=Retry(backoff="1h", max_delay="1h"))

    async def main() -> None:
        async with app.worker(retention=None):
            job = await work.aenqueue()
            await until(failed.is_set)
            await job.acancel()
            await until(lambda: job.refresh().state is State.CANCELLED)

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 30


# --- stops and lost leases ------------------------------------------------------------------------------------------


def test_a_plain_step_of_an_async_handler_is_waited_for_when_the_run_is_stopped_and_its_result_is_kept(
    app, backend
):
    begun, go = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        go.wait(20)
        return "done"

    @app.task(lease=9)
    async def work(ctx: Context) -> str:
        return await ctx.step("slow", slow)

    async def main() -> None:
        async with app.worker(retention=None, stop_grace=30.0) as worker:
            job = await work.aenqueue()
            await until(begun.is_set)
            run = worker.attempts.held[job.id]
            await job.apause()
            await until(lambda: run.cause == "requested")
            assert job.refresh().state is State.RUNNING
            go.set()
            await until(lambda: job.refresh().state is State.PAUSED)
            assert stored(backend, job) == {"slow": '"done"'}

    asyncio.run(main())


@pytest.mark.parametrize("colour", ["async", "plain"])
@pytest.mark.parametrize("verb", ["step", "batch", "checkpoint", "transaction", "complete"])
def test_a_run_that_has_lost_its_lease_stores_nothing_and_settles_nothing(app, backend, colour, verb):
    backend.query("CREATE TABLE IF NOT EXISTS leasehold.effect (job text)")
    backend.query("DELETE FROM leasehold.effect")
    effect = "INSERT INTO " + (
        "leasehold_effect" if backend.name == "sqlite" else f'"{backend.schema}".effect'
    )
    after = []

    backend.query("INSERT INTO leasehold.worker_name (name) VALUES ('thief') ON CONFLICT DO NOTHING")

    def steal(job_id: str) -> None:
        backend.query(
            "INSERT INTO leasehold.worker_name (name) VALUES ('thief') ON CONFLICT (name) DO NOTHING"
        )
        backend.query(
            "UPDATE leasehold.lease SET token = token + 1,"
            " worker = (SELECT number FROM leasehold.worker_name WHERE name = 'thief')"
            " WHERE job = (SELECT seq FROM leasehold.job WHERE id = ?)",
            job_id,
        )

    def write(connection) -> None:
        connection.execute(effect + " VALUES ('x')")

    if colour == "async":

        @app.task(name="work")
        async def work(ctx: Context) -> None:
            await asyncio.to_thread(steal, ctx.job_id)
            match verb:
                case "step":
                    await ctx.step("s", int)
                case "batch":
                    for n in range(BATCH_STEPS):
                        await ctx.step(f"s {n}", int, durable="batch")
                case "checkpoint":
                    await ctx.checkpoint(1)
                case "transaction":
                    await ctx.step("s", write, tx=True)
                case "complete":
                    async with ctx.complete() as tx:
                        await tx.run(write)
            after.append(1)
    else:

        @app.task(name="work")
        def work(ctx: SyncContext) -> None:
            steal(ctx.job_id)
            match verb:
                case "step":
                    ctx.step("s", int)
                case "batch":
                    for n in range(BATCH_STEPS):
                        ctx.step(f"s {n}", int, durable="batch")
                case "checkpoint":
                    ctx.checkpoint(1)
                case "transaction":
                    ctx.step("s", write, tx=True)
                case "complete":
                    with ctx.complete() as tx:
                        tx.run(write)
            after.append(1)

    job = work.enqueue()
    worker = burst(app)
    assert after == []
    assert (worker.attempts.lost, worker.attempts.ended, worker.attempts.fenced) == (1, 0, 0)
    assert job.refresh().state is State.RUNNING
    assert (job.__row__.worker, job.__row__.lease_token) == ("thief", 2)
    assert stored(backend, job) == {}
    assert backend.query("SELECT * FROM leasehold.checkpoint") == []
    assert backend.query("SELECT * FROM leasehold.effect") == []


# --- batches --------------------------------------------------------------------------------------------------------


def test_a_batch_is_written_before_the_settle_even_when_the_handler_fails(app, backend):
    @app.task(retry=Retry(backoff=3600))
    async def work(ctx: Context) -> None:
        for n in range(3):
            await ctx.step(f"s {n}", int, durable="batch")
        raise ConnectionError

    job = work.enqueue()
    burst_until_queued(app, job)
    assert sorted(stored(backend, job)) == ["s 0", "s 1", "s 2"]


def burst_until_queued(app, job) -> None:
    async def main() -> None:
        async with app.worker(retention=None):
            await until(lambda: job.refresh().__row__.failures == 1)

    asyncio.run(main())


def test_a_batch_whose_run_does_something_else_is_written_after_about_a_second(app, backend, monkeypatch):
    # Long enough for a look right after the step.
    monkeypatch.setattr(steps, "BATCH_SECONDS", 3.0)
    go = threading.Event()

    @app.task
    def work(ctx: SyncContext) -> None:
        ctx.step("s", int, durable="batch")
        assert stored_now(backend, ctx) == set()
        go.wait(20)

    async def main() -> None:
        async with app.worker(retention=None):
            job = await work.aenqueue()
            await until(lambda: stored(backend, job) == {"s": "0"})
            assert not go.is_set()
            go.set()
            await until(lambda: job.refresh().state is State.SUCCEEDED)

    asyncio.run(main())


def stored_now(backend, ctx) -> set[str]:
    return {row[0] for row in backend.query("SELECT name FROM leasehold.step WHERE job_id = ?", ctx.job_id)}


def test_a_step_that_is_stored_at_once_takes_the_batch_with_it(app, backend):
    seen = {}

    @app.task
    async def work(ctx: Context) -> None:
        for n in range(BATCH_STEPS - 1):
            await ctx.step(f"s {n}", int, durable="batch")
        seen["before"] = len(stored_now(backend, ctx))
        await ctx.step("each", int)
        seen["after"] = len(stored_now(backend, ctx))

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) is None
    assert seen["after"] == BATCH_STEPS
    # On a slow machine a second may have passed, and some were written by the clock.
    assert seen["before"] < BATCH_STEPS


def step_commits(backend: Backend) -> Callable[[], int]:
    """On PostgreSQL those that stored steps: a server's transaction numbers count the work of autovacuum too."""
    if backend.name == "sqlite":
        return counter(backend.url)
    return lambda: backend.query("SELECT count(DISTINCT xmin::text) FROM leasehold.step")[0][0]


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_thousand_cheap_steps_in_batches_cost_at_most_twenty_commits(app, backend, colour):
    commits, _ = steps_bench.measure(app, colour, "batch", step_commits(backend))
    assert 10 <= commits <= steps_bench.BAR
    assert backend.query("SELECT count(*) FROM leasehold.step") == [(steps_bench.STEPS,)]


def test_the_commits_of_steps_that_are_stored_at_once_are_seen_by_the_count(app, backend):
    """The count of the test before can fail."""
    counted = []

    @app.task
    def work(ctx: SyncContext) -> None:
        commits = step_commits(backend)
        before = commits()
        for n in range(30):
            ctx.step(f"s {n}", int)
        counted.append(commits() - before)

    work.enqueue()
    burst(app)
    assert 30 <= counted[0] <= 40
