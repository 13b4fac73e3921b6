"""Ours against our own statements in a bare loop, against ourselves with a million other rows, and against the raw
limits of the drivers. Everything that is compared takes turns; medians of five. Figures: docs/measured/speed.md.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from rich.progress import Progress

from bench.backgrounds import KIND
from bench.places import (
    ROOT,
    Place,
    durable_server,
    postgres_place,
    server_version,
    sqlite_place,
    start_worker,
)
from leasehold import Leasehold

ROUNDS = 5
GROWTH_ROUNDS = 15
"""More: its bar is nearest to one, and single drains of a second differ by a quarter on a shared machine."""
JOBS = 20_000
LANES = 10_000
ONE_BY_ONE = 1_000
PROBES = 100
SLEEPERS = 5_000
SLEEP = 24.0
"""Two beats of a lease of 30 seconds."""
CROWDS = ("finished", "delayed", "parked", "behind 1,000 halted lanes", "in another queue")
REPORT = ROOT / "docs" / "measured" / "speed.md"


@dataclass
class Table:
    rows: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def ratio(self, what: str, ours: list[float], theirs: list[float], bar: float) -> None:
        """Of medians; the pairs were measured in turns."""
        one, other = statistics.median(ours), statistics.median(theirs)
        self._add(
            what, f"{one:,.0f} / {other:,.0f}", f"{one / other:.2f} ×", f"≥ {bar:g} ×", one / other >= bar
        )

    def most(self, what: str, figure: float, unit: str, bar: float) -> None:
        self._add(what, "", f"{figure:.2f} {unit}", f"≤ {bar:g} {unit}", figure <= bar)

    def fact(self, what: str, reported: str, wanted: str, held: bool) -> None:
        self._add(what, "", reported, wanted, held)

    def _add(self, what: str, raw: str, figure: str, bar: str, met: bool) -> None:
        self.rows.append(f"| {what} | {raw} | {figure} | {bar} | {'met' if met else '**missed**'} |")
        if not met:
            self.missed.append(what)

    def __str__(self) -> str:
        return "\n".join(["| what | measured | figure | bar | |", "|---|--:|--:|--:|---|", *self.rows])


def run(rows: int, parts: list[str] | None = None) -> None:
    table = Table()
    wanted = parts or ["drains", "enqueue", "growth", "sqlite", "latency", "sleepers"]
    with (
        tempfile.TemporaryDirectory(dir=ROOT / "build" if (ROOT / "build").is_dir() else None) as name,
        durable_server() as server,
        Progress(transient=True) as progress,
    ):
        folder = Path(name)
        version = server_version(server.url())
        steps = progress.add_task("speed", total=len(wanted))
        for part in wanted:
            progress.update(steps, description=part)
            match part:
                case "drains":
                    _drains(table, postgres_place(server, "drains"))
                case "enqueue":
                    _enqueue_one_by_one(table, postgres_place(server, "enqueue"))
                case "growth":
                    _growth(table, "PostgreSQL", lambda crowd: postgres_place(server, _slug(crowd)), rows)
                    _growth(table, "SQLite", lambda crowd: sqlite_place(folder, _slug(crowd)), rows)
                case "sqlite":
                    _sqlite_drains(table, sqlite_place(folder, "drains"), folder)
                case "latency":
                    _sqlite_latency(table, sqlite_place(folder, "latency"), folder)
                case "sleepers":
                    _sleepers(table, postgres_place(server, "sleepers"))
            progress.advance(steps)
    print(table)
    _write(table, version, rows)


# --- Parts ----------------------------------------------------------------------------------------------------------


def _drains(table: Table, place: Place) -> None:
    """The kinds of drain take turns."""
    bare, loop, threads, lanes, rss, start = [], [], [], [], [], []
    for _ in range(ROUNDS):
        place.fill(JOBS)
        bare.append(place.drain_bare(JOBS))
        place.fill(JOBS)
        reported = place.drain(JOBS)
        loop.append(reported["rate"])
        rss.append(reported["rss"])
        start.append(reported["start"])
        place.fill(JOBS, task="plain")
        threads.append(place.drain(JOBS)["rate"])
        place.fill(JOBS, lanes=LANES)
        lanes.append(place.drain(JOBS)["rate"])
    table.ratio("drain, async no-ops / the same statements in a bare loop", loop, bare, 0.7)
    table.ratio("drain, plain functions in 8 threads / async", threads, loop, 0.3)
    table.ratio(f"drain, every job in one of {LANES:,} lanes / plain", lanes, loop, 0.4)
    table.most(f"resident memory after a drain of {JOBS:,}", statistics.median(rss), "MiB", 80)
    table.most("start-up to first handler", statistics.median(start), "s", 0.6)


def _enqueue_one_by_one(table: Table, place: Place) -> None:
    """Through the whole client against an INSERT of the same rows and its commit, with the same driver."""
    ours, bare = [], []
    with Leasehold(place.url) as app, psycopg.connect(place.url, autocommit=True) as connection:

        @app.task(name=KIND)
        async def work(sent: float = 0.0) -> None: ...

        work.enqueue(sent=0.0)
        for _ in range(ROUNDS):
            ours.append(ONE_BY_ONE / _timed(lambda: [work.enqueue(sent=0.0) for _ in range(ONE_BY_ONE)]))
            bare.append(ONE_BY_ONE / _timed(lambda: _insert_bare(connection)))
    table.ratio("enqueue one at a time / bare INSERT and commit", ours, bare, 0.8)


def _insert_bare(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    for _ in range(ONE_BY_ONE):
        connection.execute(
            "WITH made AS (INSERT INTO leasehold.job (id, task, queue, gate, args, created_at)"
            " VALUES (gen_random_uuid(), %s, 'bare', 1, %s, now()) RETURNING seq, gate, created_at)"
            " INSERT INTO leasehold.ready (seq, gate, available_at) SELECT seq, gate, created_at FROM made",
            [KIND, '{"sent":0.0}'],
        )


def _growth(table: Table, store: str, make: Callable[[str], Place], rows: int) -> None:
    """An empty store and the crowded ones take turns."""
    places = {crowd: make(crowd) for crowd in ("nothing", *CROWDS)}
    for crowd, place in places.items():
        if crowd == "finished":
            place.finish(rows)
        else:
            place.load(crowd, rows)
    rates: dict[str, list[float]] = {crowd: [] for crowd in places}
    for _ in range(GROWTH_ROUNDS):
        for crowd in random.sample(list(places), len(places)):  # nobody is always behind the same one
            places[crowd].fill(JOBS)
            rates[crowd].append(places[crowd].drain(JOBS)["rate"])
    for crowd in CROWDS:
        table.ratio(f"{store}: drain with {rows:,} {crowd} / empty", rates[crowd], rates["nothing"], 0.9)
    for place in places.values():
        place.close()


def _sqlite_drains(table: Table, place: Place, folder: Path) -> None:
    bare, ours, raw = [], [], []
    for number in range(ROUNDS):
        place.fill(JOBS)
        bare.append(place.drain_bare(JOBS))
        place.fill(JOBS)
        ours.append(place.drain(JOBS)["rate"])
        raw.append(_raw_sqlite(folder / f"raw-{number}.db"))
    table.ratio("SQLite: drain, async no-ops / the same statements in a bare loop", ours, bare, 0.7)
    table.ratio(
        "SQLite: drain, synchronous=FULL / a bare loop in batches of 100, a task per job", ours, raw, 0.4
    )


def _raw_sqlite(path: Path, batch: int = 100) -> float:
    """What SQLite and asyncio give without a product: batches are claimed for a lease and finished under their
    attempt, one commit each, and every job is a task of the loop that writes a record."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.executescript(
        "CREATE TABLE bare (number INTEGER PRIMARY KEY, queue TEXT NOT NULL, rank INTEGER NOT NULL,"
        " due REAL NOT NULL, state TEXT NOT NULL, attempt INTEGER NOT NULL DEFAULT 0, owner TEXT, until REAL,"
        " kind TEXT NOT NULL, args TEXT NOT NULL, ended REAL);"
        "CREATE INDEX bare_claim ON bare (queue, rank, due, number) WHERE state = 'queued';"
    )
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO bare (queue, rank, due, state, kind, args) VALUES ('q', 0, 0, 'queued', 'work', '{}')",
        [()] * JOBS,
    )
    connection.execute("COMMIT")
    with open(os.devnull, "wb", buffering=0) as record:
        seconds = _timed(lambda: asyncio.run(_drain_raw(connection, record.fileno(), batch)))
    connection.close()
    return JOBS / seconds


