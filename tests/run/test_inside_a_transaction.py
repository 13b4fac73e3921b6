"""Code inside `ctx.complete` and `step(tx=True)`: what would wait for the open transaction is refused at once, alike on
both stores."""

from __future__ import annotations

import asyncio
import time

import pytest

from leasehold import Context, Leasehold, Retry, State, SyncContext
from leasehold.errors import InvalidInput
from leasehold.run import steps
from leasehold.stores.sqlite import connections
from tests.workers import burst

SPARED = 30.0
AT_ONCE = 12.0
"""Seconds: the wait that is spared would take 30."""


@pytest.fixture(autouse=True)
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than they are in life, so that a loaded machine is not taken for one of them."""
    monkeypatch.setattr(steps, "TRANSACTION_SECONDS", SPARED)
    monkeypatch.setattr(connections, "BUSY_SECONDS", SPARED)


class Tried:
    """What was tried inside a block, and how it ended."""

    def __init__(self) -> None:
        self.ends: dict[str, str] = {}
        self.texts: list[str] = []
        self.longest = 0.0

    def call(self, name, function):
        began = time.monotonic()
        try:
            function()
            self.ends[name] = "done"
        except InvalidInput as error:
            self.note(name, error)
        self.longest = max(self.longest, time.monotonic() - began)

    async def acall(self, name, function):
        began = time.monotonic()
        try:
            await function()
            self.ends[name] = "done"
        except InvalidInput as error:
            self.note(name, error)
        self.longest = max(self.longest, time.monotonic() - began)

    def note(self, name, error):
        self.ends[name] = "refused"
        self.texts.append(str(error))

    def refused(self) -> set[str]:
        assert self.longest < AT_ONCE
        for text in self.texts:
            assert "inside a transaction that is open on" in text
            assert "ctx.enqueue" in text
        return {name for name, end in self.ends.items() if end == "refused"}


@pytest.fixture
def tried() -> Tried:
    return Tried()


@pytest.fixture
def other(app):
    @app.task
    async def other(n: int = 0) -> int:
        return n

    return other


def test_writes_are_refused_inside_a_plain_block_and_reads_and_follow_ups_are_not(app, tried, other):
    waiting = other.using(delay="1h").enqueue()

    @app.task(budget={"tokens": 100})
    def work(ctx: SyncContext) -> str:
        with ctx.complete("done") as tx:
            tried.call("enqueue", lambda: other.enqueue(1))
            tried.call("enqueue_many", lambda: other.enqueue_many([{"n": 1}]))
            tried.call("now", lambda: ctx.enqueue(other.using(immediately=True), 2))
            tried.call("step", lambda: ctx.step("s", tried.ends.setdefault, "step ran", "done"))
            tried.call("cheap step", lambda: ctx.step("c", int, durable="batch"))
            tried.call("tx step", lambda: ctx.step("t", lambda connection: 1, tx=True))
            tried.call("checkpoint", lambda: ctx.checkpoint(1))
            tried.call("cancel", waiting.cancel)
            tried.call("acquire", lambda: ctx.acquire("slot"))
            tried.call("run", lambda: tx.run(lambda connection: other.enqueue(3)))
            tried.call("follow-up", lambda: ctx.enqueue(other, 7))
            tried.call("read", lambda: app.get(waiting.id))
            tried.call("saved", lambda: ctx.saved)
            tried.call("progress", lambda: ctx.progress(1, 2))
            tried.call("emit", lambda: ctx.emit("task", 1))
            tried.call("log", lambda: ctx.log("line"))
            tried.call("spend", lambda: ctx.spend(tokens=5))
        return ""

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) == "done"
    assert tried.refused() == {
        *(
            "enqueue",
            "enqueue_many",
            "now",
            "step",
            "cheap step",
            "tx step",
            "checkpoint",
            "cancel",
            "acquire",
            "run",
        ),
    }
    assert "step ran" not in tried.ends
    assert waiting.refresh().state is State.QUEUED
    assert [line.spent for line in job.budget()] == [5]
    assert [found.args for found in map(app.get, follow_ups_of(job))] == [{"n": 7}]
    assert sum(app.count().values()) == 3


def follow_ups_of(job):
    return [one.id for one in job.relatives() if one.relation == "follow_up"]


def test_writes_are_refused_inside_an_async_block_and_in_what_it_starts(app, tried, other):
    @app.task
    async def work(ctx: Context) -> str:
        async with ctx.complete("done") as tx:
            await tried.acall("aenqueue", lambda: other.aenqueue(1))
            tried.call("enqueue", lambda: other.enqueue(1))
            await tried.acall("step", lambda: ctx.step("s", int))
            await tried.acall("checkpoint", lambda: ctx.checkpoint(1))
            await tried.acall("child", lambda: asyncio.create_task(other.aenqueue(2)))
            await tried.acall("run", lambda: tx.run(lambda connection: other.enqueue(3)))
            await tried.acall("read", lambda: app.aget(ctx.job_id))
            tried.call("follow-up", lambda: ctx.enqueue(other, 7))
        return ""

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) == "done"
    assert tried.refused() == {"aenqueue", "enqueue", "step", "checkpoint", "child", "run"}
    assert sum(app.count().values()) == 2


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_writes_are_refused_inside_a_step_with_tx(app, tried, other, colour):
    def inside(connection, ctx) -> int:
        tried.call("enqueue", lambda: other.enqueue(1))
        tried.call("read", lambda: app.get(ctx.job_id))
        if colour == "plain":
            tried.call("step", lambda: ctx.step("inner", int))
            tried.call("complete", lambda: ctx.complete(1).__enter__())
        return 4

    if colour == "async":

        @app.task(name="work")
        async def work(ctx: Context) -> int:
            found = await ctx.step("s", inside, ctx, tx=True)
            return found + (await other.aenqueue(5) is not None)
    else:

        @app.task(name="work")
        def work(ctx: SyncContext) -> int:
            return ctx.step("s", inside, ctx, tx=True) + (other.enqueue(5) is not None)

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) == 5, "after the step the handler may write again"
    assert tried.refused() == ({"enqueue"} if colour == "async" else {"enqueue", "step", "complete"})
    assert sum(app.count().values()) == 2


def test_the_refusal_fails_the_run_for_good_and_undoes_the_block(app, other):
    waited = []

    @app.task(retry=Retry(max_attempts=3, backoff=0))
    async def work(ctx: Context) -> str:
        async with ctx.complete("done"):
            began = time.monotonic()
            try:
                await other.aenqueue(1)
            finally:
                waited.append(time.monotonic() - began)
        return ""

    job = work.enqueue()
    burst(app)
    assert max(waited) < AT_ONCE
    assert (job.refresh().state, job.attempt) == (State.FAILED, 1)
    assert "inside a transaction that is open on" in job.error


def test_other_jobs_and_what_outlives_the_block_may_write(app, other):
    """On SQLite they wait for the block's end, as every writer does."""
    inside, children = asyncio.Event(), []

    async def late(ctx: Context) -> str:
        await asyncio.sleep(0)
        while not ctx._attempt.completed:
            await asyncio.sleep(0.01)
        return (await other.aenqueue(1)).id

    @app.task
    async def work(ctx: Context) -> str:
        async with ctx.complete("done"):
            children.append(asyncio.create_task(late(ctx)))
            inside.set()
            await asyncio.sleep(0.05)
        (made,) = await asyncio.gather(*children)
        assert app.get(made).task == "other"
        app.get(made).cancel()
        return ""

    @app.task
    async def neighbour() -> str:
        await inside.wait()
        return (await other.aenqueue(2)).id

    first, second = work.enqueue(), neighbour.enqueue()
    burst(app)
    assert first.result(timeout=0) == "done"
    assert app.get(second.result(timeout=0)).state is State.SUCCEEDED


def test_another_store_may_be_written_to_inside_the_block(app, tmp_path):
    with Leasehold(f"sqlite:///{tmp_path}/another.db") as elsewhere:

        @elsewhere.task
        def there() -> None: ...

        @app.task
        def work(ctx: SyncContext) -> str:
            with ctx.complete("done"):
                there.enqueue()
            return ""

        job = work.enqueue()
        burst(app)
        assert job.result(timeout=0) == "done"
        assert elsewhere.count()[State.QUEUED] == 1
