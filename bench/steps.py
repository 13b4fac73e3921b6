"""What steps cost: commits and time for a thousand cheap ones. Figures go to docs/measured/steps.md."""

from __future__ import annotations

import asyncio
import os
import platform
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from bench.commits import counter
from leasehold import Context, Leasehold, SyncContext
from tests.servers import PostgresServer

STEPS = 1000
BAR = 20
REPORT = Path(__file__).resolve().parents[1] / "docs" / "measured" / "steps.md"
Durability = Literal["each", "batch"]


def run() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder, PostgresServer(fsync=True) as server:
        urls = {"SQLite": f"sqlite:///{folder}/steps.db", "PostgreSQL": server.create_database("steps")}
        for store, url in urls.items():
            with Leasehold(url) as app:
                app.upgrade()
                for colour in ("async", "plain"):
                    for durable in ("batch", "each"):
                        commits, seconds = measure(app, colour, durable, counter(url))
                        rows.append(_row(store, colour, durable, commits, seconds))
    table = [
        "| store | handler | durable | commits | bar | | ms a step |",
        "|---|---|---|--:|--:|---|--:|",
        *rows,
    ]
    print("\n".join(table))
    head = (
        f"# Steps, measured\n\n`python -m bench steps` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; "
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, load average "
        f"{os.getloadavg()[0]:.1f}; Python {platform.python_version()}; both databases with fsync. One job of "
        f"{STEPS:,} steps that only add two numbers; commits are all that reached the database from the first step "
        "to the end of the last, renewals included.\n\n"
    )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(head + "\n".join(table) + "\n", encoding="utf-8")


def _row(store: str, colour: str, durable: str, commits: int, seconds: float) -> str:
    bar, met = (f"≤ {BAR}", "met" if commits <= BAR else "**missed**") if durable == "batch" else ("", "")
    return (
        f'| {store} | {colour} | `"{durable}"` | {commits:,} | {bar} | {met} | {1000 * seconds / STEPS:.2f} |'
    )


def measure(
    app: Leasehold, colour: str, durable: Durability, commits: Callable[[], int]
) -> tuple[int, float]:
    """Commits and seconds for STEPS steps of one job."""
    found: list[tuple[int, float]] = []

    def add(a: int, b: int) -> int:
        return a + b

    name = f"{colour}_{durable}"
    if colour == "async":

        @app.task(name=name)
        async def work(ctx: Context) -> int:
            before, began, total = commits(), time.perf_counter(), 0
            for n in range(STEPS):
                total = await ctx.step(f"add {n}", add, total, n, durable=durable)
            found.append((commits() - before, time.perf_counter() - began))
            return total

        job = work.enqueue()
    else:

        @app.task(name=name)
        def work_plainly(ctx: SyncContext) -> int:
            before, began, total = commits(), time.perf_counter(), 0
            for n in range(STEPS):
                total = ctx.step(f"add {n}", add, total, n, durable=durable)
            found.append((commits() - before, time.perf_counter() - began))
            return total

        job = work_plainly.enqueue()
    asyncio.run(app.worker(burst=True, retention=None).run())
    assert job.result(timeout=0) == sum(range(STEPS))
    return found[0]
