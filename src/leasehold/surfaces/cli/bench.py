"""`bench`: measures speed on your own database, in a store of its own beside yours, which is removed afterwards."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from leasehold.surfaces.cli import render
from leasehold.surfaces.cli.command import Call, command
from leasehold.threads import to_thread

if TYPE_CHECKING:
    from leasehold.app import Leasehold

ONE_BY_ONE = 200
PROBES = 50
BULK = 1000


@command(tenant=False, create=True)
def bench(
    call: Call,
    jobs: Annotated[int, typer.Option(min=1, help="No-op jobs to drain.", metavar="NUMBER")] = 20_000,
    concurrency: Annotated[int, typer.Option(min=1, help="Async jobs at once.", metavar="NUMBER")] = 1000,
) -> None:
    """Measure enqueue, drain and pick-up on your database. It makes a store of its own, and removes it afterwards."""
    with _scratch(call.app) as app:
        label = app.__internals__.store.label
        figures = asyncio.run(_measure(app, jobs, concurrency))
    if call.as_json:
        render.emit({"store": label, "jobs": jobs, "concurrency": concurrency} | figures)
        return
    print(f"{label}, {jobs:,} no-op jobs, concurrency {concurrency:,}, one process:")
    render.table(
        ("what", "figure"),
        [
            ("enqueue one at a time, jobs/s", f"{figures['enqueue']:,.0f}"),
            ("enqueue in bulk, jobs/s", f"{figures['bulk']:,.0f}"),
            ("drain, jobs/s", f"{figures['drain']:,.0f}"),
            ("pick-up by an idle worker, ms (median)", f"{figures['pickup_ms']:.1f}"),
        ],
    )


@contextmanager
def _scratch(beside: Leasehold) -> Iterator[Leasehold]:
    """An app without tasks on an empty store beside the store of the given app."""
    from leasehold.app import Leasehold

    internals = beside.__internals__
    with (
        internals.scratch_place() as (url, schema),
        Leasehold(url, schema=schema, pooler=internals.place.pooler) as app,
    ):
        app.upgrade()
        yield app


async def _measure(app: Leasehold, jobs: int, concurrency: int) -> dict[str, float]:
    began: list[float] = []

    @app.task
    async def noop() -> None:
        began.append(time.perf_counter())

    with _progress(2 * jobs + ONE_BY_ONE + PROBES) as advance:

        def one_by_one() -> float:
            noop.enqueue()
            start = time.perf_counter()
            for _ in range(ONE_BY_ONE):
                noop.enqueue()
                advance(1)
            return ONE_BY_ONE / (time.perf_counter() - start)

        def in_bulk() -> float:
            start = time.perf_counter()
            for first in range(0, jobs, BULK):
                many = min(BULK, jobs - first)
                noop.enqueue_many([{}] * many)
                advance(many)
            return jobs / (time.perf_counter() - start)

        enqueue = await to_thread(one_by_one)
        bulk = await to_thread(in_bulk)
        waiting = jobs + ONE_BY_ONE + 1
        async with app.worker(concurrency=concurrency, retention=None) as worker:
            reported = 0
            while worker.attempts.ended < waiting:
                await asyncio.sleep(0.005)
                advance(min(worker.attempts.ended, jobs) - reported)
                reported = min(worker.attempts.ended, jobs)
            drain = waiting / (time.perf_counter() - began[0])
            waits = []
            for _ in range(PROBES):
                await asyncio.sleep(0.02)
                began.clear()
                start = time.perf_counter()
                await noop.aenqueue()
                while not began:
                    await asyncio.sleep(0.0005)
                waits.append(1000 * (began[0] - start))
                advance(1)
    return {"enqueue": enqueue, "bulk": bulk, "drain": drain, "pickup_ms": statistics.median(waits)}


@contextmanager
def _progress(total: int) -> Iterator[render.Advance]:
    """A progress bar, on a terminal only."""
    if not render.on_terminal():
        yield lambda _: None
        return
    from rich.progress import Progress

    with Progress(console=render.console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=total)
        yield lambda steps: progress.advance(task, steps)
