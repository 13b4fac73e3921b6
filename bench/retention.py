"""A drain beside a pruning worker, against the same drain alone. Figures go to docs/measured/retention.md.

Before each drain the database holds as many finished jobs as are drained, old enough to go. Beside half of the drains
a thread deletes them, at the pace of a worker's pruner: a batch of a thousand, half a second, the next. That
is more than a fleet does, where a pass comes once an hour.
"""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from leasehold import Leasehold
from leasehold.domain.retention import Retention, retention_by_state
from leasehold.worker.pruner import BETWEEN_BATCHES, PRUNE_BATCH
from tests.servers import PostgresServer

JOBS = 40_000
ROUNDS = 5
BAR = 0.9
REPORT = Path(__file__).resolve().parents[1] / "docs" / "measured" / "retention.md"


def run() -> None:
    rows = [
        "| store | alone, jobs/s | beside the pruner | ratio | deleted meanwhile | bar | |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    with tempfile.TemporaryDirectory() as folder, PostgresServer(fsync=True) as server:
        for store, url in (
            ("SQLite", f"sqlite:///{folder}/retention.db"),
            ("PostgreSQL", server.create_database("retention")),
        ):
            with Leasehold(url) as app:
                app.upgrade()
                rows.append(_row(store, *asyncio.run(measure(app))))
    print("\n".join(rows))
    head = (
        f"# Retention, measured\n\n`python -m bench retention` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; "
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, load average "
        f"{os.getloadavg()[0]:.1f}; Python {platform.python_version()}; both databases with fsync. {JOBS:,} "
        f"plain async jobs in one process, {ROUNDS} drains alone and {ROUNDS} beside the pruner, in turn; medians. "
        "The pruner deletes a thousand old jobs every half second, in the same process.\n\n"
    )
    REPORT.write_text(head + "\n".join(rows) + "\n", encoding="utf-8")


def _row(store: str, alone: float, beside: float, deleted: int) -> str:
    ratio = beside / alone
    met = "met" if ratio >= BAR else "**missed**"
    return f"| {store} | {alone:,.0f} | {beside:,.0f} | {ratio:.2f} | {deleted:,} | ≥ {BAR} | {met} |"


async def measure(app: Leasehold) -> tuple[float, float, int]:
    @app.task
    async def nothing() -> None: ...

    await drain(app)  # old ones, and everything warm
    speeds: dict[bool, list[float]] = {False: [], True: []}
    deleted = 0
    for turn in range(2 * ROUNDS):
        beside = turn % 2 == 1
        with Pruning(app) if beside else Idle() as pruning:
            speeds[beside].append(await drain(app))
        deleted += pruning.deleted
        if beside:
            await app.aprune(0)
            await drain(app)
    return statistics.median(speeds[False]), statistics.median(speeds[True]), deleted


async def drain(app: Leasehold) -> float:
    """Jobs a second."""
    await asyncio.to_thread(app.__internals__.named_task("nothing", {}).enqueue_many, [{}] * JOBS)
    began = time.perf_counter()
    async with app.worker(burst=True, retention=None, concurrency=100) as worker:
        await worker.finished()
        seconds = time.perf_counter() - began
    return JOBS / seconds


class Idle:
    deleted = 0

    def __enter__(self) -> Idle:
        return self

    def __exit__(self, *_: object) -> None: ...


class Pruning(Idle):
    """As the pruner of a worker does it."""

    def __init__(self, app: Leasehold) -> None:
        self._store = app.__internals__.store
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Pruning:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        after: str | None = None
        while not self._over.is_set():
            pruned = self._store.prune(
                Retention(retention_by_state(0, "retention"), self._store.retention()), PRUNE_BATCH, after
            )
            self.deleted += pruned.deleted
            after = pruned.next
            self._over.wait(BETWEEN_BATCHES)
