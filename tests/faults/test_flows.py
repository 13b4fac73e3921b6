"""Workers are killed while jobs ask for follow-ups and wait for each other: exactly the right jobs are there."""

from __future__ import annotations

import contextlib
import json
import platform
import random
import sqlite3
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from leasehold import State
from tests.faults.conftest import MakePlace
from tests.faults.flow_tasks import register
from tests.faults.harness import ROOT, Fleet, Place, check, wait_for
from tests.servers import PostgresServer

WORKER = "tests.faults.flow_tasks"
SETTINGS = {"concurrency": 8, "threads": 4, "module": WORKER}
WORKERS = {"postgres": 4, "sqlite": 2}
NAMES = ["at once", "first", "second"]


@pytest.fixture
def tasks(place: Place) -> SimpleNamespace:
    return register(place.app, place.folder, place.lease)


def follow_ups_under_kills(
    place: Place,
    tasks: SimpleNamespace,
    fleet: Fleet,
    parents: int,
    killed_every: float = 1.0,
    longest: float = 0.9,
) -> Counter[str]:
    """Exactly three children each, whatever was killed, and everything has ended well."""
    rng = random.Random(parents)
    started = time.monotonic()
    lengths = [{"seconds": rng.uniform(0.1, longest)} for _ in range(parents)]
    half = parents * 2 // 3
    made = [
        *tasks.parent.enqueue_many(lengths[:half]),
        *tasks.parent_in_thread.enqueue_many(lengths[half:]),
    ]
    fleet.start_many(WORKERS[place.store], **SETTINGS)
    fleet.kill_until(
        lambda: place.unfinished() == 0,
        f"{parents} parents and their follow-ups to end",
        every=killed_every,
        seconds=150,
        busiest=True,
        **SETTINGS,
    )
    wanted = {job.id for job in made}
    rows = place.query("SELECT id, args FROM leasehold.job_row WHERE task = 'child'")
    named: dict[str, list[str]] = {job: [] for job in wanted}
    for _, args in rows:
        reported = args if isinstance(args, dict) else json.loads(args)
        named[reported["parent"]].append(reported["name"])
    assert {job: names for job, names in named.items() if sorted(names) != NAMES} == {}
    assert len(rows) == 3 * parents
    tied = place.query("SELECT parent_id, count(*) FROM leasehold.follow_up GROUP BY parent_id")
    assert {(str(job), number) for job, number in tied} == {(job, 3) for job in wanted}
    figures = check(place, wanted | {str(row[0]) for row in rows}, fleet)
    text = "SELECT count(*) FROM leasehold.history AS h JOIN leasehold.job_row AS j ON j.id = h.job_id"
    lost = place.query(f"{text} WHERE h.event = 'lost' AND j.task <> 'child'")[0][0]
    assert lost > 0, "no parent was struck, so this has shown nothing"
    assert fleet.kills >= 5
    assert fleet.unexpected() == []
    print(f"\n{place.store}: {figures}, {lost} parents lost, {time.monotonic() - started:.1f} s", flush=True)
    return Counter(parents=parents, children=len(rows), kills=fleet.kills, lost=lost, runs=figures.runs)


@pytest.mark.slow(15)
@pytest.mark.timeout(200)
def test_parents_with_three_follow_ups_each_make_exactly_three_times_as_many_under_kills(
    place: Place, tasks: SimpleNamespace, fleet: Fleet
) -> None:
    longest = (
        0.4 + 0.2 * WORKERS[place.store]
    )  # many workers need long jobs to be struck in the middle of them
    figures = follow_ups_under_kills(place, tasks, fleet, 150, killed_every=0.8, longest=longest)
    assert figures["children"] == 450


FAN = 120


