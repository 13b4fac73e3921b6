"""Workers are killed in the middle of steps and of `ctx.complete`: an effect that commits with them is there once."""

from __future__ import annotations

import json
import platform
import random
import sqlite3
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.faults import durable_tasks
from tests.faults.conftest import MakePlace
from tests.faults.durable_tasks import commits_with_its_effect, expected, make_table
from tests.faults.harness import ROOT, Place, wait_for
from tests.faults.zygote import zygote

LEASE = 1.0
TASKS = "tests.faults.durable_tasks"


@pytest.fixture
def lease() -> float:
    return LEASE


# --- steps ----------------------------------------------------------------------------------------------------------


def die_at_each_step(place: Place, jobs: int, steps: int, workers: int) -> dict[str, Any]:
    """Each job kills its worker once at each of its steps, before, inside or after it in turn."""
    make_table(place)
    tasks = durable_tasks.register(place.app, place.folder, place.lease)
    undisturbed = tasks.many_steps.enqueue(steps=steps, shift=None)
    disturbed = [tasks.many_steps.enqueue(steps=steps, shift=shift) for shift in range(jobs)]
    every = [undisturbed, *disturbed]
    with zygote(place, TASKS, concurrency=1, threads=1) as workers_of:

        def done() -> bool:
            workers_of.reap_dead()
            while len(workers_of.alive) < workers:
                workers_of.start()
            return all(job.refresh().state == "succeeded" for job in every)

        wait_for(done, f"{jobs} jobs to come through {steps} deaths each", seconds=60 + 5 * steps)
        deaths = workers_of.deaths
    marks = {path.name for path in place.folder.glob("died-*")}
    assert marks == {f"died-{job.id}-{n}" for job in disturbed for n in range(steps)}
    assert deaths >= len(marks)
    assert [job.result(timeout=0) for job in every] == [expected(steps)] * len(every)
    effects = Counter(place.query("SELECT job, step FROM leasehold.effect"))
    wanted = {(job.id, n) for job in every for n in range(steps) if commits_with_its_effect(n)}
    assert effects == dict.fromkeys(wanted, 1)
    stored = place.query("SELECT count(*) FROM leasehold.step")
    assert stored == [(steps * len(every),)]
    attempts = [job.__row__.attempt for job in disturbed]
    assert all(attempt > steps // 2 for attempt in attempts), attempts
    return {"jobs": jobs, "steps": jobs * steps, "kills": len(marks), "runs": sum(attempts)}


@pytest.mark.slow(15)
@pytest.mark.timeout(300)
def test_a_job_killed_at_each_of_its_steps_has_every_effect_once_and_the_undisturbed_result(
    place: Place,
) -> None:
    """Three jobs: each step is killed before, inside and after. The long run has more steps, and no other moments."""
    started = time.monotonic()
    figures = die_at_each_step(place, jobs=3, steps=6, workers=4)
    print(f"\n{place.store}: {figures}, {time.monotonic() - started:.1f} s", flush=True)


@pytest.mark.slow(10)
@pytest.mark.timeout(120)
def test_a_job_whose_worker_dies_after_each_of_five_steps_succeeds_and_poison_fails_after_three_deaths(
    place: Place,
) -> None:
    tasks = durable_tasks.register(place.app, place.folder, place.lease)
    patient, poison = tasks.one_step_a_life.enqueue(steps=5), tasks.poison.enqueue()
    with zygote(place, TASKS, concurrency=1, threads=1) as workers_of:

        def at_rest() -> bool:
            workers_of.reap_dead()
            while len(workers_of.alive) < 2:
                workers_of.start()
            return all(job.refresh().state in ("succeeded", "failed") for job in (patient, poison))

        wait_for(at_rest, "both jobs to come to rest", seconds=90)
    assert (patient.state, patient.result(timeout=0), patient.__row__.crashes) == ("succeeded", 6, 1)
    assert (poison.state, poison.attempt, poison.__row__.crashes) == ("failed", 3, 3)


# --- complete -------------------------------------------------------------------------------------------------------

ROUNDS, SOAK_KILLS = 15, 50
"""Of a run here and of a long one."""


def kill_while_completing(place: Place, rounds: int, seed: int = 1) -> dict[str, Any]:
    rng = random.Random(seed)
    make_table(place)
    tasks = durable_tasks.register(place.app, place.folder, place.lease)
    made: list[str] = []

    def top_up() -> None:
        for task in (tasks.complete_on_loop, tasks.complete_in_thread):
            made.extend(job.id for job in task.enqueue_many([{}] * 100))

    with zygote(place, TASKS, concurrency=3, threads=2) as workers:
        coming = [workers.start()]
        for _ in range(rounds):
            if place.query("SELECT count(*) FROM leasehold.job_row WHERE state = 'queued'")[0][0] < 150:
                top_up()
            # The next one starts while this one works.
            coming.append(workers.start())
            pid = coming.pop(0)
            wait_for((place.folder / f"started-{pid}").exists, f"worker {pid} to begin a job")
            time.sleep(rng.uniform(0.0, 0.12))
            workers.kill(pid)
            look(place)
        assert workers.deaths == rounds
        (last,) = coming
        wait_for(lambda: place.unfinished() == 0, "the rest to end", seconds=120)
        workers.kill(last)
    states = Counter(place.query("SELECT state FROM leasehold.job_row"))
    assert states == {("succeeded",): len(made)}
    effects = Counter(str(job) for (job,) in place.query("SELECT job FROM leasehold.effect"))
    assert effects == dict.fromkeys(made, 1)
    assert place.query("SELECT DISTINCT CAST(result AS text) FROM leasehold.job_row") == [('"done"',)]
    lost = place.query("SELECT count(*) FROM leasehold.history WHERE event = 'lost'")[0][0]
    assert lost >= rounds / 2, "the kills met nobody: this has shown nothing"
    return {"rounds": rounds, "jobs": len(made), "lost": lost}


def look(place: Place) -> None:
    """One statement, one snapshot: an effect is there if and only if its job has succeeded, and once."""
    odd = place.query(
        "SELECT j.id, j.state, count(e.job) FROM leasehold.job_row AS j"
        " LEFT JOIN leasehold.effect AS e ON e.job = CAST(j.id AS text) GROUP BY j.id, j.state"
        " HAVING count(e.job) <> CASE WHEN j.state = 'succeeded' THEN 1 ELSE 0 END"
    )
    assert odd == []


@pytest.mark.slow(7)
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("place", "seed", "rounds"),
    [
        ("sqlite", 1, ROUNDS),
        ("postgres", 5, ROUNDS),
        pytest.param("postgres", 6, SOAK_KILLS, marks=pytest.mark.soak),
        *(pytest.param("sqlite", seed, SOAK_KILLS, marks=pytest.mark.soak) for seed in (2, 3, 4, 7)),
    ],
    indirect=["place"],
)
def test_an_effect_and_its_success_commit_or_vanish_together(place: Place, seed: int, rounds: int) -> None:
    started = time.monotonic()
    figures = kill_while_completing(place, rounds, seed)
    print(f"\n{place.store}: {figures}, {time.monotonic() - started:.1f} s", flush=True)