async def _drain_raw(connection: sqlite3.Connection, record: int, batch: int) -> None:
    async def work(_: str) -> None:
        os.write(record, b"0123456789abcdef")

    while True:
        now = time.time()
        rows = connection.execute(
            "UPDATE bare SET state = 'running', attempt = attempt + 1, owner = 'me', until = ? WHERE number IN"
            " (SELECT number FROM bare WHERE queue = 'q' AND state = 'queued' AND due <= ?"
            " ORDER BY rank, due, number LIMIT ?) RETURNING number, attempt, kind, args",
            [now + 30, now, batch],
        ).fetchall()
        if not rows:
            return
        await asyncio.gather(*(asyncio.create_task(work(args)) for _, _, _, args in rows))
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "UPDATE bare SET state = 'done', ended = ?, until = NULL"
            " WHERE number = ? AND attempt = ? AND state = 'running'",
            [(now, number, attempt) for number, attempt, _, _ in rows],
        )
        connection.execute("COMMIT")


def _sqlite_latency(table: Table, place: Place, folder: Path) -> None:
    """A producer in this process, a worker in another that was idle."""
    ready = folder / "ready"
    medians = []
    worker = start_worker(url=place.url, jobs=PROBES * ROUNDS, ready=str(ready), all=True)
    sent: list[float] = []
    with Leasehold(place.url) as app:

        @app.task(name=KIND)
        async def work(sent: float = 0.0) -> None: ...

        while not ready.exists():
            time.sleep(0.01)
        for _ in range(PROBES * ROUNDS):
            time.sleep(0.05)
            sent.append(time.time())
            work.enqueue(sent=sent[-1])
    answer, _ = worker.communicate(timeout=60)
    began = sorted(_last_json(answer)["began"])
    waits = [1000 * (start - at) for at, start in zip(sent, began, strict=True)]
    medians = [statistics.median(waits[n * PROBES : (n + 1) * PROBES]) for n in range(ROUNDS)]
    table.most("SQLite: pick-up across processes, p50", statistics.median(medians), "ms", 20)


