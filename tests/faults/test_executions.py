"""Executions outside of their workers: a deploy leaves them alone, and a stop ends them, whoever holds them by then."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold import AtCapacity, Retry
from leasehold.run.external import job_of
from leasehold.types import Job
from tests.faults.conftest import ONE_ENGINE, commands_alone, containers_on_sqlite_alone
from tests.faults.execution_kinds import Kind, execution
from tests.faults.execution_tasks import starts_of
from tests.faults.harness import PATIENCE, Fleet, Place, WorkerProcess, wait_for

LEASE = 1.0
NO_LOSS = 20.0
"""A lease that no worker loses only because its machine is busy."""
MAIN = "tests.faults.execution_main"
CALLER = "tests.faults.execution_caller_main"
HASTE = 15.0
"""Seconds in which a worker that need not wait for anything ends, on a machine that is busy."""


@pytest.fixture
def lease() -> float:
    return LEASE


def is_orphan(place: Place, job: Job[Any]) -> bool:
    return place.row(job.id).orphan


# --- replaced -------------------------------------------------------------------------------------------------------


def enqueue_begun(
    place: Place,
    kind: Kind,
    executions: SimpleNamespace,
    worker: Callable[[], WorkerProcess],
    number: int = 1,
) -> tuple[list[Job[Any]], WorkerProcess]:
    """Executions that have begun and wait for the gate `go`."""
    jobs = [executions.plain.enqueue(str(n), gate="go") for n in range(number)]
    started = worker()
    wait_for(lambda: all(kind.ever_ran()[execution(job)] for job in jobs), "all to begin")
    return jobs, started


@pytest.mark.slow(7)
@containers_on_sqlite_alone
@pytest.mark.timeout(120)
@pytest.mark.parametrize("lease", [NO_LOSS])
def test_a_rolling_deploy_interrupts_and_doubles_nothing(
    place: Place, fleet: Fleet, kind: Kind, executions: SimpleNamespace, lease: float
) -> None:
    jobs, worker = enqueue_begun(place, kind, executions, lambda: fleet.start(module=MAIN), number=kind.many)
    names = {execution(job) for job in jobs}
    for _ in range(3):
        worker.terminate()
        assert worker.wait(HASTE) == 0
        assert all(is_orphan(place, job) for job in jobs)
        assert kind.alive() == names
        worker = fleet.start(module=MAIN)
        wait_for(lambda: not any(is_orphan(place, job) for job in jobs), "all to be adopted")
    place.open_gate("go")
    for job in jobs:
        row = place.wait_for_state(job.id, "succeeded")
        assert (row.attempt, row.failures, row.crashes) == (1, 0, 0)
        assert job.result(timeout=0) == execution(job)
        assert [entry.event for entry in job.history()] == ["detached", "adopted"] * 3
    assert kind.ever_ran() == dict.fromkeys(names, 1)
    worker.terminate()
    assert worker.wait(HASTE) == 0
    wait_for(lambda: kind.left() == set(), "what they have left to be removed")
    assert fleet.unexpected() == []


@commands_alone
@pytest.mark.timeout(60)
def test_a_drain_leaves_executions_at_once_while_others_get_their_grace(
    place: Place, fleet: Fleet, kind: Kind, executions: SimpleNamespace
) -> None:
    (job,), worker = enqueue_begun(
        place, kind, executions, lambda: fleet.start(module=MAIN, shutdown_grace=3600.0)
    )
    worker.terminate()
    assert worker.wait(HASTE) == 0
    assert is_orphan(place, job)
    assert kind.alive() == {execution(job)}


@containers_on_sqlite_alone
@pytest.mark.timeout(120)
def test_a_worker_of_another_site_never_adopts(
    place: Place,
    fleet: Fleet,
    kind: Kind,
    executions: SimpleNamespace,
    kind_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (job,), worker = enqueue_begun(place, kind, executions, lambda: fleet.start(module=MAIN))
    worker.terminate()
    assert worker.wait(HASTE) == 0
    monkeypatch.setenv("LEASEHOLD_TEST_KIND", f"{kind_name}@elsewhere")
    stranger = fleet.start(module=MAIN)
    for n in range(2):
        # It adopts before it claims: when it has run one of its own, it has passed by.
        own = executions.plain.enqueue(f"own-{n}")
        place.wait_for_state(own.id, "succeeded")
        assert is_orphan(place, job)
    stranger.terminate()
    assert stranger.wait(HASTE) == 0
    monkeypatch.setenv("LEASEHOLD_TEST_KIND", kind_name)
    fleet.start(module=MAIN)
    place.open_gate("go")
    assert place.wait_for_state(job.id, "succeeded").attempt == 1
    assert kind.ever_ran()[execution(job)] == 1


# --- stopped --------------------------------------------------------------------------------------------------------

ENDS = {"cancel": "cancelled", "pause": "paused"}
"""Each test stops one execution in each way."""


def stop_each(jobs: Sequence[Job[Any]]) -> None:
    for job, verb in zip(jobs, itertools.cycle(ENDS), strict=False):
        getattr(job, verb)(actor="operator")


def wait_until_each_ended(place: Place, kind: Kind, jobs: Sequence[Job[Any]], crashes: int = 0) -> None:
    for job, end in zip(jobs, itertools.cycle(ENDS.values()), strict=False):
        row = place.wait_for_state(job.id, end)
        assert (row.failures, row.crashes) == (0, crashes)
    assert kind.alive() == set()


def resume_the_paused(place: Place, kind: Kind, jobs: Sequence[Job[Any]]) -> None:
    """They go on with a new execution; and nothing else has ever begun."""
    before = kind.ever_ran()
    place.open_gate("go")
    paused = jobs[1::2]
    for job in paused:
        job.resume()
    names = {execution(job, place.wait_for_state(job.id, "succeeded").attempt) for job in paused}
    assert {job.result(timeout=0) for job in paused} == names
    assert kind.ever_ran() == before + Counter(names)
    assert kind.alive() == set()


@containers_on_sqlite_alone
@pytest.mark.timeout(60)
@pytest.mark.parametrize("lease", [NO_LOSS])
def test_a_stop_of_a_running_execution_leaves_nothing_alive(
    place: Place, fleet: Fleet, kind: Kind, executions: SimpleNamespace, lease: float
) -> None:
    jobs, _ = enqueue_begun(place, kind, executions, lambda: fleet.start(module=MAIN), number=2)
    stop_each(jobs)
    wait_until_each_ended(place, kind, jobs)
    resume_the_paused(place, kind, jobs)
    assert fleet.unexpected() == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("left_by", "place", "kind_name"),
    [
        ("a drain", "sqlite", "command"),
        ("a drain", "postgres", "command"),
        ("a kill", "sqlite", "command"),
        ("a kill", "postgres", "command"),
        pytest.param("a kill", "sqlite", "container", marks=ONE_ENGINE),
    ],
    indirect=("place", "kind_name"),
)
def test_a_stop_of_an_orphan_is_obeyed_by_who_adopts_it(
    place: Place, fleet: Fleet, kind: Kind, executions: SimpleNamespace, left_by: str
) -> None:
    jobs, worker = enqueue_begun(place, kind, executions, lambda: fleet.start(module=MAIN), number=2)
    if left_by == "a kill":
        worker.kill()
        stop_each(jobs)
    else:
        worker.terminate()
        assert worker.wait(HASTE) == 0
        stop_each(jobs)
        assert all(is_orphan(place, job) for job in jobs), "nobody is there who could stop them"
    fleet.start(module=MAIN)
    wait_until_each_ended(place, kind, jobs)
    resume_the_paused(place, kind, jobs)
    assert fleet.unexpected() == []


@containers_on_sqlite_alone
@pytest.mark.timeout(60)
def test_what_was_stopped_before_it_began_never_starts_though_its_frozen_starter_wakes(
    place: Place, fleet: Fleet, kind: Kind, executions: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASEHOLD_TEST_STRIKES", "freeze")
    unplaced, unstarted = (
        [executions.struck[moment].enqueue(f"{moment}-{n}", gate="go") for n in range(2)]
        for moment in ("placing", "starting")
    )
    frozen = fleet.start(module=MAIN)
    wait_for(lambda: len(list(place.folder.glob("freeze-*"))) == 4, "the worker to be held at all of them")
    frozen.freeze()
    for mark in place.folder.glob("freeze-*"):
        mark.unlink()
    stop_each(unplaced)
    stop_each(unstarted)
    monkeypatch.setenv("LEASEHOLD_TEST_STRIKES", "none")
    fleet.start(module=MAIN)
    wait_until_each_ended(place, kind, unplaced, crashes=1)
    wait_until_each_ended(place, kind, unstarted)
    frozen.thaw()
    for job in unstarted:
        starts = wait_for(lambda job=job: starts_of(place.folder, execution(job)), "the woken one to try")
        assert starts == [(1, "fenced")]
    frozen.terminate()
    assert frozen.wait(HASTE) == 0
    assert kind.ever_ran() == {}
    resume_the_paused(place, kind, [*unplaced, *unstarted])
    assert fleet.unexpected() == []


@commands_alone
@pytest.mark.timeout(60)
def test_a_frozen_watcher_that_wakes_after_the_stop_changes_nothing(
    place: Place, fleet: Fleet, kind: Kind, executions: SimpleNamespace
) -> None:
    jobs, frozen = enqueue_begun(place, kind, executions, lambda: fleet.start(module=MAIN), number=2)
    frozen.freeze()
    stop_each(jobs)
    fleet.start(module=MAIN)
    wait_until_each_ended(place, kind, jobs)
    rows = [place.row(job.id) for job in jobs]
    frozen.thaw()
    # It learns it from its keeper, or by its own clock.
    reported = ("is lost", "could not be renewed")
    wait_for(lambda: any(map(frozen.said, reported)), "the woken one to learn that it has lost them")
    frozen.terminate()
    assert frozen.wait(HASTE) == 0
    assert [place.row(job.id) for job in jobs] == rows
    resume_the_paused(place, kind, jobs)
    assert fleet.unexpected() == []


# --- gone -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow(7)
@containers_on_sqlite_alone
@pytest.mark.timeout(120)
@pytest.mark.parametrize("lease", [NO_LOSS])
def test_an_execution_removed_by_hand_while_orphaned_is_a_failure_that_is_retried_until_it_is_the_last(
    place: Place, fleet: Fleet, kind: Kind, executions: SimpleNamespace, lease: float
) -> None:
    at_once, later = Retry(max_attempts=2, backoff=0), Retry(max_attempts=2, backoff="1h", max_delay="1h")
    job = executions.plain.using(retry=at_once).enqueue("at once", gate="never")
    patient = executions.plain.using(retry=later).enqueue("later", gate="never")
    for names in ([execution(job), execution(patient)], [execution(job, 2)]):
        worker = fleet.start(module=MAIN)
        wait_for(lambda names=names: all(kind.ever_ran()[name] for name in names), f"{names} to begin")
        worker.terminate()
        assert worker.wait(HASTE) == 0
        assert is_orphan(place, job)
        for name in names:
            kind.remove_by_hand(name)
    fleet.start(module=MAIN)
    row = place.wait_for_state(job.id, "failed")
    assert (row.attempt, row.failures, row.crashes) == (2, 2, 0)
    assert row.error == "its execution has vanished: how it ended is unknown"
    assert [record.outcome for record in job.attempts()] == ["detached", "failed"] * 2
    row = place.row(patient.id)
    assert (row.state.value, row.attempt, row.failures, row.crashes) == ("queued", 1, 1, 0)
    assert row.available_at > datetime.now(UTC)
    assert kind.ever_ran() == {execution(job): 1, execution(job, 2): 1, execution(patient): 1}
    wait_for(lambda: kind.left() == set(), "what they have left to be removed")
    assert fleet.unexpected() == []


# --- run now --------------------------------------------------------------------------------------------------------


@pytest.mark.slow(7)
@containers_on_sqlite_alone
@pytest.mark.timeout(60)
def test_the_place_of_a_killed_caller_is_free_when_its_execution_has_ended_and_not_before_with_no_worker(
    place: Place, fleet: Fleet, kind: Kind, executions: SimpleNamespace
) -> None:
    caller = fleet.start(module=CALLER)
    (first,) = wait_for(kind.ever_ran, "the first to begin")
    dead = place.app.get(job_of(first)[1])
    caller.kill()

    def second() -> Job[Any] | None:
        try:
            return place.app.run_now(executions.capped, "second", gate="second")
        except AtCapacity:
            return None

    def is_adopted() -> bool:
        """By who asks for the place: nobody else is there."""
        assert second() is None
        return "adopted" in [entry.event for entry in dead.history()]

    wait_for(is_adopted, "the dead caller's execution to be adopted")
    with pytest.raises(AtCapacity) as refused:
        place.app.run_now(executions.capped, "too early")
    assert [holder.job_id for holder in refused.value.holders] == [dead.id]
    assert kind.alive() == {first}
    place.open_gate("go")
    job = wait_for(second, "a place")
    assert first not in kind.alive()
    row = place.row(dead.id)
    assert (row.state.value, row.attempt, row.failures, row.crashes) == ("succeeded", 1, 0, 0)
    assert dead.result(timeout=0) == first
    place.open_gate("second")
    assert job.result(timeout=PATIENCE) == execution(job)
    assert kind.ever_ran() == {first: 1, execution(job): 1}
    wait_for(lambda: kind.left() == set(), "what they have left to be removed")
