"""What an idle worker costs, and what `leasehold --help` costs. Figures go to docs/measured/idle.md."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from leasehold import Leasehold
from tests.servers import PostgresServer

SECONDS = 60.0
WARM_UP = 35.0
"""A SQLite worker looks more often for the first 30 seconds after a change."""
HELPS = 7
CPU_BAR, STATEMENTS_BAR, HELP_BAR = 1.0, 2.0, 0.35
REPORT = Path(__file__).resolve().parents[1] / "docs" / "measured" / "idle.md"
TASKS = """
import os
from leasehold import Leasehold
app = Leasehold()
@app.task
async def one() -> None: ...
@app.task
def two() -> None: ...
"""


def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "idle_tasks.py").write_text(TASKS)
        sqlite = _idle(f"sqlite:///{folder}/idle.db", folder, lambda: 0)
        with PostgresServer(fsync=True) as server:
            url = server.create_database("idle")
            # Its own transactions would be counted as the worker's.
            with psycopg.connect(server.url(), autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET autovacuum = off")
                connection.execute("SELECT pg_reload_conf()")
            with Leasehold(url) as app:
                app.upgrade()
            postgres = _idle(url, folder, lambda: _transactions(server.url()))
    help_cpu = statistics.median(_help() for _ in range(HELPS))
    rows = [
        _row("idle worker on SQLite, % of a core", sqlite[0], CPU_BAR),
        _row("idle worker on PostgreSQL, % of a core", postgres[0], CPU_BAR),
        _row("idle worker on PostgreSQL, statements a second", postgres[1], STATEMENTS_BAR),
        _row(f"`leasehold --help`, seconds of CPU, median of {HELPS}", help_cpu, HELP_BAR),
    ]
    table = ["| what | measured | bar | |", "|---|--:|--:|---|"]
    table += rows
    print("\n".join(table))
    head = (
        f"# Idle, measured\n\n`python -m bench idle` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; "
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, load "
        f"average {os.getloadavg()[0]:.1f}; Python {platform.python_version()}. "
        f"A worker with one queue, one async and one plain task, over {SECONDS:g} s.\n\n"
    )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(head + "\n".join(table) + "\n", encoding="utf-8")


def _row(what: str, measured: float, bar: float) -> str:
    return f"| {what} | {measured:.2f} | ≤ {bar:g} | {'met' if measured <= bar else '**missed**'} |"


def _idle(url: str, folder: str, transactions: Callable[[], int]) -> tuple[float, float]:
    """Percent of a core, and statements a second (each is a transaction of its own)."""
    environment = {**os.environ, "LEASEHOLD_URL": url}
    command = [sys.executable, "-m", "leasehold", "worker", "idle_tasks:app"]
    worker = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    try:
        time.sleep(WARM_UP)
        used, done, began = _cpu(worker.pid), transactions(), time.monotonic()
        time.sleep(SECONDS)
        passed = time.monotonic() - began
        return 100 * (_cpu(worker.pid) - used) / passed, (transactions() - done) / passed
    finally:
        worker.terminate()
        worker.wait(30)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _transactions(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        # A backend reports at most once a second while it is idle in between.
        row = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'idle'"
        ).fetchone()
        assert row is not None
        return int(row[0])


def _help() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "leasehold", "--help"], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
