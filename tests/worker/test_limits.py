"""Slots and rates from a task's settings to a running worker, on both stores."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from typing import Any

import pytest

from leasehold import Context, Leasehold, Rate, Retry, Slot, State, SyncContext
from leasehold.errors import AcquireTimedOut, InvalidInput, InvalidTask
from tests.workers import burst, until


class Crowd:
    """How many are inside at once.

    The first ones inside wait for each other: on a loaded machine short visits might else never meet.
    """

    def __init__(self, meets: int) -> None:
        self.now = self.most = 0
        self.met = threading.Event()
        self._meets = meets
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now >= self._meets:
                self.met.set()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


# -- settings ---------------------------------------------------------------------------------------------------------


def test_a_task_says_what_it_needs_and_a_call_may_say_otherwise(app):
    @app.task(slots={"browser": 2}, rate="api")
    def work() -> None: ...

    app.slots.set("browser", 4)
    app.slots.set("cpu", 1)
    app.rates.set("api", "60/min")
    needs = app.__internals__.store.limits_of(work.enqueue().__row__.gate)
    assert ([(s.name, s.need) for s in needs.slots], needs.rate.key) == ([("browser", 2)], "api")
    needs = app.__internals__.store.limits_of(work.using(slots={"cpu": 1}, rate=None).enqueue().__row__.gate)
    assert ([(s.name, s.need) for s in needs.slots], needs.rate) == ([("cpu", 1)], None)


def test_tags_and_slots_are_templates_as_lanes_are(app):
    @app.task(tags=("mail", "user:{user}"), slots={"user:{user}": Slot(limit=1), "smtp": Slot(limit=9)})
    async def send(user: str, n: int = 0) -> int:
        return n

    jobs = send.enqueue_many([{"user": "ann"}, {"user": "ann", "n": 1}, {"user": "bob"}])
    assert [job.__row__.tags for job in jobs] == [("mail", f"user:{u}") for u in ("ann", "ann", "bob")]
    assert {job.id for job in app.jobs(tag="user:ann").jobs} == {job.id for job in jobs[:2]}
    assert {slot.name: slot.limit for slot in app.slots.list()} == {"smtp": 9, "user:ann": 1, "user:bob": 1}
    started = app.__internals__.store.claim("worker-1", ["default"], 10)
    assert {grant.id for grant in started} == {jobs[0].id, jobs[2].id}, "one at a time for each user"
    again = send.using(tags=("{user}-{n}",), slots=None).enqueue("cid", n=7)
    assert (again.__row__.tags, again.__row__.limited) == (("cid-7",), False)


@pytest.mark.parametrize("given", [{"tags": ("user:{who}",)}, {"slots": {"user:{who}": 1}}, {"tags": ("{",)}])
def test_a_tag_or_a_slot_that_names_no_argument_is_refused_at_registration(app, given):
    with pytest.raises(InvalidTask, match=r"tags|slots"):

        @app.task(**given)
        def work(user: str) -> None: ...

    @app.task
    def plain(user: str) -> None: ...

    with pytest.raises(InvalidTask, match=r"tags|slots"):
        plain.using(**given)


def test_a_task_brings_its_limits_along(app):
    @app.task(
        slots={"browser": Slot(limit=4), "gpu": Slot(units=2, limit=2)},
        rate=Rate("{domain}", "3/10s", burst=2),
    )
    def fetch(domain: str) -> None: ...

    fetch.enqueue_many([{"domain": "a.org"}, {"domain": "b.org"}])
    assert [(s.name, s.limit) for s in app.slots.list()] == [("browser", 4), ("gpu", 2)]
    assert [(r.key, r.limit, r.burst) for r in app.rates.list()] == [
        ("a.org", "3/10s", 2),
        ("b.org", "3/10s", 2),
    ]
    app.slots.set("browser", 1)
    fetch.enqueue("a.org")
    assert app.slots.list()[0].limit == 1


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"slots": {"browser": 0}}, "slots.browser"),
        ({"slots": {"browser": True}}, "slots.browser"),
        ({"slots": {"": 1}}, "slots"),
        ({"slots": ["browser"]}, "slots"),
        ({"slots": {"browser": Slot(limit=-1)}}, "slots.browser.limit"),
        ({"rate": "{nobody}"}, "rate"),
        ({"rate": ""}, "rate"),
        ({"rate": 7}, "rate"),
        ({"rate": Rate("api", "often")}, "rate.limit"),
        ({"rate": Rate("api", "0/s")}, "rate.limit"),
        ({"rate": Rate("api", "5/s", burst=0)}, "rate.burst"),
    ],
)
def test_a_wrong_limit_is_refused_at_registration(settings, problem):
    app = Leasehold("sqlite:///:memory:")
    with pytest.raises(InvalidInput) as caught:
        app.task(**settings)(lambda_task)
    assert caught.value.field == problem
    assert isinstance(caught.value, InvalidTask) or caught.value.remedy


def lambda_task(domain: str) -> None: ...


def test_an_unknown_name_is_refused_at_the_call(app):
    @app.task(slots={"browser": 1})
    def work() -> None: ...

    with pytest.raises(InvalidInput, match=r"app\.slots\.set\('browser'"):
        work.enqueue()


@pytest.mark.parametrize("limit", ["60/min", "1/s", "3600/h", "86400/d", "10/10s", " 1 / 1s ", "1/sec"])
def test_a_rate_may_be_written_in_several_ways(app, limit):
    app.rates.set("api", limit)
    ((spacing,),) = backend_query(app, "SELECT spacing FROM leasehold.rate")
    assert spacing == 1.0


def backend_query(app: Leasehold, text: str) -> list[tuple]:
    """Through the store's own connection."""
    store: Any = app.__internals__.store
    if hasattr(store, "_sqlite"):
        return store._sqlite._file.writer().execute(text.replace("leasehold.", "leasehold_")).fetchall()
    with store._postgres.connections.pool.connection() as connection:
        named = text.replace("leasehold.", f'"{store._postgres.schema}".')
        return connection.execute(named.encode()).fetchall()


