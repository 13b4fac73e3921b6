"""`ctx.track`: loops that report how far they are and end between two items when their run is stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from leasehold import Context, Retry, State, SyncContext
from leasehold.errors import InvalidInput
from leasehold.run import stream as tracking
from leasehold.run.handler_state import HandlerState
from tests.workers import burst


async def coming(count: int) -> AsyncIterator[int]:
    for n in range(count):
        await asyncio.sleep(0)
        yield n


def one_by_one(count: int) -> Iterator[int]:
    yield from range(count)


def progress_of(job) -> tuple[float, float | None, str]:
    found = job.progress()
    return found.done, found.total, found.note


# -- what is reported ------------------------------------------------------------------------------------------------
def test_a_loop_reports_how_many_items_of_how_many_are_done(app):
    seen = []

    @app.task
    def read(ctx: SyncContext) -> None:
        job = app.get(ctx.job_id)
        for page in ctx.track(["a", "b", "c"], description="pages"):
            ctx.flush()
            seen.append((page, *progress_of(job)))

    job = read.enqueue()
    burst(app)
    assert seen == [("a", 0, 3, "pages"), ("b", 1, 3, "pages"), ("c", 2, 3, "pages")]
    assert progress_of(job) == (3, 3, "pages")


def test_an_async_handler_loops_over_what_comes_and_over_what_is_there(app):
    seen = []

    @app.task
    async def read(ctx: Context) -> None:
        job = app.get(ctx.job_id)
        async for n in ctx.track(coming(2), total=2, description="coming"):
            await ctx.flush()
            seen.append((n, *await asyncio.to_thread(progress_of, job)))
        await ctx.flush()
        seen.append(await asyncio.to_thread(progress_of, job))
        for n in ctx.track(range(3), description="there"):
            seen.append(n)

    job = read.enqueue()
    burst(app)
    assert seen == [(0, 0, 2, "coming"), (1, 1, 2, "coming"), (2, 2, "coming"), 0, 1, 2]
    assert progress_of(job) == (3, 3, "there")


@pytest.mark.parametrize(
    ("items", "said", "reported"),
    [
        (lambda: one_by_one(4), {}, (4, None, "")),
        (lambda: one_by_one(4), {"total": 9}, (4, 9, "")),
        (lambda: range(4), {"total": 9}, (4, 9, "")),
        (lambda: range(2, 4), {"start": 2}, (4, 4, "")),
        (lambda: one_by_one(2), {"start": 2, "total": 5}, (4, 5, "")),
        (lambda: (), {}, (0, 0, "")),
    ],
)
def test_the_total_is_the_length_unless_it_is_given(app, items, said, reported):
    @app.task
    def read(ctx: SyncContext) -> None:
        for _ in ctx.track(items(), **said):
            pass

    job = read.enqueue()
    burst(app)
    assert progress_of(job) == reported


def test_a_quick_loop_reports_a_few_times_and_its_last_count(app):
    reports, took = [], []

    @app.task
    def count(ctx: SyncContext) -> None:
        started = time.monotonic()
        for _ in ctx.track(range(20_000)):
            pass
        took.append(time.monotonic() - started)
        reports.append(ctx._attempt.stream.number)

    job = count.enqueue()
    burst(app)
    assert progress_of(job) == (20_000, 20_000, "")
    # One for the start and one for the end besides.
    assert reports[0] <= tracking.REPORTED_SINGLY + took[0] / tracking.REPORT_EVERY + 2


@pytest.mark.parametrize("how", ["raised", "left"])
def test_a_loop_that_is_left_early_has_reported_what_was_done(app, how):
    """More items than are each reported: the last count is not left out."""
    done = tracking.REPORTED_SINGLY + 20

    @app.task(retry=Retry(max_attempts=1))
    def read(ctx: SyncContext) -> None:
        for n in ctx.track(range(1000)):
            if n == done and how == "left":
                break
            if n == done:
                raise OSError("cut off")

    job = read.enqueue()
    burst(app)
    assert progress_of(job) == (done, 1000, "")


# -- stops -----------------------------------------------------------------------------------------------------------
def test_a_stop_ends_a_plain_loop_before_the_next_item(app):
    seen = []

    @app.task
    def work(ctx: SyncContext) -> None:
        for n in ctx.track(range(10)):
            seen.append(n)
            if n == 2:
                app.get(ctx.job_id).cancel("not needed")
                assert ctx._attempt.wait(30), "it never heard of its stop"

    job = work.enqueue()
    burst(app)
    assert seen == [0, 1, 2]
    assert job.state is State.CANCELLED
    assert progress_of(job) == (3, 10, "")


@pytest.mark.parametrize("colour", ["for", "async for"])
def test_a_stop_ends_the_loop_of_an_async_handler_that_has_swallowed_its_cancellation(app, colour):
    seen = []

    @app.task
    async def work(ctx: Context) -> None:
        async def one(n: int) -> None:
            seen.append(n)
            if n == 2:
                try:
                    # The cancellation may come before this call has returned.
                    await app.get(ctx.job_id).acancel("not needed")
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    assert ctx.stop_requested

        if colour == "for":
            for n in ctx.track(range(10)):
                await one(n)
        else:
            async for n in ctx.track(coming(10), total=10):
                await one(n)

    job = work.enqueue()
    burst(app)
    assert seen == [0, 1, 2]
    assert job.state is State.CANCELLED
    assert progress_of(job) == (3, 10, "")


def test_a_stop_after_the_last_item_lets_the_handler_go_on(app):
    after = []

    @app.task
    def work(ctx: SyncContext) -> None:
        for n in ctx.track(range(3)):
            if n == 2:
                app.get(ctx.job_id).cancel()
                assert ctx._attempt.wait(30), "it never heard of its stop"
        after.append(ctx.stop_requested)

    work.enqueue()
    burst(app)
    assert after == [True]


# -- in a process of its own ------------------------------------------------------------------------------------------
def count_in_process(ctx: SyncContext, count: int) -> int:
    return sum(ctx.track(range(count), description="in a child"))


@pytest.mark.slow
def test_a_task_in_a_process_of_its_own_reports_too(app):
    job = app.task(run_in="process")(count_in_process).enqueue(5000)
    burst(app)
    assert job.result(timeout=0) == sum(range(5000))
    assert progress_of(job) == (5000, 5000, "in a child")


# -- wrong calls ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("context", [Context, SyncContext])
@pytest.mark.parametrize(
    ("items", "said", "field"),
    [(7, {}, "items"), (range(3), {"total": "many"}, "total"), (range(3), {"start": float("nan")}, "done")],
)
def test_a_wrong_call_is_refused_at_once_not_at_the_first_item(context, items, said, field):
    with pytest.raises(InvalidInput) as refused:
        context(HandlerState()).track(items, **said)
    assert refused.value.field == field


def test_a_plain_handler_cannot_loop_over_an_async_iterator():
    with pytest.raises(InvalidInput, match="cannot be looped over"):
        SyncContext(HandlerState()).track(coming(3))