@pytest.mark.slow(10)
@pytest.mark.timeout(150)
def test_a_fan_out_of_120_and_its_fan_in_survive_the_death_of_all_workers_in_the_middle(
    place: Place, tasks: SimpleNamespace, fleet: Fleet
) -> None:
    rng = random.Random(FAN)
    flow, broken = place.app.dag(), place.app.dag()
    for n in range(FAN):
        flow.add(f"part {n}", tasks.part.bind(n, rng.uniform(0.1, 0.4)))
    flow.add("join", tasks.join, after=[f"part {n}" for n in range(FAN)])
    flow.add("after join", tasks.join, after=["join"])
    # One of its thirty branches fails; what hangs on the others alone goes on.
    for n in range(30):
        broken.add(f"part {n}", tasks.part.bind(-1 if n == 17 else n, rng.uniform(0.1, 0.4)))
        broken.add(f"second {n}", tasks.join, after=[f"part {n}"])
    broken.add("join", tasks.join, after=[f"second {n}" for n in range(30)])
    broken.add("last", tasks.join, after=["join"])
    broken.add("anyway", tasks.join, after=["join"], on_parent_failure="run")
    good, bad = flow.enqueue(), broken.enqueue()

    fleet.start_many(WORKERS[place.store], **SETTINGS)
    for done in (25, 60, 100):
        wait_for(lambda done=done: count(place, "succeeded", "part") >= done, f"{done} parts to succeed")
        for worker in fleet.alive:
            worker.kill()
            fleet.kills += 1
        assert place.row(good["join"].id).state is State.PENDING
        fleet.start_many(WORKERS[place.store], **SETTINGS)
    place.wait_for_state(good["after join"].id, "succeeded", seconds=90)
    place.wait_for_state(bad["anyway"].id, "succeeded")
    wait_for(lambda: place.unfinished() == 0, "everything to end")

    assert good["join"].result(timeout=0) == [n * n for n in range(FAN)]
    assert good["after join"].result(timeout=0) == [[n * n for n in range(FAN)]]
    assert place.row(good["join"].id).attempt == 1
    cause = f"job {bad['part 17'].id} (part) ended failed"
    for name in ("second 17", "join", "last"):
        row = place.row(bad[name].id)
        assert (row.state, row.reason, row.attempt) == (State.CANCELLED, cause, 0)
    assert bad["anyway"].result(timeout=0) == []
    others = [place.row(bad[f"second {n}"].id).state for n in range(30) if n != 17]
    assert others == [State.SUCCEEDED] * 29
    assert place.query("SELECT count(*) FROM leasehold.history WHERE event = 'lost'")[0][0] > 0
    assert fleet.unexpected() == []


def count(place: Place, state: str, task: str) -> int:
    text = "SELECT count(*) FROM leasehold.job_row WHERE state = ? AND task = ?"
    return int(place.query(text, state, task)[0][0])


# --- the long run ---------------------------------------------------------------------------------------------------

SOAK_PARENTS = 10_000
ROUND = 500
PROGRESS = ROOT / "build" / "soak"
PAGE = ROOT / "docs" / "measured" / "flows.md"


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_follow_ups_of_10000_parents_are_exact_under_kills(
    store: str, tmp_path: Path, make_place: MakePlace, start_postgres, postgres_server: PostgresServer
) -> None:
    """What a round has shown is kept, so that an interrupted run goes on after it."""
    path = PROGRESS / f"flows-{store}.json"
    progress = Counter(json.loads(path.read_text())) if path.exists() else Counter()
    server = start_postgres(fsync=True) if store == "postgres" else None
    while progress["parents"] < SOAK_PARENTS:
        started = time.monotonic()
        name = f"round_{progress['rounds'] + 1}"
        url = server.create_database(name) if server else f"sqlite:///{tmp_path}/{name}.db"
        place = make_place(store, url=url)
        with contextlib.closing(Fleet(place)) as fleet:
            tasks = register(place.app, place.folder, place.lease)
            progress.update(follow_ups_under_kills(place, tasks, fleet, ROUND))
        progress.update({"rounds": 1, "seconds": time.monotonic() - started})
        _save(path, json.dumps(progress))
    _save(PAGE, report(postgres_server.version))


def report(postgres: int) -> str:
    """Of the stores that have been through it so far."""
    found = {store: PROGRESS / f"flows-{store}.json" for store in WORKERS}
    done = {store: Counter(json.loads(path.read_text())) for store, path in found.items() if path.exists()}
    versions = {"postgres": f"PostgreSQL {postgres}", "sqlite": f"SQLite {sqlite3.sqlite_version}"}
    rows = {
        "worker processes at once": [WORKERS[store] for store in done],
        "minutes": [f"{progress['seconds'] / 60:.1f}" for progress in done.values()],
        "parents, each succeeded once": [f"{progress['parents']:,}" for progress in done.values()],
        "follow-ups made, three for each": [f"{progress['children']:,}" for progress in done.values()],
        "workers killed with SIGKILL": [f"{progress['kills']:,}" for progress in done.values()],
        "parents whose lease was lost in a run": [f"{progress['lost']:,}" for progress in done.values()],
        "handlers started": [f"{progress['runs']:,}" for progress in done.values()],
        "follow-ups missing or doubled": [0 for _ in done],
    }
    lines = [
        "# Follow-ups under kills",
        "",
        "Written by `make soak` (tests/faults/test_flows.py): every second a worker is killed with SIGKILL and",
        "replaced, while jobs ask for three follow-ups each, two with their success and one at once.",
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