def test_the_async_twins_do_the_same(app):
    async def steer() -> None:
        await app.slots.aset("browser", 4)
        assert [(s.name, s.limit) for s in await app.slots.alist()] == [("browser", 4)]
        await app.rates.aset("api", "60/min", burst=2)
        await app.rates.aclose("api", for_="2m", reason="429", actor="me")
        (rate,) = await app.rates.alist()
        assert (rate.closed, rate.closed_reason, rate.closed_by) == (True, "429", "me")
        assert await app.rates.aopen("api")

    asyncio.run(steer())


# -- a worker ---------------------------------------------------------------------------------------------------------


def test_a_worker_runs_no_more_at_once_than_a_slot_has_units(app):
    crowd = Crowd(meets=3)

    @app.task(slots={"browser": Slot(limit=3)})
    async def work() -> None:
        with crowd:
            await until(crowd.met.is_set)
            await asyncio.sleep(0.005)

    jobs = work.enqueue_many([{}] * 40)
    burst(app)
    assert {job.refresh().state for job in jobs} == {State.SUCCEEDED}
    assert crowd.most == 3
    assert app.slots.list()[0].used == 0


def test_a_worker_comes_back_when_the_rate_opens_not_at_its_next_poll(app):
    @app.task(rate=Rate("api", "20/s"))
    async def work() -> None: ...

    async def serve() -> list[float]:
        async with app.worker(poll=30.0):
            jobs = work.enqueue_many([{}] * 10)
            await until(lambda: all(job.refresh().state is State.SUCCEEDED for job in jobs))
            return sorted(job.__row__.started_at.timestamp() for job in jobs)

    starts = asyncio.run(serve())
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert min(gaps) >= 0.05 - 1e-5
    assert sum(gaps) < 15


def test_setting_a_slot_or_opening_a_key_wakes_the_workers(app):
    @app.task(slots={"browser": Slot(limit=0)})
    async def in_slot() -> None: ...

    @app.task(rate=Rate("api", "100/s"))
    async def at_rate() -> None: ...

    async def serve() -> None:
        app.rates.set("api", "100/s")
        app.rates.close("api")
        async with app.worker(poll=30.0):
            first, second = in_slot.enqueue(), at_rate.enqueue()
            await until(lambda: app.__internals__.store.opens_in(["default"]) is None)
            app.slots.set("browser", 1)
            await until(lambda: first.refresh().state is State.SUCCEEDED)
            app.rates.open("api")
            await until(lambda: second.refresh().state is State.SUCCEEDED)

    began = time.monotonic()
    asyncio.run(serve())
    assert time.monotonic() - began < 25


def test_a_freed_slot_wakes_another_worker(app, backend):
    """The one that frees it has no room for the next: only a wake-up brings the other."""
    go = threading.Event()

    @app.task(slots={"browser": Slot(limit=1)}, queue="a")
    async def holder() -> None:
        while not go.is_set():
            await asyncio.sleep(0.01)

    @app.task(slots={"browser": 1}, queue="b")
    async def waiter() -> None: ...

    async def serve() -> None:
        first = holder.enqueue()
        async with app.worker(queues="a", poll=30.0), app.worker(queues="b", poll=30.0):
            await until(lambda: first.refresh().state is State.RUNNING)
            second = waiter.enqueue()
            go.set()
            await until(lambda: second.refresh().state is State.SUCCEEDED)

    began = time.monotonic()
    asyncio.run(serve())
    assert time.monotonic() - began < 25


# -- inside a run -----------------------------------------------------------------------------------------------------


