"""Tenants on both stores: jobs apart, one fleet for all of them, in turn."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from leasehold import Context, Leasehold, SyncContext
from leasehold.errors import InvalidInput, JobNotFound, TenantNotFound
from leasehold.operations import workers
from leasehold.types import NotRun, RunResult, State
from tests.workers import burst, until

Make = Callable[..., None]


@pytest.fixture
def make(app: Leasehold) -> Iterator[Make]:
    """Make tenants; they are dropped with the test."""

    def make(*names: str) -> None:
        for name in names:
            assert app.tenants.create(name)

    yield make
    for row in app.tenants.list():
        app.tenants.drop(row.name)


@pytest.fixture
def seen(app: Leasehold) -> list[tuple[str | None, str]]:
    """Whose jobs have run, and which."""
    found: list[tuple[str | None, str]] = []

    @app.task
    async def note(ctx: Context, what: str = "") -> str | None:
        found.append((ctx.tenant, what))
        return ctx.tenant

    @app.task
    def note_in_thread(ctx: SyncContext, what: str = "") -> str | None:
        found.append((ctx.tenant, what))
        return ctx.tenant

    return found


def test_a_tenants_jobs_are_its_own(app: Leasehold, make: Make, seen):
    make("acme", "beta")
    acme, beta = app.tenant("acme"), app.tenant("beta")
    theirs = acme.enqueue("note", {"what": "a"})
    own = app.enqueue("note", {"what": "own"})
    assert acme.get(theirs.id).id == theirs.id
    assert theirs.state is State.QUEUED
    for view in (app, beta):
        with pytest.raises(JobNotFound):
            view.get(theirs.id)
    with pytest.raises(JobNotFound):
        acme.get(own.id)
    assert [job.id for job in acme.jobs().jobs] == [theirs.id]
    assert beta.jobs().jobs == []
    assert acme.count()[State.QUEUED] == 1
    assert beta.stop(everything=True).cancelled_counts == {}
    acme.queues.pause("default")
    assert acme.queues.paused()
    assert app.queues.paused() == beta.queues.paused() == []


def test_using_tenant_stores_it_there(app: Leasehold, make: Make, seen):
    make("acme")
    note = app.__internals__.named_task("note", {})
    job = note.using(tenant="acme", group="g").enqueue("x")
    many = note.using(tenant="acme").enqueue_many([{"what": str(number)} for number in range(60)])
    flow = app.tenant("acme").chain(note.bind("1"), note.bind("2")).enqueue()
    assert {one.id for one in (job, *many, *flow)} == {
        one.id for one in app.tenant("acme").jobs(limit=100).jobs
    }
    assert app.jobs().jobs == []
    assert app.tenant("acme").group("g").status().live
    with pytest.raises(InvalidInput, match="begin with app"):
        app.chain(note.using(tenant="acme").bind("1"), note.bind("2"))
    with pytest.raises(InvalidInput, match="after the commit"):
        note.using(tenant="acme", tx=object()).enqueue("x")


def test_a_tenant_that_is_not_there_is_refused_with_the_remedy(app: Leasehold, seen):
    with pytest.raises(TenantNotFound, match="leasehold tenants create nobody"):
        app.enqueue("note", tenant="nobody")
    with pytest.raises(TenantNotFound):
        app.tenant("nobody").jobs()
    with pytest.raises(TenantNotFound):
        app.worker(tenants=["nobody"])
    with pytest.raises(TenantNotFound):
        app.tenants.drop("nobody")


@pytest.mark.parametrize("name", ["", "Acme", "1st", "a-b", "a" * 49, "../x", "all", "ä", None])
def test_names_are_checked(app: Leasehold, name):
    with pytest.raises(InvalidInput, match="tenant"):
        app.tenant(name)
    with pytest.raises(InvalidInput, match="tenant"):
        app.tenants.create(name)


def test_a_worker_of_named_tenants_serves_them_alone(app: Leasehold, make: Make, seen):
    make("acme", "beta", "gamma")
    for whose in ("acme", "beta", "gamma"):
        for task in ("note", "note_in_thread"):
            app.enqueue(task, {"what": task}, tenant=whose)
    app.enqueue("note", {"what": "own"})
    burst(app, tenants=["acme", "gamma"])
    assert sorted(seen) == [
        (whose, task) for whose in ("acme", "gamma") for task in ("note", "note_in_thread")
    ]
    assert app.count()[State.QUEUED] == 1
    assert app.tenant("beta").count()[State.QUEUED] == 2
    burst(app, tenants="all")
    assert set(seen[4:]) == {("beta", "note"), ("beta", "note_in_thread"), (None, "own")}


def test_a_worker_of_the_app_serves_no_tenant(app: Leasehold, make: Make, seen):
    make("acme")
    app.enqueue("note", tenant="acme")
    burst(app)
    assert seen == []
    assert app.tenant("acme").count()[State.QUEUED] == 1


def test_a_burst_ends_when_all_tenants_have_been_asked(
    app: Leasehold, make: Make, seen, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("leasehold.stores.tenants.multi_store.MOST_TENANTS_A_CLAIM", 1)
    names = ["acme", "beta", "gamma"]
    make(*names)
    for number, name in enumerate(names):
        app.enqueue("note", tenant=name)
        burst(app, tenants=names)
        assert len(seen) == number + 1


def test_a_worker_whose_threads_are_taken_does_not_ask_without_end(app: Leasehold, make: Make, seen):
    make("acme")
    began, goes_on = threading.Event(), threading.Event()
    requested: list[float] = []

    @app.task
    def held() -> None:
        began.set()
        goes_on.wait(60)

    async def serve() -> None:
        async with app.worker(tenants=["acme"], threads=1, poll=60, retention=None) as worker:
            app.enqueue("held", tenant="acme")
            await asyncio.to_thread(began.wait, 60)
            app.enqueue("note", tenant="acme")
            await until(lambda: seen)
            claim = worker._store.claim
            worker._store.claim = lambda *args, **how: (
                requested.append(time.monotonic()) or claim(*args, **how)
            )
            await asyncio.sleep(1)  # not for something to happen, but to see that it does not
            goes_on.set()

    asyncio.run(serve())
    assert len(requested) < 20


def test_all_that_a_run_does_goes_to_its_own_tenant(app: Leasehold, make: Make, seen):
    make("acme", "beta")
    note = app.__internals__.named_task("note", {})

    @app.task(slots={"browser": 1}, lane="l", budget={"tokens": 10})
    async def busy(ctx: Context) -> str | None:
        async def one() -> int:
            return 1

        await ctx.step("one", one)
        await ctx.checkpoint({"at": 1})
        await ctx.spend(tokens=3)
        ctx.progress(1, 2, "half")
        ctx.emit("page", {"n": 1})
        ctx.enqueue(note, "with the success")
        await ctx.enqueue(note.using(immediately=True), "now")
        with pytest.raises(InvalidInput, match="store of its own"):
            ctx.enqueue(note.using(tenant="beta"))
        async with ctx.complete(ctx.tenant):
            pass
        return None

    @app.task
    def asks(ctx: SyncContext) -> str:
        return ctx.ask("name", "Who?", str)

    acme = app.tenant("acme")
    acme.slots.set("browser", 1)
    jobs = [busy.using(tenant="acme").enqueue() for _ in range(3)]
    question = asks.using(tenant="acme").enqueue()
    burst(app, tenants=["acme", "beta"])
    for job in jobs:
        assert job.result(timeout=0) == "acme"
        assert [step.name for step in job.steps()] == ["one"]
        assert [spent.amount for spent in job.spending()] == [3]
        assert any(event.kind == "page" for event in job.watch())
    assert sorted(seen) == [("acme", "now")] * 3 + [("acme", "with the success")] * 3
    assert question.state is State.WAITING
    assert [one.key for one in acme.questions.list()] == ["name"]
    question.answer("name", "Ann")
    burst(app, tenants=["acme"])
    assert question.result(timeout=0) == "Ann"
    assert app.jobs().jobs == app.tenant("beta").jobs().jobs == []


def test_run_now_and_run_by_id_work_in_a_tenant(app: Leasehold, make: Make, seen):
    make("acme", "beta")
    note = app.__internals__.named_task("note", {"max_running": 2})
    acme = app.tenant("acme")
    assert acme.run_now(note, "at once").result(timeout=20) == "acme"
    assert app.run_now(note.using(tenant="beta"), "at once").result(timeout=20) == "beta"
    job = acme.enqueue("note", {"what": "by id"})
    assert isinstance(app.tenant("beta").run_by_id(job.id), NotRun)
    ran = acme.run_by_id(job.id)
    assert isinstance(ran, RunResult)
    assert ran.job.result(timeout=0) == "acme"
    assert ("acme", "by id") in seen


def test_schedules_of_a_tenant_tick_in_it_and_those_of_the_code_in_the_app(app: Leasehold, make: Make, seen):
    make("acme", "beta")

    @app.schedule(every="1h", at_start=True)
    def hourly() -> None: ...

    for whose in ("acme", "beta"):
        app.tenant(whose).schedules.set("often", "note", {"what": whose}, every="1s")

    async def serve() -> None:
        async with app.worker(tenants="all", retention=None):
            await until(lambda: {("acme", "acme"), ("beta", "beta")} <= set(seen))
            await until(lambda: any(job.task == "hourly" for job in app.jobs().jobs))

    asyncio.run(serve())
    assert all(whose == what for whose, what in seen)
    for whose in ("acme", "beta"):
        assert {job.task for job in app.tenant(whose).jobs().jobs} == {"note"}


def test_a_tenant_that_is_made_while_all_are_served_is_served(app: Leasehold, make: Make, seen):
    make("acme")

    async def serve() -> None:
        async with app.worker(tenants="all", retention=None):
            app.enqueue("note", tenant="acme")
            await until(lambda: ("acme", "") in seen)
            await asyncio.to_thread(make, "late")
            await asyncio.to_thread(lambda: app.enqueue("note", tenant="late"))
            await until(lambda: ("late", "") in seen)

    asyncio.run(serve())


def test_a_tenant_that_is_dropped_holds_nobody_up(app: Leasehold, make: Make, seen):
    make("acme", "doomed")
    began = asyncio.Event()

    @app.task(lease=3)
    async def long(ctx: Context) -> None:
        began.set()
        while not ctx.stop_requested:
            await asyncio.sleep(0.01)

    async def serve() -> None:
        async with app.worker(tenants="all", retention=None, stop_grace=1, shutdown_grace=5) as worker:
            await long.using(tenant="doomed").aenqueue()
            await began.wait()
            await app.tenants.adrop("doomed")
            await app.aenqueue("note", tenant="acme")
            await until(lambda: ("acme", "") in seen)
            await until(lambda: not worker.attempts.held)

    asyncio.run(serve())
    with pytest.raises(TenantNotFound):
        app.enqueue("note", tenant="doomed")


def test_a_tenant_made_anew_has_nothing_of_the_old_one(app: Leasehold, make: Make, seen):
    make("acme")
    app.enqueue("note", tenant="acme")
    app.tenants.drop("acme")
    make("acme")
    assert app.tenant("acme").jobs().jobs == []


def test_a_flag_reaches_a_run_of_a_tenant_at_once(app: Leasehold, make: Make):
    make("acme", "beta")
    began: list[str] = []

    @app.task(lease=30)
    async def long(ctx: Context) -> None:
        began.append(ctx.job_id)
        await asyncio.sleep(60)

    async def serve() -> None:
        async with app.worker(tenants="all", retention=None):
            stopped = await long.using(tenant="acme").aenqueue()
            goes_on = await long.using(tenant="beta").aenqueue()  # the same number in another store
            await until(lambda: len(began) == 2)
            await stopped.acancel()
            await until(lambda: stopped.refresh().state is State.CANCELLED)
            assert (await asyncio.to_thread(goes_on.refresh)).state is State.RUNNING
            await goes_on.acancel()
            await until(lambda: goes_on.refresh().state is State.CANCELLED)

    asyncio.run(serve())


def test_why_knows_the_workers_of_a_tenant(app: Leasehold, make: Make, seen):
    make("acme", "beta")

    async def serve() -> None:
        async with app.worker(tenants=["acme"], retention=None):
            call = app.tenant("acme").__internals__.operations.call
            await until(lambda: [card.tenants for card in call(workers.list_workers)] == [("acme",)])
            assert app.__internals__.operations.call(workers.list_workers) == []
            assert app.tenant("beta").__internals__.operations.call(workers.list_workers) == []

    asyncio.run(serve())
