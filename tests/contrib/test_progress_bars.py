"""Loops written with tqdm and rich report to their job, and end when it is stopped."""

from __future__ import annotations

import asyncio
import io

import pytest
from rich.console import Console

from leasehold import Context, State, SyncContext
from leasehold.contrib.rich import Progress
from leasehold.contrib.tqdm import tqdm
from tests.workers import burst


def progress_of(job) -> tuple[float, float | None, str]:
    found = job.progress()
    return found.done, found.total, found.note


def with_tqdm(ctx: SyncContext, items):
    return tqdm(items, desc="pages", ctx=ctx)


def with_rich(ctx: SyncContext, items):
    with Progress(ctx=ctx) as progress:
        yield from progress.track(items, description="pages")


BOTH = pytest.mark.parametrize("loop", [with_tqdm, with_rich])


@BOTH
def test_a_loop_reports_its_count_and_draws_nothing(app, capfd, loop):
    first = []

    @app.task
    def read(ctx: SyncContext) -> None:
        for page in loop(ctx, ["a", "b", "c"]):
            if page == "a":
                ctx.flush()
                first.append(progress_of(app.get(ctx.job_id)))

    job = read.enqueue()
    burst(app)
    assert job.state is State.SUCCEEDED
    assert first == [(0, 3, "pages")]
    assert progress_of(job) == (3, 3, "pages")
    assert capfd.readouterr() == ("", "")


@BOTH
def test_a_stop_ends_the_loop_before_the_next_item(app, loop):
    seen = []

    @app.task
    def work(ctx: SyncContext) -> None:
        for n in loop(ctx, range(10)):
            seen.append(n)
            if n == 2:
                app.get(ctx.job_id).cancel()
                assert ctx._attempt.wait(30), "it never heard of its stop"

    job = work.enqueue()
    burst(app)
    assert seen == [0, 1, 2]
    assert job.state is State.CANCELLED
    assert progress_of(job) == (3, 10, "pages")


def test_tqdm_in_an_async_loop_reports_too_and_is_stopped(app):
    seen = []

    async def coming():
        for n in range(10):
            await asyncio.sleep(0)
            yield n

    @app.task
    async def work(ctx: Context) -> None:
        async for n in tqdm(coming(), total=10, ctx=ctx):
            seen.append(n)
            if n == 2:
                try:
                    await app.get(ctx.job_id).acancel()
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    assert ctx.stop_requested

    job = work.enqueue()
    burst(app)
    assert seen == [0, 1, 2]
    assert job.state is State.CANCELLED
    assert job.progress().total == 10


@pytest.mark.parametrize("disable", [None, False])
def test_a_tqdm_bar_that_is_moved_by_hand_reports(app, disable):
    @app.task
    def load(ctx: SyncContext) -> None:
        # None: not where there is no terminal, as libraries ask for it.
        with tqdm(total=1000, ctx=ctx, disable=disable) as bar:
            bar.set_description("model.bin")
            bar.update(300)
            bar.update(200.0)

    job = load.enqueue()
    burst(app)
    assert progress_of(job) == (500, 1000, "model.bin")


def test_of_several_rich_tasks_the_oldest_unfinished_one_is_reported(app):
    seen = []

    @app.task
    def train(ctx: SyncContext) -> None:
        def look() -> None:
            ctx.flush()
            seen.append(progress_of(app.get(ctx.job_id)))

        with Progress(ctx=ctx) as progress:
            epochs = progress.add_task("epochs", total=2)
            batches = progress.add_task("batches", total=50)
            progress.advance(batches, 50)
            look()
            progress.update(epochs, completed=2)
            look()
            progress.add_task("upload", total=7, completed=3)
            look()

    train.enqueue()
    burst(app)
    assert seen == [(0, 2, "epochs"), (50, 50, "batches"), (3, 7, "upload")]


def test_without_a_context_both_draw_as_ever():
    drawn = io.StringIO()
    assert list(tqdm(range(3), desc="pages", file=drawn)) == [0, 1, 2]
    assert "pages: 100%" in drawn.getvalue()
    shown = io.StringIO()
    with Progress(console=Console(file=shown, force_terminal=True, width=80)) as progress:
        assert list(progress.track(range(3), description="pages")) == [0, 1, 2]
    assert "100%" in shown.getvalue()
