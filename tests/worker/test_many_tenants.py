"""Fifty tenants on one worker: the loud one does not drown the quiet ones, and it costs what one tenant costs."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold import Context, Leasehold
from leasehold.stores.open import MOST_FILES
from leasehold.stores.tenants.visits import MOST_IDLE_RUNNERS
from leasehold.types import State
from tests.backends import Backend
from tests.workers import until

NAMES = [f"t{number}" for number in range(50)]
LOUD, QUIET = NAMES[0], NAMES[1:25]
NOISE = 20_000

pytestmark = [pytest.mark.timeout(420)]


@pytest.fixture
def app(app: Leasehold) -> Iterator[Leasehold]:
    for name in NAMES:
        app.tenants.create(name)
    yield app
    for name in NAMES:
        app.tenants.drop(name)


@pytest.mark.slow(8)
def test_fifty_tenants_are_served_fairly_and_cost_what_one_does(app: Leasehold, backend: Backend):
    started: dict[str, float] = {}

    @app.task
    async def note(ctx: Context) -> None:
        started[ctx.job_id] = time.monotonic()
        await asyncio.sleep(0.02)

    def median_wait() -> float:
        """Of one job of each of the quiet ones, from its enqueue to its start."""
        waits = []
        for name in QUIET:
            asked_at = time.monotonic()
            job = note.using(tenant=name).enqueue()
            while job.id not in started:
                time.sleep(0.0005)
            waits.append(started[job.id] - asked_at)
        return statistics.median(waits)

    async def measured() -> tuple[float, float]:
        async with app.worker(tenants=[LOUD], retention=None):
            await asyncio.to_thread(note.using(tenant=LOUD).enqueue)
            await until(lambda: len(started) == 1)
            of_one = connections(backend), threading.active_count()
        async with app.worker(tenants="all", retention=None):
            await asyncio.to_thread(median_wait)  # everything is open and warm
            alone = await asyncio.to_thread(median_wait)
            loud = note.using(tenant=LOUD)
            await asyncio.to_thread(loud.enqueue_many, ({} for _ in range(NOISE)))
            await until(lambda: app.tenant(LOUD).count()[State.RUNNING])
            beside = await asyncio.to_thread(median_wait)
            assert app.tenant(LOUD).count()[State.QUEUED], "the noise was over too soon: nothing was measured"
            assert connections(backend) <= of_one[0] + 2
            since = 8 + MOST_IDLE_RUNNERS
            assert threading.active_count() <= of_one[1] + since, (
                "threads of the pools that were started since"
            )
            assert len(open_tenant_files()) <= MOST_FILES
            await asyncio.to_thread(app.tenant(LOUD).stop, everything=True, mode="immediate")
        return alone, beside

    alone, beside = asyncio.run(measured())
    print(f"quiet tenants wait {alone * 1000:.1f} ms alone, {beside * 1000:.1f} ms beside the noise")
    assert beside < 5 * alone


def connections(backend: Backend) -> int:
    if backend.name == "sqlite":
        return 0
    requested = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'leasehold%'"
    return int(backend.query(requested)[0][0])


def open_tenant_files() -> set[str]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            path = str(entry.readlink())
        except OSError:
            continue
        if path.endswith(".db") and ".tenants/" in path:
            found.add(path)
    return found