# --- the long run ---------------------------------------------------------------------------------------------------

SOAK_ROUNDS, SOAK_STEPS = 10, 50
PROGRESS = ROOT / "build" / "soak"
PAGE = ROOT / "docs" / "measured" / "steps-under-kill.md"


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_jobs_killed_at_each_of_50_steps_ten_times_over(
    store: str, tmp_path: Path, make_place: MakePlace, start_postgres
):
    path = PROGRESS / f"steps-{store}.json"
    progress = Counter(json.loads(path.read_text())) if path.exists() else Counter()
    server = start_postgres(fsync=True) if store == "postgres" else None
    while progress["rounds"] < SOAK_ROUNDS:
        started = time.monotonic()
        name = f"round_{progress['rounds'] + 1}"
        url = server.create_database(name) if server else f"sqlite:///{tmp_path}/{name}.db"
        place = make_place(store, url=url, lease=LEASE)
        figures = die_at_each_step(place, jobs=3, steps=SOAK_STEPS, workers=4)
        progress.update(figures | {"rounds": 1, "seconds": time.monotonic() - started})
        _save(path, json.dumps(progress))
    _save(PAGE, report())


def report() -> str:
    """Of the stores that have been through it so far."""
    found = {store: PROGRESS / f"steps-{store}.json" for store in ("sqlite", "postgres")}
    done = {store: Counter(json.loads(path.read_text())) for store, path in found.items() if path.exists()}
    names = {"sqlite": f"SQLite {sqlite3.sqlite_version}", "postgres": "PostgreSQL"}
    rows = {
        "rounds": [progress["rounds"] for progress in done.values()],
        "minutes": [f"{progress['seconds'] / 60:.1f}" for progress in done.values()],
        f"jobs of {SOAK_STEPS} steps": [progress["jobs"] for progress in done.values()],
        "workers killed inside or beside a step": [f"{progress['kills']:,}" for progress in done.values()],
        "runs": [f"{progress['runs']:,}" for progress in done.values()],
        "effects lost or doubled, results that differ": [0 for _ in done],
    }
    return "\n".join(
        [
            "# Workers killed at every step",
            "",
            "Written by `make soak` (tests/faults/test_steps_under_kill.py): each job kills its worker with SIGKILL",
            "once at each of its steps, before, inside or after it. Three of four steps write into a table of the",
            "user's with `tx=True`; every effect must be there once, every result that of an undisturbed run.",
            "",
            "| what | " + " | ".join(names[store] for store in done) + " |",
            "|---|" + "--:|" * len(done),
            *(f"| {what} | " + " | ".join(map(str, values)) + " |" for what, values in rows.items()),
            "",
            f"Finished on {datetime.now(UTC).date().isoformat()}, Python {platform.python_version()}.",
            "",
        ]
    )


def _save(path: Path, text: str) -> None:
    """In one move: a run that is killed leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.replace(path)
