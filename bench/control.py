"""What control costs those who do not use it: plain drains beside a million jobs behind a full slot, or behind a
closed key; and what it costs to ask why a job is not running, with a million others around it. Figures:
docs/measured/control.md.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.progress import Progress

from bench.backgrounds import ALL, BACKGROUNDS, KIND, NOTHING, QUEUE
from bench.places import ROOT, Place, durable_server, postgres_place, server_version, sqlite_place
from bench.speed import JOBS, ROUNDS, Table
from leasehold.domain.job import NewJob
from leasehold.operations.explain import explain
from leasehold.tasks.blueprint import new_ids
from tests.plans import postgres
from tests.plans.traced import Call, Traced

CROWDS = ("behind a full slot, higher priority", "behind a closed key, higher priority")
KINDS = ("limited", "rated")
"""Those of the crowds. The worker knows them, so that it has to look at their gates."""
BAR = 0.9
MOST_READS = 16
ASKED = 20
REPORT = ROOT / "docs" / "measured" / "control.md"
PARTS = ("drains", "explain")

Make = Callable[[str], Place]


def run(rows: int, parts: list[str] | None = None) -> None:
    table = Table()
    wanted = parts or list(PARTS)
    with (
        tempfile.TemporaryDirectory(dir=ROOT / "build" if (ROOT / "build").is_dir() else None) as name,
        durable_server() as server,
        Progress(transient=True) as progress,
    ):
        folder = Path(name)
        version = server_version(server.url())
        stores: Mapping[str, Make] = {
            "PostgreSQL": lambda name: postgres_place(server, name),
            "SQLite": lambda name: sqlite_place(folder, name),
        }
        steps = progress.add_task("control", total=len(wanted) * len(stores))
        for part in wanted:
            for store, make in stores.items():
                progress.update(steps, description=f"{part}, {store}")
                (_drains if part == "drains" else _explain)(table, store, make, rows)
                progress.advance(steps)
    print(table)
    _write(table, version, rows)


# --- Drains ---------------------------------------------------------------------------------------------------------


def _drains(table: Table, store: str, make: Make, rows: int) -> None:
    """An empty store and the crowded ones take turns."""
    places = {crowd: make(f"drain_{number}") for number, crowd in enumerate((NOTHING, *CROWDS))}
    for crowd, place in places.items():
        place.load(crowd, rows)
    rates: dict[str, list[float]] = {crowd: [] for crowd in places}
    for _ in range(ROUNDS):
        for crowd, place in places.items():
            place.fill(JOBS)
            rates[crowd].append(place.drain(JOBS, tasks=KINDS)["rate"])
    for crowd in CROWDS:
        table.ratio(f"{store}: plain drain with {rows:,} {crowd} / empty", rates[crowd], rates[NOTHING], BAR)
    for place in places.values():
        place.close()


# --- Explain --------------------------------------------------------------------------------------------------------


def _explain(table: Table, store: str, make: Make, rows: int) -> None:
    """Of every background as many rows, so that there are `rows` in all."""
    empty, full = make("explain_empty"), make("explain_full")
    empty.load(NOTHING, 0)
    full.load(ALL, rows // len(BACKGROUNDS))
    requested = {place: _jobs(place) for place in (empty, full)}
    for name in requested[full]:
        bare, crowded = (_ask(place, requested[place][name]) for place in (empty, full))
        wrong = _wrong_plans(full, crowded.calls)
        table.fact(
            f"{store}: why is {name} not running, with {rows:,} jobs",
            "; ".join([f"{crowded} (empty: {bare})", *wrong]),
            f"≤ {MOST_READS} reads, as many as when empty, each by an index",
            len(crowded.calls) == len(bare.calls) <= MOST_READS and not wrong,
        )
    for place in (empty, full):
        place.close()


def _jobs(place: Place) -> dict[str, str]:
    """The same two on every store: one that is due and plain, one behind another in its lane."""
    ids = new_ids(3)
    lanes = [None, "explained", "explained"]
    place.store.enqueue(
        [
            NewJob(id=job_id, task=KIND, queue=QUEUE, args="{}", lane=lane)
            for job_id, lane in zip(ids, lanes, strict=True)
        ]
    )
    return {"a plain job": ids[0], "the second job of a lane": ids[2]}


@dataclass(frozen=True)
class QuestionAsked:
    calls: list[Call]
    milliseconds: float

    def __str__(self) -> str:
        return f"{len(self.calls)} reads, {self.milliseconds:.1f} ms"


def _ask(place: Place, job_id: str) -> QuestionAsked:
    seconds = []
    for _ in range(ASKED):
        began = time.perf_counter()
        explain(place.store, job_id)
        seconds.append(time.perf_counter() - began)
    with Traced(place.store) as calls:
        explain(place.store, job_id)
    return QuestionAsked(calls, 1000 * statistics.median(seconds))


def _wrong_plans(place: Place, calls: list[Call]) -> list[str]:
    """The promises of tests/plans about the statements that were sent, with the values that were sent."""
    wrong: list[str] = []
    for call in calls:
        if isinstance(place.scene, postgres.Scene):
            for mode in postgres.MODES:
                plan = place.scene.explain(call, mode)
                wrong += plan.whole_tables() + plan.too_many_rows()
        else:
            visited = place.scene.explain(call)
            wrong += visited.whole_tables() + visited.too_many_steps()
    return wrong


# --- Telling --------------------------------------------------------------------------------------------------------


def _write(table: Table, version: str, rows: int) -> None:
    head = (
        f"# Control, measured\n\n`python -m bench control` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; "
        f"{os.cpu_count()} cores shared by database, worker and producer, {platform.system()} {platform.machine()}, "
        f"load average {os.getloadavg()[0]:.1f}; Python {platform.python_version()}, PostgreSQL {version} (stock "
        f"settings, fsync on), SQLite {sqlite3.sqlite_version} (synchronous=FULL). Medians of {ROUNDS}, in turns; "
        f"drains of {JOBS:,} no-ops at concurrency 1,000; {rows:,} rows of each background.\n\n"
    )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(head + str(table) + "\n", encoding="utf-8")
