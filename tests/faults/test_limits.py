"""Limits hold across processes, whoever dies: what handlers saw beside what the database says."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import pytest

from leasehold.domain.records import SlotRow
from tests.faults import limit_tasks
from tests.faults.harness import Fleet, Place, check, wait_for
from tests.faults.limit_tasks import CPU, NETWORK
from tests.faults.side_log import Run

WORKER = "tests.faults.limit_worker"
LIMITS = {NETWORK: 4, CPU: 8}
SHAPES: tuple[tuple[str, dict[str, int], int], ...] = (
    ("use", {NETWORK: 1}, 40),
    ("use", {CPU: 1}, 25),
    ("use", {NETWORK: 1, CPU: 2}, 15),
    ("use", {NETWORK: 2}, 10),
    ("use_inside", {CPU: 1}, 10),
)
"""Task, needs, and how many of a hundred."""


def most_at_once(runs: Iterable[Run], deaths: dict[int, float], name: str) -> int:
    """Units that handlers held at the same moment. A run whose process died held them until then."""
    moments = []
    for run in runs:
        units = run.note.get(name, 0)
        if units:
            ended = deaths[run.pid] if run.ended is None else run.ended
            moments += [(run.started, 1, units), (ended, 0, -units)]
    most = now = 0
    for _, _, units in sorted(moments):
        now += units
        most = max(most, now)
    return most


class Watch:
    """What the database says is in use, looked at again and again."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.most = dict.fromkeys(LIMITS, 0)
        self.looks = 0

    def look(self) -> list[SlotRow]:
        rows = self._place.app.slots.list()
        self.looks += 1
        for row in rows:
            self.most[row.name] = max(self.most[row.name], row.used)
            assert row.used <= row.limit, f"{row.name}: {row.used} of {row.limit} in use"
        return rows

    def done(self) -> bool:
        self.look()
        return self._place.unfinished() == 0


