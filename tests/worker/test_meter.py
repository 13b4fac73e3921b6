"""A worker counts what it settles, exactly, and writes it down with its beats and at its end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import cast

import pytest

from leasehold import Context, Leasehold, Retry
from leasehold.domain.errors import DatabaseUnreachable
from leasehold.domain.metrics import MOST_PAIRS, Rollup, Tally, Times
from leasehold.domain.policy import Policy
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from leasehold.types import Fail, Metrics, Pause, Reaped, Snooze, State
from leasehold.worker.meter import Meter
from leasehold.worker.reaper import Reaper
from tests.backends import new_job
from tests.workers import burst, until


def counted(view: Leasehold) -> Counter[tuple[str, str]]:
    """By kind and outcome."""
    return Counter({(one.task, one.outcome): one.attempts for one in view.metrics().totals})


@pytest.fixture
def app(app: Leasehold) -> Leasehold:
    @app.task
    async def good(n: int = 0) -> None: ...

    @app.task
    def in_thread() -> None: ...

    @app.task(retry=Retry(max_attempts=1))
    async def bad() -> None:
        raise ValueError("no")

    @app.task(retry=Retry(max_attempts=3, backoff=0))
    async def third_time(ctx: Context) -> None:
        if ctx.attempt < 3:
            raise ValueError("not yet")

    @app.task(retry=Retry(max_attempts=1))
    async def slow() -> None:
        await asyncio.sleep(60)

    @app.task
    async def ends(ctx: Context, how: str) -> None:
        if how == "pause":
            raise Pause("later")
        if how == "fail":
            raise Fail("never")
        if how == "snooze" and ctx.attempt == 1:
            raise Snooze(0.0)
        if how == "ask":
            await ctx.ask("go", "May I?")

    @app.task
    async def completes(ctx: Context) -> None:
        async with ctx.complete():
            pass

    return app


def test_a_burst_with_known_ends_gives_exact_counters(app: Leasehold):
    app.enqueue("good").cancel()  # it never runs
    for n in range(7):
        app.enqueue("good", {"n": n})
    for task in ("in_thread", "bad", "bad", "third_time", "completes"):
        app.enqueue(task)
    for how in ("pause", "fail", "snooze", "ask"):
        app.enqueue("ends", {"how": how})
    app.enqueue("slow", timeout=0.05)
    burst(app)
    assert counted(app) == {
        ("good", "succeeded"): 7,
        ("in_thread", "succeeded"): 1,
        ("completes", "succeeded"): 1,
        ("bad", "failed"): 2,
        ("third_time", "retried"): 2,
        ("third_time", "succeeded"): 1,
        ("slow", "timed_out"): 1,
        ("ends", "paused"): 1,
        ("ends", "failed"): 1,
        ("ends", "snoozed"): 1,
        ("ends", "succeeded"): 1,
        ("ends", "waiting"): 1,
    }
    for one in app.metrics().totals:
        assert one.wait.count == one.duration.count == one.attempts, one
    slow = next(one for one in app.metrics().totals if one.task == "slow")
    assert slow.duration.seconds >= 0.05
    rollups = app.__internals__.operations.rollups(60)
    assert sum(one.attempts for one in rollups) == 20
    assert {one.task for one in app.__internals__.operations.rollups(60, task="bad")} == {"bad"}


def test_two_workers_add_up(app: Leasehold):
    async def both() -> None:
        async with app.worker(queues="a"), app.worker(queues="b"):
            for queue in "aab":
                await app.aenqueue("good", queue=queue)
            await until(lambda: not app.count()["queued"] and not app.count()["running"])

    for expected in (1, 2):
        asyncio.run(both())
        runs = {(one.queue, one.outcome): one.attempts for one in app.metrics().totals}
        assert runs == {("a", "succeeded"): 2 * expected, ("b", "succeeded"): expected}


def test_a_worker_writes_with_its_beat_and_not_only_at_its_end(app: Leasehold, monkeypatch):
    monkeypatch.setattr("leasehold.worker.worker.PRESENCE_EVERY", 0.05)

    async def work() -> None:
        async with app.worker():
            await app.aenqueue("good")
            await until(lambda: counted(app) == {("good", "succeeded"): 1})
            metrics = await app.ametrics()
            assert (metrics.workers, metrics.places) == (1, 28)

    asyncio.run(work())
    assert app.metrics().workers == 0


def test_what_ends_while_its_worker_drains_is_written_too(app: Leasehold):
    store, began = app.__internals__.store, asyncio.Event()

    @app.task
    async def last() -> None:
        began.set()
        # Its worker has told so with its last beat; what ends from here on is written when it signs off.
        await until(lambda: any(card.draining for card in store.list_workers()))

    async def work() -> None:
        async with app.worker():
            await app.aenqueue("last")
            await asyncio.wait_for(began.wait(), 20)

    asyncio.run(work())
    assert counted(app) == {("last", "succeeded"): 1}


def test_a_run_that_is_cancelled_counts_as_cancelled(app: Leasehold):
    begun = asyncio.Event()

    @app.task(name="endless")
    async def endless() -> None:
        begun.set()
        await asyncio.sleep(60)

    async def work() -> None:
        async with app.worker():
            job = await app.aenqueue("endless")
            await asyncio.wait_for(begun.wait(), 20)
            await job.acancel()
            await until(lambda: job.refresh().state is State.CANCELLED)

    asyncio.run(work())
    assert counted(app) == {("endless", "cancelled"): 1}


class Flaky:
    """A store that is away until it is back."""

    def __init__(self, real: JobStore) -> None:
        self.real = real
        self.away = True

    def add_rollups(self, rollups: list[Rollup], *, tenant: str | None = None) -> None:
        if self.away:
            raise DatabaseUnreachable("it", "gone")
        self.real.add_rollups(rollups, tenant=tenant)


def test_what_the_database_does_not_take_is_kept_and_written_once(app: Leasehold):
    flaky = Flaky(app.__internals__.store)
    meter = Meter(cast(JobStore, flaky))
    for _ in range(2):
        meter.count_losses([Reaped("x", "w", State.QUEUED, orphan=False, task="good", queue="default")])
        with pytest.raises(DatabaseUnreachable):
            meter.flush()
    assert app.metrics().totals == []
    flaky.away = False
    meter.flush()
    meter.flush()
    assert counted(app) == {("good", "lost"): 2}


def test_what_was_taken_and_put_back_is_what_it_was():
    tally, again = Tally(), Tally()
    times = Times(2)
    times.waits, times.durations = [2.0, 0.01, 1e6, 0.001], [1.0, 2.0]
    tally.add("acme", "default", "good", "succeeded", times)
    taken = tally.taken()
    again.put_back("acme", taken["acme"])
    assert again.taken() == taken
    (one,) = taken["acme"]
    assert one.wait.buckets == (2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1), (
        "a bound belongs to the bucket below it"
    )


def test_run_now_and_run_by_id_count_as_well(app: Leasehold):
    task = app.__internals__.named_task("good", {"max_running": 2})
    app.run_now(task).result(timeout=20)
    app.run_by_id(app.enqueue("good").id)
    app.close()
    assert counted(app) == {("good", "succeeded"): 2}


def test_jobs_of_tenants_count_in_their_own_stores(app: Leasehold, tenants: None):
    for name, jobs in (("acme", 2), ("beta", 1)):
        for _ in range(jobs):
            app.tenant(name).enqueue("good")
    app.enqueue("good")
    burst(app, tenants="all")
    app.tenant("beta").run_now(app.__internals__.named_task("good", {"max_running": 2})).result(timeout=20)
    app.close()
    assert counted(app.tenant("acme")) == {("good", "succeeded"): 2}
    assert counted(app.tenant("beta")) == {("good", "succeeded"): 2}
    assert counted(app) == {("good", "succeeded"): 1}


@pytest.fixture
def tenants(app: Leasehold) -> Iterator[None]:
    for name in ("acme", "beta"):
        app.tenants.create(name)
    yield
    for row in app.tenants.list():
        app.tenants.drop(row.name)


@pytest.fixture
def clocked(backend) -> Iterator[tuple[Leasehold, ManualClock]]:
    clock = ManualClock()
    with Leasehold(backend.url, schema=backend.schema, clock=clock) as app:
        app.task(name="work")(lambda: None)
        yield app, clock


def test_a_loss_is_counted_once_by_who_finds_it(clocked: tuple[Leasehold, ManualClock]):
    app, clock = clocked
    store = app.__internals__.store
    store.enqueue([new_job(), new_job(task="last", policy=Policy(max_attempts=1, count_lost=True))])
    assert len(store.claim("gone", ["default"], 2)) == 2
    clock.advance(31)
    app.sweep(wait=0)
    clock.advance(10)
    assert len(app.sweep(wait=0)) == 2
    assert counted(app) == {("work", "lost"): 1, ("last", "failed"): 1}
    assert {one.duration.count for one in app.metrics().totals} == {0}


def test_a_loss_counts_for_the_tenant_whose_job_it_was(clocked: tuple[Leasehold, ManualClock]):
    app, clock = clocked
    for name in ("acme", "beta"):
        app.tenants.create(name)
    try:
        app.tenant("acme").__internals__.store.enqueue([new_job()])
        assert app.tenant("acme").__internals__.store.claim("gone", ["default"], 1)
        many = app.__internals__.shared.stores.serving(["acme", "beta"])
        reaper = Reaper(many, 1.0)
        clock.advance(31)
        reaper.sweep_now(0)
        clock.advance(10)
        reaper.sweep_now(0)
        found = [counted(view) for view in (app.tenant("acme"), app.tenant("beta"), app)]
        assert found == [{("work", "lost"): 1}, {}, {}]
    finally:
        for row in app.tenants.list():
            app.tenants.drop(row.name)


def test_a_worker_keeps_a_bounded_number_of_labels_between_two_beats():
    tally = Tally()
    for n in range(1000):
        tally.add(None, f"queue {n % 500}", f"kind {n}", "succeeded", Times(1))
    rollups = tally.taken()[None]
    assert len({(one.queue, one.task) for one in rollups}) <= MOST_PAIRS
    assert sum(one.attempts for one in rollups) == 1000


def test_a_look_at_an_empty_store_is_empty(app: Leasehold):
    assert app.metrics() == Metrics([], [], [], [], [], 0, 0, 0, 0)
