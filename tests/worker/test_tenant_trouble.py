"""A worker of many tenants, one of which is damaged, locked or lacks its tables: the others notice nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold import Context, Leasehold
from leasehold.operations.doctor import examine
from leasehold.operations.explain import explain
from leasehold.stores.tenants import visits
from leasehold.types import Notification, State
from tests.backends import Backend, new_job
from tests.trouble import KINDS, Trouble
from tests.workers import until

pytestmark = [pytest.mark.timeout(180)]


@pytest.fixture
def app(app: Leasehold) -> Iterator[Leasehold]:
    for name in ("acme", "beta"):
        app.tenants.create(name)
    yield app
    for row in app.tenants.list():
        app.tenants.drop(row.name)


@pytest.fixture(params=KINDS)
def trouble(request: pytest.FixtureRequest, backend: Backend) -> Trouble:
    return Trouble(backend, "beta", request.param)


@pytest.mark.slow(20)
def test_a_tenant_in_trouble_costs_the_others_nothing(
    app: Leasehold,
    trouble: Trouble,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(visits, "LATE_IS_TROUBLE", 1.0)
    caplog.set_level(logging.INFO, "leasehold")
    began: set[str | None] = set()
    ran: set[tuple[str | None, str]] = set()
    notified: set[tuple[str | None, str]] = set()
    release = asyncio.Event()

    @app.task(lease=6)
    async def hold(ctx: Context) -> int:
        began.add(ctx.tenant)
        await release.wait()
        return ctx.attempt

    @app.task
    async def note(ctx: Context, what: str) -> None:
        ran.add((ctx.tenant, what))

    @app.on("cancelled", name="ops")
    def hear(event: Notification) -> None:
        notified.add((event.tenant, event.job_id))

    def stored(name: str | None):
        return (app if name is None else app.tenant(name)).__internals__.store

    async def serve() -> None:
        async with app.worker(
            tenants="all", retention=None, sweep=0.5, health_file=str(tmp_path / "well")
        ) as worker:
            held = {
                name: await (hold if name is None else hold.using(tenant=name)).aenqueue()
                for name in (None, "acme", "beta")
            }
            await until(lambda: began == {None, "acme", "beta"})
            await asyncio.to_thread(trouble.begin)
            for name in (None, "acme"):
                # A job that another worker has lost, one that is due, a schedule, and one whose end a hook hears of.
                store = stored(name)
                (lost,) = await asyncio.to_thread(
                    store.enqueue,
                    [new_job(task="note", args='{"what": "lost"}', lease_seconds=3.0, queue="q")],
                )
                assert await asyncio.to_thread(store.claim, "gone", ["q"], 1)
                view = app if name is None else app.tenant(name)
                await asyncio.to_thread(view.schedules.set, "often", "note", {"what": "tick"}, every="1s")
                await asyncio.to_thread(view.enqueue, "note", {"what": "due"})
                ended = await asyncio.to_thread(view.enqueue, "note", {"what": "never"}, delay=3600)
                await asyncio.to_thread(ended.cancel)
                await until(lambda view=view, lost=lost: view.get(lost.id).state is State.QUEUED)
                await until(lambda name=name, ended=ended: (name, ended.id) in notified)
                await until(lambda name=name: {(name, "tick"), (name, "due")} <= ran)
            beats = worker.keeper.beats
            await until(lambda: worker.keeper.beats > beats + 5)  # longer than the leases last

            await until(lambda: [one.tenant for one in worker.health().tenants] == ["beta"])
            assert worker.health().ok
            assert (tmp_path / "well").exists()
            worker._presence.nudge()
            await until(
                lambda: (
                    [one.tenant for card in stored(None).list_workers() for one in card.problems] == ["beta"]
                )
            )
            await asyncio.to_thread(reported, held["acme"].id)

            release.set()
            for name in (None, "acme"):
                assert await held[name].aresult(30) == 1, "its lease was renewed all the time"
            await asyncio.to_thread(trouble.end)
            assert await held["beta"].aresult(60)
            await app.tenant("beta").aenqueue("note", {"what": "after"})
            await until(lambda: ("beta", "after") in ran, 60)
            await until(lambda: worker.health().tenants == (), 60)

    def reported(other_job: str) -> None:
        lines = [found for found in examine(app.__internals__.store) if found.check == "tenants"]
        assert [found.verdict for found in lines] == ["bad"]
        assert lines[0].detail.startswith("beta is in trouble")
        assert not [hold for hold in explain(stored("acme"), other_job) if hold.cause == "worker_trouble"]

    asyncio.run(serve())
    told = [record for record in caplog.records if record.name == "leasehold.tenants"]
    assert [record.levelname for record in told] == ["WARNING", "INFO"]
    assert told[0].getMessage().startswith("tenant beta is in trouble, and its jobs wait: ")
    assert told[1].getMessage() == "tenant beta is served again"
    assert not [record for record in caplog.records if record.exc_info]
