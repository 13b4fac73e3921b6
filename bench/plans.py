"""Growth: what a million other rows do to look, claim, renew and settle, and whether the plans still hold.

An empty database and a full one take turns, so that a noisy machine is noisy for both; medians are compared. The
figures go to docs/measured/plans.md.
"""

from __future__ import annotations

import atexit
import os
import platform
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import psycopg

from bench.backgrounds import ALL, BACKGROUNDS, BATCH, CROWDED, NOTHING, OWNER, QUEUE
from leasehold.domain.lanes import DueGroups
from leasehold.domain.outcome import Success
from leasehold.stores.postgres.store import PostgresStore
from leasehold.stores.results import Ending
from tests.backends import new_job
from tests.plans import postgres, sqlite
from tests.plans.hot import find_work, hot_calls, look, postgres_calls
from tests.servers import PostgresServer

WARM_UP, ROUNDS = 2, 9
DELAYED = "delayed"
IDLE_BAR = 1.0
"""Milliseconds in the database, with every row delayed."""
REPORT = Path(__file__).resolve().parents[1] / "docs" / "measured" / "plans.md"

T = TypeVar("T")
Scene = postgres.Scene | sqlite.Scene
OPERATIONS = ("look", "idle claim", "claim of 500", "renew of 500", "settle of 500")


@dataclass
class Growth:
    """Of one background on one database: milliseconds, empty and full."""

    background: str
    empty: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in OPERATIONS})
    full: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in OPERATIONS})
    idle: float = 0.0
    """Milliseconds inside the database for a look at the full one, with nothing due."""
    wrong_plans: list[str] = field(default_factory=list)

    def cell(self, operation: str) -> str:
        empty, full = statistics.median(self.empty[operation]), statistics.median(self.full[operation])
        return f"{empty:.2f} → {full:.2f} ({full / empty:.2f} ×)"


def run(rows: int) -> None:
    growths = {"SQLite": list(_measure(_sqlite_scenes, rows))}
    # Room for the working set: a cache that is too small measures the disk.
    with PostgresServer(fsync=True, settings={"shared_buffers": "512MB", "max_wal_size": "4GB"}) as server:
        url = server.create_database("bench")
        growths["PostgreSQL"] = list(_measure(lambda: _postgres_scenes(url), rows))
        versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {_version(url)}"
    report = "\n".join(_report(growths, rows, versions))
    print(report)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(report + "\n", encoding="utf-8")
    print(f"written to {REPORT}")


# --- Measuring ------------------------------------------------------------------------------------------------------


