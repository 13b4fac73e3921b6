"""`run_in="process"`: however a child ends, the job's row says so, nothing of it is alive, and the worker lives on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from leasehold import Retry, State
from leasehold.domain.outcome import HandedBack
from leasehold.stores.results import Ending
from tests.worker import process_tasks as tasks
from tests.workers import burst
from tests.workers import until as until_in

pytestmark = [pytest.mark.slow(3), pytest.mark.one_store("postgres")]

ONCE = Retry(max_attempts=1, max_crashes=1)
one_store = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
"""Where what happens between processes is the same on every store."""


@pytest.fixture
def ends(app):
    """Run one such job, and another after it in the same worker; the first, as it has come to rest."""
    next_one = app.task(name="next_one")(tasks.follow.__wrapped__)  # type: ignore[attr-defined]

    def run(function, *args, **settings):
        task = app.task(run_in="process", **{"retry": ONCE, **settings})(function)
        job = task.enqueue(*args)
        after = next_one.using(after=[job], on_parent_failure="run").enqueue(1)
        worker = burst(app, stop_grace=1)
        assert after.result(timeout=0) == 1, "the worker lives on"
        assert (worker.attempts.left_behind, worker.gave_up, worker.attempts.held) == (0, False, {})
        return job.refresh()

    return run


async def until(condition) -> None:
    """A loaded machine takes its time to start a process."""
    await until_in(condition, 60)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with contextlib.suppress(OSError):
        # A zombie of a process that is not ours to wait for.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


async def gone(*pids: int) -> None:
    await until(lambda: all(map(is_gone, pids)))


# -- by itself --------------------------------------------------------------------------------------------------------
def test_a_child_that_segfaults_is_a_crash_with_the_signal_and_the_stack(ends):
    job = ends(tasks.segfaults)
    assert (job.state, job.__row__.crashes, job.__row__.failures) == (State.FAILED, 1, 0)
    assert job.error.startswith("its process was killed by SIGSEGV")
    assert "process_tasks.py" in job.error
    assert "in segfaults" in job.error
    assert "leasehold/worker" not in job.error, "our own frames are left out"


@one_store
def test_a_child_that_is_killed_is_a_crash(ends):
    job = ends(tasks.killed)
    assert (job.state, job.__row__.crashes, job.__row__.failures) == (State.FAILED, 1, 0)
    assert job.error.startswith(
        "its process was killed by SIGKILL; the kernel does that where memory runs out"
    )


def test_a_child_that_crashes_is_alone_so_three_crashes_are_the_end(ends):
    job = ends(tasks.killed, retry=Retry(backoff=0))
    assert (job.state, job.__row__.crashes, job.__row__.attempt) == (State.FAILED, 3, 3)


@pytest.mark.parametrize("code", [0, 7])
def test_an_exit_without_a_result_is_a_failure(ends, code):
    job = ends(tasks.exits_without_a_word, code, retry=Retry(max_attempts=2, backoff=0))
    assert (job.state, job.__row__.crashes, job.__row__.failures) == (State.FAILED, 0, 2)
    assert f"ended with exit code {code} before the task had returned" in job.error


@one_store
def test_more_memory_than_the_task_may_take_is_a_memory_error(ends):
    job = ends(tasks.takes_memory, 2**30, memory="512MB")
    assert (job.state, job.__row__.crashes, job.__row__.failures) == (State.FAILED, 0, 1)
    assert job.error.startswith("MemoryError")


@one_store
def test_memory_within_the_limit_is_taken(ends):
    assert ends(tasks.takes_memory, 2**27, memory="512MB").result(timeout=0) == 2**27


def test_more_computing_than_the_task_may_do_is_a_time_out(ends):
    job = ends(tasks.computes, cpu_time="1s")
    assert (job.state, job.__row__.crashes, job.__row__.failures) == (State.TIMED_OUT, 0, 1)
    assert "computed for longer than cpu_time='1s'" in job.error


@one_store
def test_a_child_that_closes_its_pipes_and_returns_is_a_failure(ends):
    job = ends(tasks.closes_its_pipes, False)
    assert (job.state, job.__row__.crashes, job.__row__.failures) == (State.FAILED, 0, 1)
    assert "cut its connection to the worker" in job.error


@one_store
def test_a_child_that_closes_its_pipes_and_goes_on_is_ended(ends):
    job = ends(tasks.closes_its_pipes, True)
    assert (job.state, job.__row__.crashes, job.__row__.failures) == (State.FAILED, 0, 1)
    assert "cut its connection to the worker" in job.error


@one_store
def test_a_child_that_writes_garbage_into_its_pipes_is_killed(ends):
    job = ends(tasks.writes_garbage)
    assert (job.state, job.__row__.failures) == (State.FAILED, 1)
    assert "spoiled its connection to the worker, and was killed" in job.error


@one_store
def test_a_fork_that_comes_back_from_the_handler_does_not_answer_for_it(ends):
    job = ends(tasks.forks_and_returns)
    assert isinstance(job.result(timeout=0), int)
    assert is_gone(job.result(timeout=0))


@one_store
@pytest.mark.parametrize(
    "escape",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.skipif(sys.platform != "linux", reason="subreapers are Linux's alone")
        ),
    ],
)
def test_no_grandchild_outlives_the_run(ends, tmp_path, escape):
    grandchild = ends(tasks.leaves_a_grandchild, str(tmp_path), escape).result(timeout=0)
    assert is_gone(grandchild)


@one_store
def test_a_child_that_does_not_end_after_its_result_is_ended_and_the_result_counts(ends, monkeypatch):
    monkeypatch.setattr("leasehold.worker.process.attempt.LINGER", 0.5)
    assert ends(tasks.lingers).result(timeout=0) == "done"


def test_a_child_that_finds_no_room_is_handed_back(app, monkeypatch):
    """The worker's trouble, not the job's."""
    monkeypatch.setattr("subprocess.Popen", _no_room)
    job = app.task(run_in="process")(tasks.where).enqueue(1)
    burst(app)
    assert (job.refresh().state, job.__row__.failures, job.__row__.crashes) == (State.QUEUED, 0, 0)
    assert "could not start a process" in f"{job.attempts()} {job.history()}"


def _no_room(*args, **kwargs):
    raise BlockingIOError(11, "Resource temporarily unavailable")


# -- told to ----------------------------------------------------------------------------------------------------------
def said(folder: Path, name: str) -> int:
    return int((folder / name).read_text())


async def stop_when_up(app, job, folder, stop, **settings) -> float:
    """Seconds from the stop until the job is at rest."""
    async with app.worker(threads=2, **settings):
        await until((folder / "up").exists)
        began_at = time.monotonic()
        await asyncio.to_thread(stop, job)
        await until(lambda: job.refresh().state not in (State.RUNNING, State.QUEUED))
        took = time.monotonic() - began_at
    return took


@pytest.mark.parametrize("function", [tasks.sleeps, tasks.looks, tasks.sleeps_async])
def test_a_cancelled_child_may_clean_up_and_is_gone(app, tmp_path, function):
    job = app.task(run_in="process")(function).enqueue(str(tmp_path))
    took = asyncio.run(stop_when_up(app, job, tmp_path, lambda job: job.cancel(), stop_grace=60))
    assert job.refresh().state == State.CANCELLED
    assert took < 30
    assert (tmp_path / "cleaned").exists()
    assert is_gone(said(tmp_path, "child"))


@pytest.mark.parametrize("function", [tasks.ignores_sigterm, tasks.leaves_its_group])
def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(app, tmp_path, function):
    job = app.task(run_in="process")(function).enqueue(str(tmp_path))
    took = asyncio.run(stop_when_up(app, job, tmp_path, lambda job: job.cancel(), stop_grace=1.5))
    assert job.refresh().state == State.CANCELLED
    assert took > 1.5
    assert is_gone(said(tmp_path, "child"))


@one_store
@pytest.mark.parametrize("escape", [False, True])
def test_a_cancel_ends_grandchildren_too(app, tmp_path, escape):
    job = app.task(run_in="process")(tasks.waits_with_a_grandchild).enqueue(str(tmp_path), escape)

    async def run():
        async with app.worker(stop_grace=1):
            await until((tmp_path / "grandchild").exists)
            await asyncio.to_thread(job.cancel)
            await until(lambda: job.refresh().state == State.CANCELLED)
            assert is_gone(said(tmp_path, "child"))
            assert is_gone(said(tmp_path, "grandchild"))

    asyncio.run(run())


def test_a_result_that_comes_after_the_stop_still_counts(app, tmp_path):
    job = app.task(run_in="process")(tasks.finishes).enqueue(str(tmp_path))
    asyncio.run(stop_when_up(app, job, tmp_path, lambda job: job.cancel()))
    assert job.result(timeout=0) == "all done"


def test_a_paused_child_leaves_the_job_paused(app, tmp_path):
    job = app.task(run_in="process")(tasks.sleeps).enqueue(str(tmp_path))
    asyncio.run(stop_when_up(app, job, tmp_path, lambda job: job.pause()))
    assert job.refresh().state == State.PAUSED


def test_a_time_out_ends_the_child(app, tmp_path):
    task = app.task(run_in="process", timeout=0.5, retry=ONCE)(tasks.ignores_sigterm)
    job = task.enqueue(str(tmp_path))
    burst(app, stop_grace=0.5)
    assert job.refresh().state == State.TIMED_OUT
    assert not (tmp_path / "child").exists() or is_gone(said(tmp_path, "child"))


def test_a_drain_hands_the_job_back_and_leaves_no_child(app, tmp_path):
    job = app.task(run_in="process")(tasks.ignores_sigterm).enqueue(str(tmp_path))

    async def run():
        async with app.worker(shutdown_grace=0, stop_grace=1):
            await until((tmp_path / "up").exists)

    asyncio.run(run())
    assert (job.refresh().state, job.__row__.failures) == (State.QUEUED, 0)
    assert is_gone(said(tmp_path, "child"))


def test_a_lost_lease_kills_the_child_at_once(app, tmp_path):
    task = app.task(run_in="process", lease=60)(tasks.ignores_sigterm)
    job = task.enqueue(str(tmp_path))

    async def run():
        async with app.worker(stop_grace=60) as worker:
            await until((tmp_path / "up").exists)
            (held,) = worker.attempts.unfinished()
            began_at = time.monotonic()
            worker.attempts.on_lost(held)
            await gone(said(tmp_path, "child"))
            assert time.monotonic() - began_at < 20
            await until(lambda: worker.attempts.lost == 1)

    asyncio.run(run())
    assert job.refresh().state == State.RUNNING, "nothing was written"


def test_a_step_of_a_child_that_has_lost_its_lease_is_not_stored_and_the_child_is_gone(app, tmp_path):
    go = tmp_path / "go"
    job = app.task(run_in="process")(tasks.steps_when_told).enqueue(str(tmp_path), str(go))

    async def run():
        async with app.worker() as worker:
            await until((tmp_path / "up").exists)
            store = worker.attempts.unfinished()[0].journal.store
            grant = worker.attempts.unfinished()[0].grant
            ending = Ending(grant.id, grant.token, HandedBack("by somebody else", delay=3600.0))
            assert await asyncio.to_thread(store.settle, [ending])
            go.touch()
            await until(lambda: worker.attempts.lost == 1)
            assert is_gone(said(tmp_path, "child"))

    asyncio.run(run())
    assert not (tmp_path / "went_on").exists()
    assert (job.refresh().state, job.steps()) == (State.QUEUED, [])


def test_run_now_runs_in_a_process_too(app):
    job = app.run_now(app.task(run_in="process", max_running=1)(tasks.where), 5)
    assert job.result(timeout=60)["pid"] != os.getpid()


@one_store
def test_a_sigterm_that_is_not_the_workers_does_not_stop_a_child(app, tmp_path):
    """A service that is stopped sends it to all its processes; the worker may let its jobs end."""
    go = tmp_path / "go"
    job = app.task(run_in="process", retry=ONCE)(tasks.lives).enqueue(str(tmp_path), str(go))

    async def run():
        async with app.worker():
            await until((tmp_path / "up").exists)
            child = said(tmp_path, "child")
            guard = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
            for pid in (child, guard):
                os.kill(pid, signal.SIGTERM)
            go.touch()
            await until(lambda: job.refresh().state != State.RUNNING)

    asyncio.run(run())
    assert job.result(timeout=0) == "went on"


@one_store
def test_a_guard_that_is_killed_takes_the_child_with_it_and_is_a_crash(app, tmp_path):
    job = app.task(run_in="process", retry=ONCE)(tasks.ignores_sigterm).enqueue(str(tmp_path))

    async def run():
        async with app.worker():
            await until((tmp_path / "up").exists)
            child = said(tmp_path, "child")
            os.kill(
                int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL
            )
            await until(lambda: job.refresh().state == State.FAILED)
            await gone(child)

    asyncio.run(run())
    assert job.refresh().__row__.crashes == 1
