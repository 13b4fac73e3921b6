"""How long a stop takes to reach the handler of a running job, and an answer the job that waits for it: in the worker's
own process and from another one, with the default lease and heartbeat. Figures go to docs/measured/flags.md.

`python -m bench.flags URL` is the worker process.
"""

from __future__ import annotations

import asyncio
import os
import platform
import queue
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from bench.places import ROOT, durable_server, server_version
from leasehold import Context, Leasehold, State

TIMES = 50
MEDIAN_BAR, WORST_BAR = 0.25, 1.0
VERBS = ("cancel", "pause", "answer")
PATIENCE = 30.0
REPORT = ROOT / "docs" / "measured" / "flags.md"

Notify = Callable[[str, str, float], None]
"""What has happened, to which job, when. The monotonic clock is the machine's: processes may compare it."""
Heard = queue.Queue[tuple[str, str, float]]


def run() -> None:
    rows = ["| what | median | p99 | slowest | bar | |", "|---|--:|--:|--:|--:|---|"]
    with tempfile.TemporaryDirectory() as folder, durable_server() as server:
        version = server_version(server.url())
        urls = {
            "SQLite": f"sqlite:///{folder}/flags.db",
            "PostgreSQL": server.create_database("flags"),
        }
        for store, url in urls.items():
            with Leasehold(url) as app:
                app.upgrade()
                received: Heard = queue.Queue()
                _register(app, lambda what, job, at, received=received: received.put((what, job, at)))
                for where, working in (("the same process", _here), ("another process", _apart)):
                    with working(app, url, received):
                        for verb in VERBS:
                            rows.append(_row(f"{store}, {verb} from {where}", _measure(app, verb, received)))
                            print(rows[-1])
    _write(rows, version)


def _measure(app: Leasehold, verb: str, received: Heard) -> list[float]:
    seconds = []
    for _ in range(TIMES):
        job = app.enqueue("asks" if verb == "answer" else "waits")
        _receive(received, "began", job.id)
        if verb == "answer":
            while job.refresh().state is not State.WAITING:
                time.sleep(0.005)
        time.sleep(random.uniform(0.0, 0.2))  # no rhythm with anything that looks now and then
        asked_at = time.monotonic()
        if verb == "answer":
            job.answer("q", "yes")
        else:
            getattr(job, verb)()
        seconds.append(_receive(received, "reached", job.id) - asked_at)
    return seconds


def _receive(received: Heard, what: str, job_id: str) -> float:
    while True:
        reported, job, at = received.get(timeout=PATIENCE)
        if (reported, job) == (what, job_id):
            return at


def _register(app: Leasehold, notify: Notify) -> None:
    @app.task
    async def waits(ctx: Context) -> None:
        notify("began", ctx.job_id, time.monotonic())
        try:
            await asyncio.Event().wait()
        finally:
            notify("reached", ctx.job_id, time.monotonic())

    @app.task
    async def asks(ctx: Context) -> None:
        notify("began" if ctx.attempt == 1 else "reached", ctx.job_id, time.monotonic())
        await ctx.ask("q", "May I?")


@contextmanager
def _here(app: Leasehold, url: str, received: Heard) -> Iterator[None]:
    ready, over = threading.Event(), threading.Event()

    async def work() -> None:
        async with app.worker(retention=None, shutdown_grace=0):
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    ready.wait(PATIENCE)
    yield
    over.set()
    thread.join()


@contextmanager
def _apart(app: Leasehold, url: str, received: Heard) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.flags", url]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as worker:

        def listen() -> None:
            for line in worker.stdout or ():
                what, job, at = line.split()
                received.put((what, job, float(at)))

        listener = threading.Thread(target=listen)
        listener.start()
        _receive(received, "ready", "-")
        yield
        if worker.stdin is not None:
            worker.stdin.close()
        listener.join()


async def _work(url: str) -> None:
    def notify(what: str, job: str, at: float) -> None:
        print(what, job, at, flush=True)

    with Leasehold(url) as app:
        _register(app, notify)
        async with app.worker(retention=None, shutdown_grace=0):
            notify("ready", "-", time.monotonic())
            await asyncio.to_thread(sys.stdin.read)


def _row(what: str, seconds: list[float]) -> str:
    median, worst = statistics.median(seconds), statistics.quantiles(seconds, n=100, method="inclusive")[98]
    met = "met" if median <= MEDIAN_BAR and worst <= WORST_BAR else "MISSED"
    figures = " | ".join(f"{1000 * one:.0f} ms" for one in (median, worst, max(seconds)))
    return f"| {what} | {figures} | ≤ {1000 * MEDIAN_BAR:.0f} ms, p99 ≤ {1000 * WORST_BAR:,.0f} ms | {met} |"


def _write(rows: list[str], version: str) -> None:
    head = (
        f"# Flags, measured\n\n`python -m bench flags` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; "
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, load average {os.getloadavg()[0]:.1f}; "
        f"Python {platform.python_version()}, PostgreSQL {version} (stock settings, fsync on), SQLite "
        f"{sqlite3.sqlite_version} (synchronous=FULL). {TIMES} times each: from the call of the verb until the running "
        "handler is interrupted, or until the job that waited for an answer runs again. Lease 30 s, heartbeat 10 s.\n\n"
    )
    REPORT.write_text(head + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1]))