def _sleepers(table: Table, place: Place) -> None:
    with Leasehold(place.url) as app:

        @app.task(name="sleeper", lease=30)
        async def sleeper(seconds: float) -> None: ...

        sleeper.enqueue_many([{"seconds": SLEEP}] * SLEEPERS)
    began = time.time()
    reported = place.drain(SLEEPERS, concurrency=SLEEPERS, watch=True)
    lived = reported["done"] - began
    table.fact(
        f"{SLEEPERS:,} leased sleepers in one process",
        f"{reported['most']:,} at once, {reported['lost']} lost, {reported['beats']} renewals in {lived:.0f} s",
        "all, none, one a beat",
        reported["most"] == SLEEPERS and reported["lost"] == 0 and reported["beats"] <= lived / 10 + 2,
    )
    table.most("its lease keeper", 100 * reported["keeper_cpu"] / lived, "% of a core", 2)


# --- Small things ---------------------------------------------------------------------------------------------------


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _last_json(text: str) -> dict[str, list[float]]:
    import json

    reported: dict[str, list[float]] = json.loads(text.splitlines()[-1])
    return reported


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in text.lower())


def _write(table: Table, version: str, rows: int) -> None:
    head = (
        f"# Speed, measured\n\n`python -m bench speed` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; "
        f"{os.cpu_count()} cores shared by database, worker and producer, {platform.system()} {platform.machine()}, "
        f"load average {os.getloadavg()[0]:.1f}; Python {platform.python_version()}, PostgreSQL {version} (stock "
        f"settings, fsync on), SQLite {sqlite3.sqlite_version} (synchronous=FULL). Medians of {ROUNDS}, in turns "
        f"(with other rows: of {GROWTH_ROUNDS}); "
        f"drains of {JOBS:,} no-ops at concurrency 1,000; {rows:,} rows of each background.\n\n"
    )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(head + str(table) + "\n", encoding="utf-8")
