"""What it costs to look into a store with a million ended jobs: one job, pages of a list, counts. Figures:
docs/measured/lists.md.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.progress import Progress

from bench.backgrounds import KIND, QUEUE, RARE_KIND, RARE_QUEUE, load_history
from bench.places import ROOT, Place, durable_server, postgres_place, server_version, sqlite_place
from bench.speed import Table
from leasehold.domain.job import NewJob
from leasehold.domain.outcome import Failure
from leasehold.domain.records import Filter, Page
from leasehold.domain.states import State
from leasehold.stores.results import Ending
from leasehold.stores.verbs.inspect import WINDOW
from leasehold.tasks.blueprint import new_ids
from tests.plans.postgres import MODES
from tests.plans.postgres import Scene as PostgresScene
from tests.plans.traced import Traced

TIMES = 101
SERVED, SEARCHED = 5.0, 30.0
"""Milliseconds, where an index serves the page, and where it has to be searched for."""
LIVE = 2000
REPORT = ROOT / "docs" / "measured" / "lists.md"


def run(rows: int) -> None:
    table = Table()
    with (
        tempfile.TemporaryDirectory(dir=ROOT / "build" if (ROOT / "build").is_dir() else None) as name,
        durable_server() as server,
        Progress(transient=True) as progress,
    ):
        version = server_version(server.url())
        places = {
            "PostgreSQL": lambda: postgres_place(server, "lists"),
            "SQLite": lambda: sqlite_place(Path(name), "lists"),
        }
        steps = progress.add_task("lists", total=len(places))
        for store, make in places.items():
            progress.update(steps, description=store)
            place = make()
            fill_past_and_present(place, rows)
            _measure(table, store, place)
            place.close()
            progress.advance(steps)
    print(table)
    _write(table, version, rows)


def fill_past_and_present(place: Place, rows: int) -> None:
    """The past, and some that live: queued, running, in lanes, and due again after a failure."""
    scene = place.scene
    load_history(scene.run, scene.dialect, rows)
    ids = new_ids(2 * LIVE)
    lanes = [None] * LIVE + [f"lane-{n % 100}" for n in range(LIVE)]
    jobs = [
        NewJob(id=i, task=KIND, queue=QUEUE, args="{}", lane=lane) for i, lane in zip(ids, lanes, strict=True)
    ]
    place.store.enqueue(jobs)
    grants = place.store.claim("somebody", [QUEUE], LIVE // 2)
    failed = [Ending(grant.id, grant.token, Failure("no"), grant.seq) for grant in grants[::2]]
    place.store.settle(failed)
    assert place.store.misplaced() == []
    scene.analyse()
    if isinstance(scene, PostgresScene):
        scene.vacuum()


def _measure(table: Table, store: str, place: Place) -> None:
    newest, oldest = place.store.list_jobs(), place.store.list_jobs(Filter(group="group-10"))

    def page(**requested: Any) -> Callable[[], Page]:
        return lambda: place.store.list_jobs(Filter(**requested))

    served: dict[str, Callable[[], object]] = {
        "get, the newest": lambda: place.store.get(newest.jobs[0].id),
        "get, one that has ended": lambda: place.store.get(oldest.jobs[-1].id),
        "list": page(),
        **{f"list, {state.value}": page(states=(state,)) for state in State},
        "list, queued or running": page(states=(State.QUEUED, State.RUNNING)),
        "list, failed or timed out": page(states=(State.FAILED, State.TIMED_OUT)),
        "list of a group": page(group="group-10"),
        "list of a group of 1,000 of which none has failed": page(group="group-10", states=(State.FAILED,)),
        "count, up to 10,000 of each state": place.store.count,
    }
    for what, work in served.items():
        table.most(f"{store}: {what}", _median(work), "ms", SERVED)
    searched: dict[str, Callable[[], Page]] = {
        "list of a queue": page(queue=QUEUE),
        "list of a task": page(task=KIND),
        "list of a task, succeeded": page(task=KIND, states=(State.SUCCEEDED,)),
        "list of a queue, queued": page(queue=QUEUE, states=(State.QUEUED,)),
        "a page of a queue that has nothing new": page(queue=RARE_QUEUE),
        "a page of a task that has nothing new": page(task=RARE_KIND),
        "a page of a task that has nothing new, succeeded": page(task=RARE_KIND, states=(State.SUCCEEDED,)),
        "a page of a task that has never failed": page(task=RARE_KIND, states=(State.FAILED,)),
    }
    for what, work in searched.items():
        table.most(f"{store}: {what}", _median(work), "ms", SEARCHED)
        most = _most_rows(place, work)
        if most is not None:
            table.fact(
                f"{store}: {what}, rows", f"{most:,.0f} looked at", f"≤ {WINDOW:,}", most <= WINDOW + 1
            )
    pages = _pages_to_the_end(place, Filter(task=RARE_KIND))
    reported = f"{pages[1]:,} jobs, {pages[0]} pages, {pages[2] / pages[0]:.1f} ms a page"
    table.fact(f"{store}: all of the oldest task, page by page", reported, "1,000 jobs", pages[1] == 1000)


def _median(work: Callable[[], object]) -> float:
    """Milliseconds. Only the first few runs are planned by the server: a tool that asks again and again is the rule."""
    for _ in range(10):
        work()
    seconds = []
    for _ in range(TIMES):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return 1000 * statistics.median(seconds)


def _most_rows(place: Place, work: Callable[[], Page]) -> float | None:
    """That one step of its statements has met, all statements of a page together; the SQLite store cannot tell."""
    if not isinstance(place.scene, PostgresScene):
        return None
    with Traced(place.store) as calls:
        work()
    lists = [call for call in calls if call.statement.startswith("list_jobs")]
    plans = [place.scene.explain(call, MODES[0]) for call in lists]
    return sum(max(node.rows for node in plan.nodes if node.index or node.table) for plan in plans)


def _pages_to_the_end(place: Place, filter: Filter) -> tuple[int, int, float]:
    pages, jobs, before = 0, 0, None
    began = time.perf_counter()
    while True:
        page = place.store.list_jobs(filter, limit=500, cursor=before)
        pages, jobs, before = pages + 1, jobs + len(page.jobs), page.next
        if before is None:
            return pages, jobs, 1000 * (time.perf_counter() - began)


def _write(table: Table, version: str, rows: int) -> None:
    head = (
        f"# Lists, measured\n\n`python -m bench lists` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; "
        f"{os.cpu_count()} cores shared by database and caller, {platform.system()} {platform.machine()}, "
        f"load average {os.getloadavg()[0]:.1f}; Python {platform.python_version()}, PostgreSQL {version} (stock "
        f"settings), SQLite {sqlite3.sqlite_version}. Medians of {TIMES}, pages of 50; {rows:,} ended jobs, three of a "
        f"hundred not well, and {2 * LIVE:,} that live.\n\n"
    )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(head + str(table) + "\n", encoding="utf-8")
