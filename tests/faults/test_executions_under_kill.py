"""Workers are killed and frozen while they watch executions: each of those runs once, and nobody pays for it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold.types import Job
from tests.faults import execution_tasks
from tests.faults.conftest import MakePlace, commands_alone
from tests.faults.execution_kinds import Kind, execution
from tests.faults.execution_tasks import MOMENTS, Moment, starts_of
from tests.faults.harness import ROOT, Place, freeze, wait_for
from tests.faults.zygote import Zygote, zygote
from tests.measured import Page
from tests.servers import PostgresServer

LEASE = 1.0


@pytest.fixture
def lease() -> float:
    return LEASE


def placed(place: Place) -> set[str]:
    """By the database: every execution that anybody may ever have started."""
    return {str(name) for (name,) in place.query("SELECT name FROM leasehold.execution")}


class Ward:
    """Workers that strike themselves: the dead are replaced, the frozen are woken after a while."""

    def __init__(self, place: Place, workers: Zygote, number: int, frozen_for: float) -> None:
        self._place = place
        self._workers = workers
        self._number = number
        self._frozen_for = frozen_for
        self._frozen: dict[int, float] = {}
        self.freezes = 0

    def look(self) -> None:
        self._workers.reap_dead()
        self._frozen = {pid: at for pid, at in self._frozen.items() if pid in self._workers.alive}
        for mark in self._place.folder.glob("freeze-*"):
            self._freeze(mark)
        for pid, until in list(self._frozen.items()):
            if time.monotonic() >= until:
                del self._frozen[pid]
                os.kill(pid, signal.SIGCONT)
        while len(self._workers.alive) - len(self._frozen) < self._number:
            self._workers.start()

    def _freeze(self, mark: Path) -> None:
        """Whoever is held at a spot goes on from there when it wakes. It may have died of another blow meanwhile."""
        pid = int(mark.name.split("-")[1])
        if pid in self._workers.alive and pid not in self._frozen:
            freeze(pid, self._place.sqlite_file)
            self._frozen[pid] = time.monotonic() + self._frozen_for
            self.freezes += 1
        mark.unlink()


def strike_each(
    place: Place,
    tasks: SimpleNamespace,
    moments: Sequence[Moment],
    rounds: int,
    *,
    workers: int = 6,
    seconds: float = 100.0,
) -> dict[str, int]:
    """The watcher of each execution is struck once, at its moment. Every execution must have run once, and no job may
    have paid for it."""
    kind: Kind = tasks.kind
    jobs: dict[Moment, list[Job[Any]]] = {
        moment: [
            tasks.struck[moment].enqueue(f"{moment}-{n}", seconds=0.5 if moment == "running" else 0.05)
            for n in range(rounds)
        ]
        for moment in moments
    }
    every = [job for some in jobs.values() for job in some]
    with zygote(place, "tests.faults.execution_tasks", max_executions=3) as forked:
        ward = Ward(place, forked, workers, frozen_for=2.5 * place.lease)

        def at_rest() -> bool:
            ward.look()
            return place.unfinished() == 0

        wait_for(at_rest, f"{len(every)} jobs to end", seconds)
        deaths = forked.deaths
    check_each(place, kind, jobs)
    struck = len(list(place.folder.glob("struck-*")))
    assert struck == len(every), "not every moment was met"
    events = Counter(event for (event,) in place.query("SELECT event FROM leasehold.history"))
    assert events["adopted"] >= len(every) / 2, "the blows met nobody: this has shown nothing"
    return {
        "executions": len(every),
        "kills": deaths,
        "freezes": ward.freezes,
        "lost": events["lost"],
        "adopted": events["adopted"],
    }


def check_each(place: Place, kind: Kind, jobs: Mapping[Moment, Sequence[Job[Any]]]) -> None:
    wanted = set()
    for moment, some in jobs.items():
        for job in some:
            row, history = place.row(job.id), [entry.event for entry in job.history()]
            reported = f"{moment}: {row}, {history}, {starts_of(place.folder, execution(job, row.attempt))}"
            assert row.state.value == "succeeded", reported
            # A loss before anything was placed is a crash and a new attempt; an adopted one is neither. On a busy
            # machine a lease may run out before its job begins: that is handed back.
            unplaced = row.crashes + history.count("handed_back")
            assert (row.failures, row.attempt) == (0, unplaced + 1), reported
            left = history.count("lost") - row.crashes + history.count("detached")
            assert left == history.count("adopted"), reported
            assert job.result(timeout=0) == execution(job, row.attempt), reported
            wanted.add(execution(job, row.attempt))
    assert kind.ever_ran() == dict.fromkeys(wanted, 1)
    assert placed(place) == wanted
    assert kind.alive() == set()
    assert kind.left() <= wanted


@pytest.mark.slow(7)
@pytest.mark.timeout(200)
def test_an_execution_whose_watcher_is_killed_at_any_moment_runs_once_and_costs_nothing(
    place: Place, executions: SimpleNamespace
) -> None:
    started = time.monotonic()
    figures = strike_each(place, executions, MOMENTS, executions.kind.rounds)
    print(f"\n{place.store}: {figures}, {time.monotonic() - started:.1f} s", flush=True)


@commands_alone
@pytest.mark.slow(7)
@pytest.mark.timeout(120)
def test_a_watcher_that_was_frozen_at_any_moment_starts_and_settles_nothing_when_it_wakes(
    place: Place, executions: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASEHOLD_TEST_STRIKES", "freeze")
    figures = strike_each(place, executions, MOMENTS, rounds=1)
    print(f"\n{place.store}: {figures}", flush=True)
    # Each is held at its moment until it is frozen; before anything is placed there is nothing to adopt.
    assert figures["adopted"] >= len(MOMENTS) - 1
    assert figures["lost"] > figures["adopted"]


# --- the long run ---------------------------------------------------------------------------------------------------

SOAK_ROUNDS = 50
PROGRESS = ROOT / "build" / "soak"
PAGE = Page(
    "executions.md",
    "Watchers of executions killed and frozen",
    "Written by `make soak` (tests/faults/test_executions_under_kill.py): the worker that watches an execution is\n"
    "killed with SIGKILL, or frozen for longer than its lease and woken, once for each execution: before it is\n"
    "placed, before and after its start, while it runs, when it has exited, and when it is collected. Every execution\n"
    "ran once, every job ended with its result, and no adoption cost an attempt or a crash.",
    ("what", "database", "rounds", "executions", "killed", "frozen", "leases lost", "adopted", "minutes"),
    named_by=2,
)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_watchers_killed_and_frozen_fifty_times_at_each_moment(
    store: str,
    kind_name: str,
    tmp_path: Path,
    make_place: MakePlace,
    start_postgres: Callable[..., PostgresServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEASEHOLD_TEST_STRIKES", "both")
    path = PROGRESS / f"executions-{kind_name}-{store}.json"
    progress: Counter[str] = Counter(json.loads(path.read_text())) if path.exists() else Counter()
    server = start_postgres(fsync=True) if store == "postgres" else None
    while progress["rounds"] < SOAK_ROUNDS:
        started = time.monotonic()
        name = f"round_{progress['rounds'] + 1}"
        url = server.create_database(name) if server else f"sqlite:///{tmp_path}/{name}.db"
        place = make_place(store, url=url, lease=LEASE)
        tasks = execution_tasks.register(place.app, place.folder, place.lease)
        try:
            figures = strike_each(place, tasks, MOMENTS, tasks.kind.rounds, seconds=300.0)
        finally:
            tasks.kind.clean_up()
        seconds = round(time.monotonic() - started)
        progress.update(figures | {"rounds": tasks.kind.rounds, "seconds": seconds})
        # In one move: a run that is killed leaves the old file or the new one.
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(progress))
        draft.replace(path)
    names = ("rounds", "executions", "kills", "freezes", "lost", "adopted")
    database = {"sqlite": "SQLite", "postgres": "PostgreSQL"}[store]
    PAGE.put(kind_name, database, *(progress[name] for name in names), f"{progress['seconds'] / 60:.1f}")
