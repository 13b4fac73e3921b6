"""What those who wait over HTTP cost: long polls and streams on one server process while jobs pass. Figures go to
docs/measured/watchers.md."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import psycopg

from leasehold import Leasehold
from tests.servers import PostgresServer

POLLS, STREAMS, JOBS_A_SECOND, SECONDS = 200, 100, 200, 30.0
BATCH = 20
LATENCY_BAR, READS_BAR, GROWTH_BAR = 100.0, 1.5, 20.0
REPORT = Path(__file__).resolve().parents[1] / "docs" / "measured" / "watchers.md"
TASKS = """
from leasehold import Leasehold
app = Leasehold()
@app.task
async def pass_by(n: int) -> int:
    return n
"""


@dataclass
class Measured:
    latencies: list[float]
    """Milliseconds of GET /v1/jobs/{id}."""
    transactions: float
    """A second, all of the server's and its worker's."""
    jobs: float
    """A second that were made."""
    memory: float
    """MiB of the process."""

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.latencies, n=100)[98]


def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "watched_tasks.py").write_text(TASKS)
        rows = _measure("SQLite", f"sqlite:///{folder}/watched.db", folder, lambda: 0)
        with PostgresServer(fsync=True) as server:
            url = server.create_database("watched")
            with Leasehold(url) as app:
                app.upgrade()
            rows += _measure("PostgreSQL", url, folder, lambda: _transactions(server.url()))
    table = ["| what | measured | bar | |", "|---|--:|--:|---|", *rows]
    print("\n".join(table))
    head = (
        f"# Watchers over HTTP, measured\n\n`python -m bench watchers` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; "
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, load average {os.getloadavg()[0]:.1f}; "
        f"Python {platform.python_version()}. One process of `leasehold serve --with-worker`; {POLLS} long polls and "
        f"{STREAMS} streams, each on a job of its own, beside {JOBS_A_SECOND} jobs a second, over {SECONDS:g} s each "
        "with and without the watchers. The clients and the database are on the same machine.\n\n"
    )
    REPORT.write_text(head + "\n".join(table) + "\n", encoding="utf-8")


def _measure(name: str, url: str, folder: str, transactions: Callable[[], int]) -> list[str]:
    with _serving(url, folder) as (process, base):
        alone, watched, later = asyncio.run(_both(base, process.pid, transactions))
    growth = later.memory - watched.memory
    rows = [
        _row(f"{name}: p99 of `GET /v1/jobs/{{id}}` beside the watchers, ms", watched.p99, LATENCY_BAR),
        _note(f"{name}: the same without them, ms", alone.p99),
        _row(f"{name}: memory that a second such time adds, MiB", growth, GROWTH_BAR),
        _note(f"{name}: memory beside the watchers, MiB (without them {alone.memory:.0f})", watched.memory),
        _note(f"{name}: jobs a second that were made beside them", watched.jobs),
    ]
    if alone.transactions:
        ratio = watched.transactions / alone.transactions
        rows.append(
            _row(f"{name}: transactions beside {POLLS + STREAMS} watchers ÷ without", ratio, READS_BAR)
        )
    return rows


async def _both(base: str, pid: int, transactions: Callable[[], int]) -> tuple[Measured, Measured, Measured]:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(base_url=base, timeout=120, limits=limits) as client:
        watched = await _make(client, POLLS + STREAMS, delay="1d")
        await _traffic(client, pid, transactions, seconds=5)
        alone = await _traffic(client, pid, transactions)
        watchers = [asyncio.create_task(_poll(client, id)) for id in watched[:POLLS]]
        watchers += [asyncio.create_task(_stream(client, id)) for id in watched[POLLS:]]
        await asyncio.sleep(3)
        found = [await _traffic(client, pid, transactions) for _ in range(2)]
        for watcher in watchers:
            assert not watcher.done(), watcher
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
    return alone, found[0], found[1]


async def _traffic(
    client: httpx2.AsyncClient, pid: int, transactions: Callable[[], int], seconds: float = SECONDS
) -> Measured:
    began, before = time.monotonic(), transactions()
    ids: list[str] = []
    latencies: list[float] = []

    async def make() -> None:
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * JOBS_A_SECOND / BATCH) + 1
            while len(ids) < due * BATCH:
                ids.extend(await _make(client, BATCH))
            await asyncio.sleep(0.01)

    async def look() -> None:
        while time.monotonic() - began < seconds:
            if ids:
                requested = time.perf_counter()
                (await client.get(f"/v1/jobs/{random.choice(ids[-200:])}")).raise_for_status()
                latencies.append((time.perf_counter() - requested) * 1000)
            await asyncio.sleep(0.05)

    await asyncio.gather(make(), look())
    took = time.monotonic() - began
    return Measured(latencies, (transactions() - before) / took, len(ids) / took, _memory(pid))


async def _make(client: httpx2.AsyncClient, count: int, **options: str) -> list[str]:
    jobs = [{"task": "pass_by", "args": {"n": n}, **options} for n in range(count)]
    answer = await client.post("/v1/jobs/batch", json={"jobs": jobs})
    answer.raise_for_status()
    return [job["id"] for job in answer.json()["jobs"]]


async def _poll(client: httpx2.AsyncClient, id: str) -> None:
    while True:
        (await client.get(f"/v1/jobs/{id}", params={"wait": 60})).raise_for_status()


async def _stream(client: httpx2.AsyncClient, id: str) -> None:
    async with client.stream("GET", f"/v1/jobs/{id}/watch") as answer:
        async for _ in answer.aiter_lines():
            pass


@contextlib.contextmanager
def _serving(url: str, folder: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "leasehold", "serve", "watched_tasks:app", "--with-worker"]
    process = subprocess.Popen(
        [*command, "--port", "0", "--rate-limit", "0", "--log-level", "info"],
        cwd=folder,
        env={**os.environ, "LEASEHOLD_URL": url},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        found = next(m for line in process.stderr if (m := re.search(r"listening on (http://\S+)", line)))
        # Its log goes on; a full pipe would stop it.
        with subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL):
            yield process, found[1]
            process.terminate()
            process.wait(60)
    finally:
        process.kill()
        process.wait()


def _memory(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def _transactions(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database WHERE datname = 'watched'"
        ).fetchone()
    assert row is not None
    return int(row[0])


def _row(what: str, measured: float, bar: float) -> str:
    return f"| {what} | {measured:.2f} | ≤ {bar:g} | {'met' if measured <= bar else '**missed**'} |"


def _note(what: str, measured: float) -> str:
    return f"| {what} | {measured:.1f} | | |"
