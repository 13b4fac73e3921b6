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
CONNECTIONS = 8 + 3
"""The pool of an app, and what a worker has beside it: for its leases, its wake-ups, and one more."""

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
    started: dict[str, int] = {}
    """Each job, and how many had started before it."""

    @app.task
    async def note(ctx: Context) -> None:
        started[ctx.job_id] = len(started)
        await asyncio.sleep(0.02)

    def overtaken_by() -> float:
        """How many jobs start between the enqueue and the start of a quiet tenant's job; the median of all of them."""
        before = []
        for name in QUIET:
            job = note.using(tenant=name).enqueue()
            stored_at = len(started)
            while job.id not in started:
                time.sleep(0.0005)
            before.append(started[job.id] - stored_at)
        return statistics.median(before)

    async def measured() -> float:
        async with app.worker(tenants=[LOUD], retention=None):
            await asyncio.to_thread(note.using(tenant=LOUD).enqueue)
            await until(lambda: len(started) == 1)
            threads = threading.active_count()
        async with app.worker(tenants="all", retention=None):
            await asyncio.to_thread(overtaken_by)  # everything is open and warm
            loud = note.using(tenant=LOUD)
            await asyncio.to_thread(loud.enqueue_many, ({} for _ in range(NOISE)))
            await until(lambda: app.tenant(LOUD).count()[State.RUNNING])
            overtaken = await asyncio.to_thread(overtaken_by)
            assert app.tenant(LOUD).count()[State.QUEUED], "the noise was over too soon: nothing was measured"
            assert connections(backend) <= CONNECTIONS
            since = 8 + MOST_IDLE_RUNNERS
            assert threading.active_count() <= threads + since, "threads of the pools that were started since"
            assert len(open_tenant_files()) <= MOST_FILES
            await asyncio.to_thread(app.tenant(LOUD).stop, everything=True, mode="immediate")
        return overtaken

    # Some rounds of the places, however busy the machine is; in the order of arrival it would be all of the noise.
    assert asyncio.run(measured()) < NOISE / 20


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