def test_runs_take_a_slot_inside_and_never_pass_its_limit(app):
    app.slots.set("browser", 2)
    crowd = Crowd(meets=2)

    @app.task
    async def work(ctx: Context) -> None:
        await ctx.acquire("browser")
        with crowd:
            await until(crowd.met.is_set)
            await asyncio.sleep(0.01)
        await ctx.release("browser")

    @app.task
    def work_in_thread(ctx: SyncContext) -> None:
        ctx.acquire("browser")
        with crowd:
            assert crowd.met.wait(20)
            ctx.wait(0.01)

    jobs = [*work.enqueue_many([{}] * 8), *work_in_thread.enqueue_many([{}] * 8)]
    burst(app)
    assert {job.refresh().state for job in jobs} == {State.SUCCEEDED}
    assert crowd.most == 2
    assert app.slots.list()[0].used == 0


def test_runs_take_a_rate_inside(app):
    app.rates.set("api", "50/s")
    seen: list[float] = []

    @app.task
    async def work(ctx: Context) -> None:
        for _ in range(3):
            await ctx.acquire("api")
            seen.append(time.monotonic())

    @app.task
    def work_in_thread(ctx: SyncContext) -> None:
        for _ in range(3):
            ctx.acquire("api")
            seen.append(time.monotonic())

    jobs = [work.enqueue(), work.enqueue(), work_in_thread.enqueue()]
    began = time.monotonic()
    burst(app)
    assert {job.refresh().state for job in jobs} == {State.SUCCEEDED}
    assert len(seen) == 9
    assert time.monotonic() - began >= 8 / 50


def test_a_wait_that_takes_too_long_says_for_what(app):
    app.slots.set("browser", 0)
    reported: list[AcquireTimedOut] = []

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> None:
        try:
            await ctx.acquire("browser", timeout=0.05)
        except AcquireTimedOut as error:
            reported.append(error)
            raise

    @app.task(retry=Retry(max_attempts=1))
    def work_in_thread(ctx: SyncContext) -> None:
        ctx.acquire("browser", timeout=0.05)

    jobs = [work.enqueue(), work_in_thread.enqueue()]
    burst(app)
    assert (reported[0].name, reported[0].seconds) == ("browser", 0.05)
    for job in jobs:
        assert job.refresh().state is State.FAILED
        assert "'browser' did not become free within 0.05 s" in job.error


def test_a_stop_ends_the_wait(app):
    app.slots.set("browser", 0)
    waiting = threading.Barrier(3)

    @app.task
    async def work(ctx: Context) -> None:
        await asyncio.to_thread(waiting.wait)
        await ctx.acquire("browser")

    @app.task
    def work_in_thread(ctx: SyncContext) -> None:
        waiting.wait()
        ctx.acquire("browser")

    async def serve() -> None:
        jobs = [work.using(lease=9).enqueue(), work_in_thread.using(lease=9).enqueue()]
        async with app.worker():
            await asyncio.to_thread(waiting.wait)
            for job in jobs:
                job.cancel()
            await until(lambda: all(job.refresh().state is State.CANCELLED for job in jobs))

    asyncio.run(serve())


def test_an_unknown_name_inside_a_run_fails_it_for_good(app):
    @app.task
    async def work(ctx: Context) -> None:
        await ctx.acquire("nowhere")

    job = work.enqueue()
    burst(app)
    assert (job.refresh().state, job.attempt) == (State.FAILED, 1)
    assert "app.slots.set('nowhere', 4)" in job.error


def test_a_run_brings_the_rate_that_it_takes(app):
    """Keys that are found at run time: nobody has to set them before."""

    @app.task
    async def work(ctx: Context) -> None:
        await ctx.acquire("example.org", rate="100/s", burst=2)

    @app.task
    def work_in_thread(ctx: SyncContext) -> None:
        ctx.acquire("example.com", rate="100/s")

    jobs = [work.enqueue(), work_in_thread.enqueue()]
    burst(app)
    assert {job.refresh().state for job in jobs} == {State.SUCCEEDED}
    assert {(rate.key, rate.limit, rate.burst) for rate in app.rates.list()} == {
        ("example.org", "100/s", 2),
        ("example.com", "100/s", 1),
    }


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"rate": "often"}, "rate: 'often' is not a rate"),
        ({"rate": "1/s", "burst": 0}, "burst: 0 is out of range"),
        ({"burst": 3}, "burst: comes without a rate"),
    ],
)
def test_a_rate_that_is_none_is_refused_in_the_run(app, given, problem):
    @app.task
    async def work(ctx: Context) -> None:
        await ctx.acquire("api", **given)

    job = work.enqueue()
    burst(app)
    assert (job.refresh().state, job.attempt) == (State.FAILED, 1)
    assert problem in job.error