def _measure(scenes: Callable[[], Iterable[Scene]], rows: int) -> Iterator[Growth]:
    for background in CROWDED:
        started = time.monotonic()
        with _opened(scenes()) as (empty, full):
            empty.load(NOTHING, 0)
            full.load(background, rows // len(BACKGROUNDS) if background == ALL else rows)
            if isinstance(full, postgres.Scene):
                full.vacuum()  # as it would be by itself a minute later
            growth = Growth(background)
            for number in range(WARM_UP + ROUNDS):
                sides = [(empty, growth.empty), (full, growth.full)]
                for scene, times in sides if number % 2 else sides[::-1]:
                    for operation, milliseconds in _round(scene).items():
                        if number >= WARM_UP:
                            times[operation] += milliseconds
            growth.idle = _idle_inside(full, growth)
            growth.wrong_plans = _wrong_plans(full)
        print(f"{type(full.store).__name__}, {background}: {time.monotonic() - started:.0f} s", flush=True)
        yield growth


def _round(scene: Scene) -> dict[str, list[float]]:
    """A batch through its life, and looks at nothing before it comes."""
    store = scene.store
    times: dict[str, list[float]] = {name: [] for name in OPERATIONS}

    def timed(operation: str, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        answer = work()
        times[operation].append((time.perf_counter() - started) * 1000)
        return answer

    _clear_tickets(scene)
    for _ in range(5):
        timed("look", lambda: _look_at(scene))
        assert timed("idle claim", lambda: store.claim(OWNER, [QUEUE], BATCH)) == []
    store.enqueue([new_job() for _ in range(BATCH)])
    grants = timed("claim of 500", lambda: store.claim(OWNER, [QUEUE], BATCH))
    assert len(grants) == BATCH
    renewed = timed("renew of 500", lambda: store.renew({grant.id: grant.token for grant in grants}))
    assert len(renewed) == BATCH
    endings = [Ending(grant.id, grant.token, Success("true"), grant.seq) for grant in grants]
    settled = timed("settle of 500", lambda: store.settle(endings))
    assert len(settled.accepted) == BATCH
    return times


def _clear_tickets(scene: Scene) -> None:
    """A stale ticket is looked at once; what remains is the idle state."""
    while _look_at(scene).lanes:
        assert scene.store.claim(OWNER, [QUEUE], BATCH) == []


def _look_at(scene: Scene) -> DueGroups:
    where: dict[str, list[str] | None] = {"queues": [QUEUE], "tasks": None}
    if isinstance(scene.store, PostgresStore):
        return scene.store._find_due_groups(where, [])
    store = scene.store
    return store._sqlite.read(lambda session: store._find_due_groups(session, where, []))


def _idle_inside(scene: Scene, growth: Growth) -> float:
    """SQLite is in the process: the look itself. PostgreSQL says how long it took without the way there and back."""
    if isinstance(scene, sqlite.Scene):
        return statistics.median(growth.full["look"])
    return statistics.median(scene.explain(look(), "generic").milliseconds for _ in range(ROUNDS))


def _wrong_plans(scene: Scene) -> list[str]:
    """The promises of tests/plans, at this size."""
    scene.load_work()
    scene.analyse()
    assert scene.store.misplaced() == []
    work = find_work(scene.query)
    found: list[str] = []
    if isinstance(scene, postgres.Scene):
        for call in postgres_calls(scene.store, work):
            for mode in postgres.MODES:
                plan = scene.explain(call, mode)
                found += plan.whole_tables() + plan.other_indexes() + plan.too_many_rows()
                if plan.statement in postgres.LOCK_BY_SEQ:
                    found += plan.unordered_locks()
                if plan.statement in postgres.WAIT_FOR_NOBODY:
                    found += plan.unlocked_writes()
    else:
        for call in hot_calls(scene.store, work):
            visited = scene.explain(call)
            found += visited.whole_tables() + visited.other_indexes() + visited.too_many_steps()
    return found


# --- Databases ------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(scenes: Iterable[Scene]) -> Iterator[tuple[Scene, Scene]]:
    empty, full = scenes
    try:
        yield empty, full
    finally:
        empty.close()
        full.close()


def _postgres_scenes(url: str) -> list[Scene]:
    return [postgres.Scene(url, schema, durable=True) for schema in ("empty", "full")]


def _sqlite_scenes() -> list[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="leasehold-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return [sqlite.Scene(folder / name) for name in ("empty.db", "full.db")]


def _version(url: str) -> str:
    with psycopg.connect(url) as connection:
        return f"PostgreSQL {connection.execute('SHOW server_version').fetchone()[0]}"


# --- Telling --------------------------------------------------------------------------------------------------------


def _report(growths: dict[str, list[Growth]], rows: int, versions: str) -> Iterator[str]:
    yield "# Growth and plans, measured"
    yield ""
    yield (
        f"`python -m bench plans --rows {rows}` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {_machine()}; {versions}. "
        f"Verbs of the store with durable commits, in milliseconds: with an empty database → with {rows:,} rows of "
        f"the background (all together: {rows // len(BACKGROUNDS):,} of each). "
        f"Medians of {ROUNDS} rounds in which the two take turns."
    )
    for database, measured in growths.items():
        yield ""
        yield f"## {database}"
        yield ""
        yield "| background | " + " | ".join(OPERATIONS) + " |"
        yield "|---" * (len(OPERATIONS) + 1) + "|"
        for growth in measured:
            yield f"| {growth.background} | {' | '.join(map(growth.cell, OPERATIONS))} |"
        yield ""
        yield from _idle(measured, rows)
        yield ""
        yield from _plans(measured)


def _idle(measured: list[Growth], rows: int) -> Iterator[str]:
    (delayed,) = (growth for growth in measured if growth.background == DELAYED)
    worst = max(measured, key=lambda growth: growth.idle)
    verdict = "within" if delayed.idle <= IDLE_BAR else "OVER"
    yield (
        f"An idle poll with {rows:,} delayed rows takes {delayed.idle:.2f} ms in the database, {verdict} the bar of "
        f"{IDLE_BAR:g} ms; the slowest of all backgrounds is {worst.idle:.2f} ms ({worst.background})."
    )


def _plans(measured: list[Growth]) -> Iterator[str]:
    wrong: dict[str, list[str]] = {}
    for growth in measured:
        for text in growth.wrong_plans:
            wrong.setdefault(text.split(":")[0], []).append(f"{growth.background}: {text}")
    if not wrong:
        yield "Every plan of tests/plans holds at this size."
        return
    yield "Plans that are not as tests/plans wants them at this size, the first finding of each:"
    yield ""
    yield from (f"- {texts[0]} ({len(texts)} findings)" for texts in wrong.values())


def _machine() -> str:
    load = os.getloadavg()[2]
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, load average {load:.1f}"
