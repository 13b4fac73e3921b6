"""Workers are killed while they work; nothing is lost, and nothing is settled twice."""

from __future__ import annotations

import contextlib
import json
import platform
import random
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from leasehold import Leasehold, State
from leasehold.errors import InvalidState
from tests.faults.conftest import MakePlace
from tests.faults.harness import ROOT, Figures, Fleet, Place, check
from tests.servers import PostgresServer

KILLED_EVERY = 1.0
"""Seconds, in the long run."""
LONGEST = {"postgres": 0.2, "sqlite": 0.3}
"""Seconds that a job takes, at most: enough for a dozen kills on a fast machine."""
SETTINGS = {"concurrency": 8, "threads": 4}
"""Twelve jobs die with a worker. Many more, and the reapers would take it for an outage and slow down (50 leases of
several owners), which is right, but not what is tested here."""


class Operator(threading.Thread):
    """Cancels jobs and pauses others for a moment, at random, while workers are killed."""

    def __init__(self, app: Leasehold, ids: Sequence[str], seed: int) -> None:
        super().__init__(name="operator", daemon=True)
        self._app = app
        self._ids = ids
        self._rng = random.Random(seed)
        self._over = threading.Event()
        self.cancelled: set[str] = set()
        self.paused = self.resumed = 0
        self._waiting: deque[tuple[float, str]] = deque()
        """Paused ones, and when they go on."""

    def run(self) -> None:
        while not self._over.wait(0.02):
            job_id = self._rng.choice(self._ids)
            if self._rng.random() < 0.5:
                self.cancelled.add(job_id)
                self._try("cancel", job_id)
            elif self._try("pause", job_id):
                self.paused += 1
                self._waiting.append((time.monotonic() + self._rng.uniform(0.0, 1.0), job_id))
            self._resume(time.monotonic())

    def go_home(self) -> None:
        """Whatever is paused now goes on."""
        self._over.set()
        self.join()
        self._resume(float("inf"))

    def _resume(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            _, job_id = self._waiting.popleft()
            if not self._try("resume", job_id) and self._lives(job_id):
                self._waiting.append((now + 0.1, job_id))
                return
            self.resumed += 1

    def _lives(self, job_id: str) -> bool:
        """It may have been flagged while it ran, and not be paused yet."""
        return self._app.get(job_id).state not in (State.SUCCEEDED, State.CANCELLED)

    def _try(self, verb: str, job_id: str) -> bool:
        """What has ended is not moved: that is no error."""
        try:
            getattr(self._app.get(job_id), verb)(actor="operator")
        except InvalidState:
            return False
        return True


def drain_under_kills(
    place: Place,
    fleet: Fleet,
    jobs: int,
    workers: int,
    *,
    every: float = KILLED_EVERY,
    freeze_for: float | None = None,
    operated: bool = False,
) -> Figures:
    rng = random.Random(jobs)
    started = time.monotonic()
    made = []
    for _ in range(0, jobs, 500):
        lengths = [{"seconds": rng.uniform(0.01, LONGEST[place.store])} for _ in range(500)]
        made += place.tasks.brief.enqueue_many(lengths[:400])
        made += place.tasks.brief_in_thread.enqueue_many(lengths[400:])
    fleet.start_many(workers, **SETTINGS)
    operator = Operator(place.app, [job.id for job in made], jobs)
    if operated:
        operator.start()

    def at_rest() -> bool:
        if operated and operator.is_alive() and place.unfinished() < jobs // 20:
            operator.go_home()  # with few jobs left, each would be paused again and again
        return place.unfinished() == 0

    fleet.kill_until(
        at_rest,
        f"{jobs} jobs to end",
        every=every,
        seconds=120,
        freeze_for=freeze_for,
        **SETTINGS,
    )
    figures = check(place, [job.id for job in made], fleet, cancelled=operator.cancelled)
    if operated:
        assert operator.cancelled
        assert operator.paused
    assert figures.jobs == jobs
    assert fleet.kills + fleet.freezes >= 5, "the jobs were too short for this test to show anything"
    assert figures.lost > 0
    if freeze_for is None:
        assert figures.overlaps == 0, "a dead process cannot overlap its successor"
    assert fleet.unexpected() == []
    print(f"\n{place.store}: {figures}, {time.monotonic() - started:.1f} s", flush=True)
    return figures


@pytest.mark.timeout(150)
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_killing_one_of_four_workers_again_and_again_loses_and_doubles_no_job_on_postgres(
    place: Place, fleet: Fleet
) -> None:
    drain_under_kills(place, fleet, jobs=1500, workers=4, every=0.5, operated=True)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_killing_one_of_two_workers_again_and_again_loses_and_doubles_no_job_on_sqlite(
    place: Place, fleet: Fleet
) -> None:
    drain_under_kills(place, fleet, jobs=500, workers=2, every=0.5, operated=True)


# --- the long run ---------------------------------------------------------------------------------------------------

SOAK_MINUTES = 30.0
SOAK_JOBS = {"postgres": 200_000, "sqlite": 20_000}
ROUND = {"postgres": (5000, 4), "sqlite": (1500, 3)}
"""Jobs and workers of one round. What a round has shown is kept, so that an interrupted run goes on after it."""
PROGRESS = ROOT / "build" / "soak"
PAGE = ROOT / "docs" / "measured" / "faults.md"


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_killing_and_freezing_workers_for_long_loses_and_doubles_no_job(
    store: str, tmp_path: Path, make_place: MakePlace, start_postgres, postgres_server: PostgresServer
) -> None:
    path = PROGRESS / f"faults-{store}.json"
    progress = Counter(json.loads(path.read_text())) if path.exists() else Counter()
    jobs, workers = ROUND[store]
    server = start_postgres(fsync=True) if store == "postgres" else None
    while progress["jobs"] < SOAK_JOBS[store] or progress["seconds"] < SOAK_MINUTES * 60:
        started = time.monotonic()
        name = f"round_{progress['rounds'] + 1}"
        url = server.create_database(name) if server else f"sqlite:///{tmp_path}/{name}.db"
        place = make_place(store, url=url)
        with contextlib.closing(Fleet(place)) as fleet:
            figures = drain_under_kills(
                place, fleet, jobs, workers, freeze_for=1.5 * place.lease, operated=True
            )
        progress.update(asdict(figures) | {"rounds": 1, "seconds": time.monotonic() - started})
        _save(path, json.dumps(progress))
    _save(PAGE, report(postgres_server.version))


def report(postgres: int) -> str:
    """Of the stores that have been through it so far."""
    found = {store: PROGRESS / f"faults-{store}.json" for store in SOAK_JOBS}
    done = {store: Counter(json.loads(path.read_text())) for store, path in found.items() if path.exists()}
    versions = {"postgres": f"PostgreSQL {postgres}", "sqlite": f"SQLite {sqlite3.sqlite_version}"}
    rows = {
        "worker processes at once": [ROUND[store][1] for store in done],
        "minutes": [f"{progress['seconds'] / 60:.1f}" for progress in done.values()],
        "jobs, each succeeded once, or cancelled when asked": [
            f"{progress['jobs']:,}" for progress in done.values()
        ],
        "workers killed with SIGKILL": [f"{progress['kills']:,}" for progress in done.values()],
        "workers frozen past their leases": [f"{progress['freezes']:,}" for progress in done.values()],
        "leases lost and recovered": [f"{progress['lost']:,}" for progress in done.values()],
        "leases granted": [f"{progress['grants']:,}" for progress in done.values()],
        "handlers started": [f"{progress['runs']:,}" for progress in done.values()],
        "runs that met their successor (frozen ones only)": [
            f"{progress['overlaps']:,}" for progress in done.values()
        ],
        "jobs lost, settled twice, or run twice under one lease": [0 for _ in done],
    }
    lines = [
        "# Workers killed and frozen",
        "",
        "Written by `make soak` (tests/faults/test_kill.py): every second a worker is killed with SIGKILL and",
        "replaced, or frozen with SIGSTOP past its leases and continued, while an operator cancels jobs at random and",
        "pauses others for a moment. Rows, a trigger that writes down every grant",
        "and every ending, and a log that the handlers keep beside the database are compared after every round.",
        "",
        "| what | " + " | ".join(versions[store] for store in done) + " |",
        "|---|" + "--:|" * len(done),
        *(f"| {what} | " + " | ".join(map(str, values)) + " |" for what, values in rows.items()),
        "",
        f"Finished on {datetime.now(UTC).date().isoformat()}, Python {platform.python_version()}.",
    ]
    return "\n".join(lines) + "\n"


def _save(path: Path, text: str) -> None:
    """In one move: a run that is killed leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.replace(path)