def drain_under_kills(
    place: Place, fleet: Fleet, jobs: int, length: float, seconds: float, every: float
) -> str:
    tasks = limit_tasks.register(place.app, place.folder, place.lease)
    for name, limit in LIMITS.items():
        place.app.slots.set(name, limit)
    made = []
    for task, needs, share in SHAPES:
        call = getattr(tasks, task)
        call = call.using(slots=needs) if task == "use" else call
        made += call.enqueue_many([{"seconds": length, "needs": needs}] * (jobs * share // 100))
    began = time.monotonic()
    settings: dict[str, Any] = {"concurrency": 8, "module": WORKER}
    fleet.start_many(4, **settings)
    watch = Watch(place)
    fleet.kill_until(watch.done, "all jobs to end", every=every, seconds=seconds, busiest=True, **settings)
    spent = time.monotonic() - began
    lost = place.query("SELECT count(*) FROM leasehold.history WHERE event = 'lost'")[0][0]
    assert fleet.kills >= 5, "the jobs were too short for this test to show anything"
    assert lost > 0, "no kill hit a holder"
    figures = check(place, [job.id for job in made], fleet)
    runs = [run for run in place.log.runs() if run.note is not None]
    seen = {name: most_at_once(runs, fleet.deaths(), name) for name in LIMITS}
    assert seen == LIMITS, "by the handlers' own words: never more, and all of it"
    assert watch.most == LIMITS, "by the database: never more, and all of it"
    assert [(row.name, row.used, row.holders) for row in place.app.slots.list()] == [
        (CPU, 0, []),
        (NETWORK, 0, []),
    ]
    # No unit is missing either: a job that needs all of them finds them.
    last = tasks.use.using(slots=LIMITS).enqueue(0.0, LIMITS)
    place.wait_for_state(last.id, "succeeded")
    assert fleet.unexpected() == []
    return f"{place.store}: {figures}, {watch.looks} looks, {lost} leases lost, {spent:.1f} s"


@pytest.mark.slow(12)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("lease", [1.5])
@pytest.mark.parametrize(
    ("jobs", "length", "every"), [(300, 0.1, 0.6), pytest.param(1000, 0.04, 1.0, marks=pytest.mark.soak)]
)
def test_slots_hold_under_kills_and_none_leaks(
    place: Place, fleet: Fleet, lease: float, jobs: int, length: float, every: float
) -> None:
    print("\n" + drain_under_kills(place, fleet, jobs, length, seconds=200, every=every))


# --- rates ----------------------------------------------------------------------------------------------------------

SPACING, BURST = 0.1, 25
"""What a busy machine has left unused for two seconds is made up for."""


def starts_of(place: Place, jobs: Iterable[str]) -> list[float]:
    rows = [place.row(job) for job in jobs]
    assert {row.attempt for row in rows} == {1}, "a second start would hide the first"
    return sorted(row.started_at.timestamp() for row in rows)


def crowded_windows(starts: list[float], spacing: float, burst: int) -> list[tuple[float, float, int]]:
    """Windows in which more jobs started than the rate allows. Any window is as full as the one that begins and ends
    with a start; the stored times are whole microseconds."""
    return [
        (starts[first], starts[last], last - first + 1)
        for first, last in combinations(range(len(starts)), 2)
        if last - first + 1 > (starts[last] - starts[first] + 2e-6) / spacing + burst
    ]


@pytest.mark.slow(9)
@pytest.mark.timeout(120)
def test_a_rate_of_600_a_minute_is_kept_by_four_processes_and_used(place: Place, fleet: Fleet) -> None:
    tasks = limit_tasks.register(place.app, place.folder, place.lease)
    place.app.rates.set("api", "600/min", burst=BURST)
    fleet.start_many(4, module=WORKER, concurrency=4)
    jobs = [job.id for job in tasks.call_api.enqueue_many([{}] * 100)]
    wait_for(lambda: place.unfinished() == 0, "all jobs to end", 100)
    starts = starts_of(place, jobs)
    assert crowded_windows(starts, SPACING, BURST) == []
    workers = {row.settled_by for row in map(place.row, jobs)}
    rate = (len(starts) - BURST) / (starts[-1] - starts[0])
    print(f"\n{place.store}: {rate * 60:.0f} a minute of 600, by {len(workers)} processes")
    assert rate >= 0.9 / SPACING
    assert len(workers) > 1, "one worker took all: this shows nothing"
    assert fleet.unexpected() == []


def test_the_check_sees_a_window_that_is_too_full() -> None:
    even = [n * SPACING for n in range(50)]
    assert crowded_windows(even, SPACING, 1) == []
    assert crowded_windows(sorted([*even, 2.55]), SPACING, 1) != []
    assert crowded_windows(sorted([*even, 2.55]), SPACING, 2) == []


@pytest.mark.timeout(120)
def test_a_key_that_is_closed_and_opened_is_seen_by_all_processes_long_before_they_poll(
    place: Place, fleet: Fleet
) -> None:
    tasks = limit_tasks.register(place.app, place.folder, place.lease)
    place.app.rates.set("api", "600/min", burst=8)
    queues = [f"q{n}" for n in range(4)]
    for queue in queues:
        fleet.start(module=WORKER, queues=queue, poll=60.0)
    place.app.rates.close("api", reason="429", actor="test")
    closed = [tasks.call_api.using(queue=q).enqueue() for q in queues for _ in range(2)]
    # Each worker has looked, and more than once: work that is enqueued later was done.
    for _ in range(2):
        probes = [tasks.brief.using(queue=queue).enqueue(0) for queue in queues]
        for probe in probes:
            place.wait_for_state(probe.id, "succeeded")
    assert {place.row(job.id).attempt for job in closed} == {0}
    opened_at = time.time()
    assert place.app.rates.open("api")
    for job in closed:
        place.wait_for_state(job.id, "succeeded")
    late = [start - opened_at for start in starts_of(place, [job.id for job in closed])]
    print(f"\n{place.store}: {max(late):.3f} s after it was opened, all had started")
    assert max(late) < 15.0

    # Closed while jobs wait for their turn: nobody starts another.
    waiting = [tasks.call_api.using(queue=q).enqueue() for q in queues for _ in range(20)]
    wait_for(lambda: any(place.row(job.id).attempt for job in waiting), "the first to start")
    place.app.rates.close("api", for_="1h")
    closed_at = time.time()
    for _ in range(3):
        probes = [tasks.brief.using(queue=queue).enqueue(0) for queue in queues]
        for probe in probes:
            place.wait_for_state(probe.id, "succeeded")
    started = [row.started_at for row in (place.row(job.id) for job in waiting) if row.started_at]
    assert len(started) < len(waiting)
    assert max(start.timestamp() for start in started) - closed_at < 1.0
    assert fleet.unexpected() == []
