"""Hooks and webhooks hear of the jobs of tenants, of those made later too, and know whose they are."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest

from leasehold import Leasehold
from leasehold.types import Fail, Notification
from tests.worker.test_webhooks import SECRET, Receiver
from tests.workers import burst, until


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def tenants(app: Leasehold) -> Iterator[Leasehold]:
    app.tenants.create("acme")
    app.tenants.create("beta")
    yield app
    for row in app.tenants.list():
        app.tenants.drop(row.name)


def test_a_hook_hears_of_every_tenant_and_of_whose_job_it_was(tenants: Leasehold):
    app = tenants
    received: list[Notification] = []
    app.on("succeeded", "failed")(received.append)

    @app.task
    async def work(good: bool) -> None:
        if not good:
            raise Fail("broken")

    async def serve() -> None:
        async with app.worker(tenants="all", retention=None):
            await work.aenqueue(True)
            await work.using(tenant="acme").aenqueue(True)
            await work.using(tenant="beta").aenqueue(False)
            await until(lambda: len(received) == 3)
            # One that is made later is told of its listeners within a few seconds.
            await app.tenants.acreate("late")
            late = app.tenant("late").__internals__.store
            await until(lambda: late.find_listeners())
            await work.using(tenant="late").aenqueue(False)
            await until(lambda: len(received) == 4)

    asyncio.run(serve())
    reported = {(event.name, event.tenant) for event in received}
    assert reported == {("succeeded", None), ("succeeded", "acme"), ("failed", "beta"), ("failed", "late")}
    for name in ("acme", "beta", "late"):
        assert app.tenant(name).__internals__.store.list_listeners()[0].waiting == 0


def test_a_hook_that_hangs_gets_its_events_of_a_tenant_as_soon_as_it_returns(tenants: Leasehold):
    app = tenants
    hanging, go_on = threading.Event(), threading.Event()
    received: dict[str, list[str]] = {"late": [], "prompt": []}

    @app.on("cancelled", name="late")
    def hang(event: Notification) -> None:
        hanging.set()
        assert go_on.wait(60)
        received["late"].append(event.job_id)

    app.on("cancelled", name="prompt")(lambda event: received["prompt"].append(event.job_id))

    @app.task
    async def work() -> None: ...

    async def serve() -> None:
        async with app.worker(queues="elsewhere", tenants="all", retention=None):
            jobs = [await work.using(tenant="acme").aenqueue() for _ in range(25)]
            await jobs[0].acancel()
            assert await asyncio.to_thread(hanging.wait, 20)
            for job in jobs[1:]:
                await job.acancel()
            await until(lambda: len(received["prompt"]) == 25)
            go_on.set()
            # The next sweep over all tenants is half a minute away.
            await until(lambda: len(received["late"]) == 25, seconds=15)

    asyncio.run(serve())
    assert received["late"] == received["prompt"]


def test_what_happens_to_a_tenants_job_while_nobody_works_is_heard_later(tenants: Leasehold):
    app = tenants
    received: list[Notification] = []
    app.on("cancelled")(received.append)

    @app.task
    async def work() -> None: ...

    burst(app, tenants="all")
    job = work.using(tenant="acme").enqueue()
    app.tenant("acme").get(job.id).cancel("no need")
    assert received == []
    burst(app, tenants="all")
    assert [(event.job_id, event.tenant, event.detail) for event in received] == [(job.id, "acme", "no need")]


def test_where_nobody_listens_any_more_a_tenant_writes_nothing(tenants: Leasehold):
    app = tenants
    app.on("cancelled", name="ops")(lambda event: None)

    @app.task
    async def work() -> None: ...

    burst(app, tenants="all")
    store = app.tenant("acme").__internals__.store
    assert [listener.name for listener in store.find_listeners()] == ["ops"]

    async def serve() -> None:
        async with app.worker(tenants="all", retention=None):
            await asyncio.to_thread(app.__internals__.store.remove_listener, "ops")
            await until(lambda: store.find_listeners() == [])

    asyncio.run(serve())


def test_a_webhook_is_posted_for_a_tenants_job_and_names_the_tenant(tenants: Leasehold, receiver: Receiver):
    app = tenants
    app.webhook(receiver.url, events=["failed"], secret=SECRET, name="ops", allow_private=True)

    @app.task
    async def work() -> None:
        raise Fail("broken")

    async def serve() -> None:
        async with app.worker(tenants="all", retention=None):
            await work.using(tenant="beta").aenqueue()
            await until(lambda: receiver.got)

    asyncio.run(serve())
    (message,) = [json.loads(body) for _, _, body in receiver.got]
    assert (message["type"], message["data"]["tenant"]) == ("failed", "beta")
