"""Stop with real workers: what handlers get to feel of it, on both stores."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from leasehold import Context, Job, Leasehold, Retry, State, SyncContext, Worker
from tests.workers import burst, until

QUICK = {"lease": 9, "heartbeat": 0.1}
"""A worker hears of a flag with its next renewal."""


@asynccontextmanager
async def working(app: Leasehold, **settings: object) -> AsyncIterator[Worker]:
    async with app.worker(retention=None, shutdown_grace=0, **settings) as worker:
        yield worker


def test_graceful_waits_for_what_runs_and_nothing_is_tried_again(app: Leasehold):
    go, began = threading.Event(), threading.Event()
    runs = []

    @app.task(retry=Retry(max_attempts=5, backoff=0), **QUICK)
    def fail_when_told() -> None:
        runs.append(1)
        began.set()
        assert go.wait(30)
        raise ValueError("broken")

    async def scenario() -> None:
        job = fail_when_told.using(group="g").enqueue()
        queued = [fail_when_told.using(group="g", queue="later").enqueue() for _ in range(3)]
        async with working(app):
            assert await asyncio.to_thread(began.wait, 20)
            stopping = asyncio.create_task(app.group("g").astop(reason="enough", wait=30))
            await until(lambda: app.get(job.id).__row__.stop_requested is not None)
            assert not stopping.done(), "it waits for the one that runs"
            go.set()
            report = await stopping
        assert report.still_running == []
        assert report.cancelled_counts == {"fail_when_told": {State.QUEUED: 3}}
        assert report.flagged == {"fail_when_told": 1}
        assert {one.refresh().state for one in [job, *queued]} == {State.CANCELLED}
        assert len(runs) == 1

    asyncio.run(scenario())


def test_graceful_reports_what_still_runs_when_its_patience_is_over(app: Leasehold):
    go, began = threading.Event(), threading.Event()

    @app.task(**QUICK)
    def slow() -> str:
        began.set()
        assert go.wait(30)
        return "done"

    async def scenario() -> None:
        job = slow.using(group="g").enqueue()
        async with working(app):
            assert await asyncio.to_thread(began.wait, 20)
            report = await app.group("g").astop(wait=0.2)
            assert report.still_running == [job.id]
            go.set()
            await until(lambda: app.get(job.id).state is State.SUCCEEDED)

    asyncio.run(scenario())


def test_full_stops_handlers_and_waits_for_them(app: Leasehold):
    began = threading.Event()
    interrupted = []

    @app.task(**QUICK)
    async def endless() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.append(1)

    async def scenario() -> None:
        job = endless.using(group="g").enqueue()
        async with working(app):
            assert await asyncio.to_thread(began.wait, 20)
            report = await app.group("g").astop(mode="full", wait=30)
        assert report.still_running == []
        assert report.cancelled_counts == {"endless": {State.RUNNING: 1}}
        assert job.refresh().state is State.CANCELLED
        assert interrupted == [1]

    asyncio.run(scenario())


def test_immediate_returns_at_once_and_the_handler_is_stopped_a_beat_later(app: Leasehold):
    began = threading.Event()

    @app.task(**QUICK)
    def patient(ctx: SyncContext) -> None:
        began.set()
        ctx.wait(60)

    async def scenario() -> None:
        job = patient.using(group="g").enqueue()
        async with working(app):
            assert await asyncio.to_thread(began.wait, 20)
            report = await app.group("g").astop(mode="immediate", wait=30)
            assert report.still_running == [job.id]
            await until(lambda: app.get(job.id).state is State.CANCELLED)

    asyncio.run(scenario())


def test_a_handler_that_ignores_its_stop_is_reported_until_it_is_abandoned(app: Leasehold):
    began, go = threading.Event(), threading.Event()

    @app.task(**QUICK)
    def stubborn() -> None:
        began.set()
        assert go.wait(60)

    async def scenario() -> None:
        job = stubborn.using(group="g").enqueue()
        async with working(app, stop_grace=3.0, threads=4):
            assert await asyncio.to_thread(began.wait, 20)
            first = await app.group("g").astop(mode="full", wait=0.3, reason="enough")
            assert first.still_running == [job.id], "it ignores its stop, and its grace is not over"
            second = await app.group("g").astop(mode="full", wait=30)
            assert second.still_running == [], "abandoned: the job has ended, whatever the handler does"
            assert job.refresh().state is State.CANCELLED
            go.set()

    asyncio.run(scenario())


def test_follow_ups_of_a_stopped_run_are_created_cancelled_and_never_run(app: Leasehold):
    began, go = threading.Event(), threading.Event()
    ran = []

    @app.task(**QUICK)
    def verify() -> None:
        ran.append("verify")

    @app.task(**QUICK)
    async def search(ctx: Context) -> str:
        began.set()
        await asyncio.to_thread(go.wait, 30)
        at_once = await ctx.enqueue(verify.using(group="g", immediately=True))
        assert at_once.refresh().state is State.CANCELLED
        ctx.enqueue(verify.using(group="g"))
        ctx.enqueue(verify.using(group="other"))
        return "found"

    async def scenario() -> None:
        job = search.using(group="g").enqueue()
        async with working(app):
            assert await asyncio.to_thread(began.wait, 20)
            stopping = asyncio.create_task(app.group("g").astop(reason="session_completed"))
            await until(lambda: app.get(job.id).__row__.stop_requested is not None)
            go.set()
            report = await stopping
            assert report.still_running == []
            await until(lambda: ran == ["verify"])
        assert job.result(timeout=0) == "found"
        status = app.group("g").status()
        assert status.counts == {"search": {State.SUCCEEDED: 1}, "verify": {State.CANCELLED: 2}}
        assert (status.state, status.reason) == ("stopped", "session_completed")
        assert {one.reason for one in app.jobs(group="g", task="verify").jobs} == {"session_completed"}
        assert ran == ["verify"], "the one outside of the scope"

    asyncio.run(scenario())


def test_the_documents_scopes_stop_all_jobs_or_only_the_targets(app: Leasehold):
    """`stop_task` of document E: all_jobs by default, target_queue_only on request."""

    @app.task
    def target_queue(target: str) -> None: ...

    @app.task
    def verify_nli() -> None: ...

    @app.task
    def citation_graph() -> None: ...

    def fill(group: str) -> None:
        for target in ("a", "b"):
            target_queue.using(group=group).enqueue(target)
        verify_nli.using(group=group).enqueue()
        citation_graph.using(group=group).enqueue()

    fill("one")
    only = app.group("one").stop(scope=["target_queue"], reason="session_completed")
    assert only.cancelled_counts == {"target_queue": {State.QUEUED: 2}}
    assert only.unaffected_tasks == ["citation_graph", "verify_nli"]
    assert app.group("one").status().live == 2
    assert app.group("one").status().state == "active", "a part of it is stopped, not the group"
    fill("two")
    every = app.group("two").stop(reason="session_completed")
    assert every.cancelled_counts == {
        "citation_graph": {State.QUEUED: 1},
        "target_queue": {State.QUEUED: 2},
        "verify_nli": {State.QUEUED: 1},
    }
    assert every.unaffected_tasks == []
    assert app.group("two").status().state == "stopped"
    target_queue.using(group="two").enqueue("c")
    status = app.group("two").status()
    assert (status.state, status.live) == ("active", 1), "resumed by the next target"


def test_follow_ups_belong_to_the_group_of_the_run_that_asks_for_them(app: Leasehold):
    """Stored with the success, or at once; unless another group is named."""

    @app.task
    def child(n: int) -> None: ...

    @app.task
    async def parent(ctx: Context) -> None:
        ctx.enqueue(child, 1)
        ctx.enqueue(child.using(group="other"), 2)
        await ctx.enqueue(child.using(immediately=True), 3)

    @app.task
    def plain_parent(ctx: SyncContext) -> None:
        ctx.enqueue(child, 4)
        ctx.enqueue(child.using(immediately=True), 5)

    for group in ("g", None):
        parent.using(group=group).enqueue()
        plain_parent.using(group=group).enqueue()
    burst(app)
    found = sorted((job.args["n"], job.__row__.group or "") for job in _all(app, "child"))
    assert found == [
        (1, ""), (1, "g"), (2, "other"), (2, "other"), (3, ""), (3, "g"), (4, ""), (4, "g"), (5, ""), (5, "g"),
    ]  # fmt: skip
    assert app.group("g").status().total == 6


def _all(app: Leasehold, task: str) -> list[Job[Any]]:
    return [app.get(one.id) for one in app.jobs(task=task, limit=500).jobs]


def test_a_group_that_is_stopped_while_its_jobs_breed_reads_stopped(app: Leasehold):
    """Runs that did not know of the stop yet went on putting jobs into it."""

    @app.task(**QUICK)
    async def breed(ctx: Context, n: int) -> None:
        await ctx.enqueue(breed.using(immediately=True), n + 1)
        ctx.enqueue(breed, n + 1)

    async def scenario() -> None:
        breed.using(group="g").enqueue(0)
        async with working(app):
            await until(lambda: app.group("g").status().total > 20)
            report = await app.group("g").astop(mode="full", reason="enough", wait=20)
            assert (report.still_running, app.group("g").status().live) == ([], 0)
        status = app.group("g").status()
        assert (status.state, status.reason) == ("stopped", "enough")

    asyncio.run(scenario())
