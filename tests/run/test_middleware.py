"""`@app.middleware`: around every run of its colour."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from leasehold import Context, Retry, State, SyncContext
from leasehold.errors import InvalidInput
from leasehold.types import Run
from tests.workers import burst


def test_middleware_is_around_every_run_and_sees_what_it_runs(app):
    seen: list[tuple[str, Run]] = []

    @app.task(queue="q", lane="{to}")
    async def before_it(ctx: Context, to: str, n: int = 1) -> int:
        seen.append(("handler", None))
        return n

    @app.middleware
    async def outer(run, call_next):
        seen.append(("outer", run))
        answer = await call_next()
        seen.append(("outer ends", run))
        return answer + 10

    @app.middleware
    async def inner(run, call_next):
        seen.append(("inner", run))
        return await call_next() * 2

    @app.task(queue="q")
    async def after_it() -> int:
        return 5

    first = before_it.using(group="g", trace="00-abc").enqueue("t", n=3)
    second = after_it.enqueue()
    burst(app, queues="q", concurrency=1)
    assert (first.result(timeout=0), second.result(timeout=0)) == (16, 20)
    assert [name for name, _ in seen[:4]] == ["outer", "inner", "handler", "outer ends"]
    run = seen[0][1]
    assert (run.job_id, run.task, run.queue, run.attempt) == (first.id, "before_it", "q", 1)
    assert (run.args, run.lane, run.group, run.trace) == ({"to": "t", "n": 3}, "t", "g", "00-abc")


def test_plain_middleware_is_around_plain_tasks_and_async_around_async_ones(app):
    seen = []

    @app.middleware
    def plain(run, call_next):
        seen.append(("plain", run.task))
        return call_next()

    @app.middleware
    async def on_loop(run, call_next):
        seen.append(("async", run.task))
        return await call_next()

    @app.task
    def in_thread(ctx: SyncContext) -> str:
        return "thread"

    @app.task
    async def on_the_loop() -> str:
        return "loop"

    jobs = [in_thread.enqueue(), on_the_loop.enqueue()]
    burst(app)
    assert [job.result(timeout=0) for job in jobs] == ["thread", "loop"]
    assert sorted(seen) == [("async", "on_the_loop"), ("plain", "in_thread")]


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_middleware_sees_the_exception_and_what_it_raises_counts(app, colour):
    seen = []

    @app.middleware
    async def on_loop(run, call_next):
        try:
            return await call_next()
        except ValueError as error:
            seen.append((run.attempt, str(error)))
            if run.attempt == 2:
                raise KeyError("instead") from error
            raise

    @app.middleware
    def plain(run, call_next):
        try:
            return call_next()
        except ValueError as error:
            seen.append((run.attempt, str(error)))
            if run.attempt == 2:
                raise KeyError("instead") from error
            raise

    if colour == "async":

        @app.task(name="work", retry=Retry(max_attempts=2, backoff=0))
        async def work() -> None:
            raise ValueError("no")
    else:

        @app.task(name="work", retry=Retry(max_attempts=2, backoff=0))
        def work() -> None:
            raise ValueError("no")

    job = work.enqueue()
    burst(app)
    assert seen == [(1, "no"), (2, "no")]
    assert job.refresh().state is State.FAILED
    assert job.error.startswith("KeyError: 'instead'")
    assert "caused by ValueError: no" in job.error


def test_what_middleware_sets_is_seen_in_the_handler_and_in_its_tasks(app):
    span: ContextVar[str] = ContextVar("span", default="none")

    @app.middleware
    async def trace(run, call_next):
        token = span.set(f"span of {run.task}")
        try:
            return await call_next()
        finally:
            span.reset(token)

    @app.task
    async def work() -> list[str]:
        async def child() -> str:
            return span.get()

        return [span.get(), await asyncio.create_task(child()), await asyncio.to_thread(span.get)]

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) == ["span of work"] * 3


def test_an_object_that_is_called_is_middleware_of_the_colour_of_its_call(app):
    class Doubling:
        async def __call__(self, run, call_next):
            return 2 * await call_next()

    app.middleware(Doubling())

    @app.task
    async def work() -> int:
        return 4

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) == 8


def test_middleware_is_around_runs_of_run_now_too(app):
    seen = []

    @app.middleware
    def plain(run, call_next):
        seen.append(run.task)
        return call_next()

    @app.task(max_running=1)
    def work() -> int:
        return 1

    assert app.run_now(work).result(timeout=20) == 1
    assert seen == ["work"]


@pytest.mark.parametrize("bad", [7, lambda run: None, lambda: None, lambda run, call_next, more: None])
def test_what_is_no_middleware_is_refused(app, bad):
    with pytest.raises(InvalidInput, match="middleware"):
        app.middleware(bad)


def test_without_middleware_the_handler_is_called_as_it_is(app):
    @app.task
    def work() -> None: ...

    definition = app.__internals__.find_task("work")
    assert definition.handler is definition.function
