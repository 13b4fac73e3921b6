"""What the dashboard's pages cost with a million jobs, and what one viewer costs a drain. Figures:
docs/measured/dashboard.md.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import uvicorn
from rich.progress import Progress

from bench.backgrounds import KIND, QUEUE, RARE_KIND
from bench.lists import fill_past_and_present
from bench.places import ROOT, Place, durable_server, postgres_place, server_version, sqlite_place
from bench.speed import Table
from leasehold import Leasehold
from leasehold.dashboard import create_dashboard
from leasehold.domain.job import NewJob
from leasehold.domain.records import Filter
from leasehold.tasks.blueprint import new_ids

TIMES = 15
BAR = 300.0
"""Milliseconds of a page."""
JOBS = 40_000
PAIRS = 8
SHARE = 0.9
LOOKS = 10
SEEN = 2.0
"""Seconds."""
REPORT = ROOT / "docs" / "measured" / "dashboard.md"


def run(rows: int) -> None:
    table = Table()
    with (
        tempfile.TemporaryDirectory(dir=ROOT / "build" if (ROOT / "build").is_dir() else None) as name,
        durable_server() as server,
        Progress(transient=True) as progress,
    ):
        version = server_version(server.url())
        places = {
            "PostgreSQL": lambda: postgres_place(server, "dashboard"),
            "SQLite": lambda: sqlite_place(Path(name), "dashboard"),
        }
        steps = progress.add_task("dashboard", total=2 * len(places))
        for store, make in places.items():
            progress.update(steps, description=f"{store}: drains beside a viewer")
            place = make()
            _drains(table, store, place)
            progress.advance(steps)
            progress.update(steps, description=f"{store}: pages")
            _pages(table, store, place, rows)
            place.close()
            progress.advance(steps)
    print(table)
    _write(table, version, rows)


@contextlib.contextmanager
def serving(app: Leasehold) -> Iterator[str]:
    config = uvicorn.Config(
        create_dashboard(app, tokens=False, rate_limit=0),
        port=0,
        log_config=None,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined] # in a thread there are none
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


def _pages(table: Table, store: str, place: Place, rows: int) -> None:
    fill_past_and_present(place, rows)
    chain = new_ids(50)
    place.store.enqueue(
        [
            NewJob(id=one, task=KIND, queue=QUEUE, args="{}", after=() if not n else (chain[(n - 1) // 2],))
            for n, one in enumerate(chain)
        ]
    )
    ended = place.store.list_jobs(Filter(group="group-10")).jobs[-1].id
    running = place.store.list_leases(None, 1, None).leases[0].job_id
    paths = {
        "Overview": "/",
        "Jobs": "/jobs",
        "Jobs, failed": "/jobs?state=failed&state=timed_out",
        "Jobs of a task that has nothing new": f"/jobs?task={RARE_KIND}",
        "Jobs of the last hour": "/jobs?since=1h",
        "Jobs with a text that none of the newest 10,000 has": "/jobs?q=nowhere-to-be-found",
        "a job that has ended": f"/jobs/{ended}",
        "a job that runs": f"/jobs/{running}",
        "a flow of 50 jobs": f"/jobs/{chain[0]}/flow",
        "Cancel many: the dry run": "/bulk?verb=cancel&state=queued",
        "Lanes": "/lanes",
        "Groups": "/groups",
        "a group of 1,000": "/groups?name=group-10",
        "Workers": "/workers",
        "Questions": "/questions",
        "Limits": "/limits",
        "Schedules": "/schedules",
        "System": "/system",
    }
    with Leasehold(place.url) as app, serving(app) as url, httpx2.Client(base_url=url, timeout=60) as client:
        for what, path in paths.items():
            table.most(f"{store}: {what}", _median(client, path), "ms", BAR)
    _live(table, store, place)


def _live(table: Table, store: str, place: Place) -> None:
    """From when a job is stored until the stream of Jobs has sent it."""
    times = []
    with (
        Leasehold(place.url) as app,
        serving(app) as url,
        httpx2.Client(base_url=url, timeout=60) as client,
        client.stream("GET", "/jobs?live=1") as answer,
    ):
        lines = answer.iter_lines()
        next(line for line in lines if "</table>" in line or "No jobs yet" in line)
        for _ in range(LOOKS):
            (job,) = new_ids(1)
            place.store.enqueue([NewJob(id=job, task=KIND, queue=QUEUE, args="{}")])
            began = time.perf_counter()
            next(line for line in lines if f"row-{job}" in line)
            times.append(time.perf_counter() - began)
    table.most(
        f"{store}: a new job is seen by who looks at Jobs, the slowest of {LOOKS}", max(times), "s", SEEN
    )


def _median(client: httpx2.Client, path: str) -> float:
    times = []
    for n in range(TIMES + 2):
        began = time.perf_counter()
        answer = client.get(path)
        took = time.perf_counter() - began
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:500])
        if n >= 2:  # templates are compiled and statements planned
            times.append(took)
    return 1000 * statistics.median(times)


def _drains(table: Table, store: str, place: Place) -> None:
    place.fill(2_000)
    place.drain(2_000)
    alone: list[float] = []
    watched: list[float] = []
    for pair in range(PAIRS):
        for viewer in (False, True) if pair % 2 else (True, False):
            place.fill(JOBS)
            if not viewer:
                alone.append(place.drain(JOBS)["rate"])
                continue
            with _viewer(place.url):
                watched.append(place.drain(JOBS)["rate"])
    table.ratio(f"{store}: drain beside one viewer of Overview / drain", watched, alone, SHARE)


@contextlib.contextmanager
def _viewer(url: str) -> Iterator[None]:
    """A server of its own process, and a browser's stream; it looks before the drain begins."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.dashboard", url], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "looks"
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


def _watch(url: str) -> None:
    with (
        Leasehold(url) as app,
        serving(app) as base,
        httpx2.Client(base_url=base, timeout=None) as client,
        client.stream("GET", "/?live=1") as answer,
    ):
        for number, _ in enumerate(answer.iter_lines()):
            if number == 3:
                sys.stdout.write("looks\n")
                sys.stdout.flush()


def _write(table: Table, version: str, rows: int) -> None:
    head = (
        f"# The dashboard, measured\n\n`python -m bench dashboard` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; "
        f"{os.cpu_count()} cores shared by database, server and caller, {platform.system()} {platform.machine()}, "
        f"load average {os.getloadavg()[0]:.1f}; Python {platform.python_version()}, PostgreSQL {version} (stock "
        f"settings), SQLite {sqlite3.sqlite_version}. Pages: medians of {TIMES} over HTTP on loopback, with {rows:,} "
        f"ended jobs and some thousand that live. Drains: medians of {PAIRS} of {JOBS:,} jobs each, in turns; the "
        "viewer follows Overview, from a server in a process of its own.\n\n"
    )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(head + str(table) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _watch(sys.argv[1])
