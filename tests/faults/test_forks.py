"""Handlers that fork, as multiprocessing does: their children end like any other child, and are no second worker."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold import Leasehold
from tests.architecture.sources import ROOT
from tests.backends import Backend, new_job
from tests.launcher import launch
from tests.workers import wait_for

PATIENCE = 60.0

TASKS = """
import asyncio, multiprocessing, os, sys, time, warnings
from leasehold import Leasehold, SyncContext

warnings.simplefilter("ignore", DeprecationWarning)
jobs = Leasehold(os.environ["LEASEHOLD_URL"], schema=os.environ["LEASEHOLD_SCHEMA"])
forked = multiprocessing.get_context("fork")


def double(n: int) -> int:
    return 2 * n


def with_children() -> list[int]:
    with forked.Pool(2) as pool:
        doubled = pool.map(double, [1, 2])
    child = forked.Process(target=time.sleep, args=(3600,), daemon=True)
    child.start()
    child.terminate()
    child.join(30)
    alive = child.is_alive()
    child.kill()
    child.join()
    return [*doubled, alive, -child.exitcode]


@jobs.task
def in_thread() -> list[int]:
    return with_children()


@jobs.task
async def on_loop() -> list[int]:
    return with_children()


@jobs.task(run_in="process")
def in_process() -> list[int]:
    return with_children()


@jobs.task(run_in="process")
async def on_loop_of_process() -> list[int]:
    return with_children()


def ended(child: int) -> list[int]:
    return [child, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


@jobs.task
def returns() -> list[int]:
    child = os.fork()
    return ended(child) if child else []


@jobs.task
def raises() -> list[int]:
    child = os.fork()
    if not child:
        raise ValueError("a copy")
    return ended(child)


@jobs.task
def exits() -> list[int]:
    child = os.fork()
    if not child:
        sys.exit(7)
    return ended(child)


@jobs.task
def in_a_step(ctx: SyncContext) -> list[int]:
    child = ctx.step("fork", os.fork)
    return ended(child) if child else []


@jobs.task
async def returns_on_loop() -> list[int]:
    child = os.fork()
    return ended(child) if child else []


@jobs.task
async def raises_on_loop() -> list[int]:
    child = os.fork()
    if not child:
        raise ValueError("a copy")
    return ended(child)


@jobs.task
async def goes_on_in_the_loop() -> list[int]:
    never = asyncio.get_running_loop().create_future()
    child = os.fork()
    return ended(child) if child else await never


@jobs.task
async def in_a_task_of_its_own() -> list[int]:
    async def fork() -> int:
        return os.fork()

    child = await asyncio.create_task(fork())
    return ended(child) if child else []


@jobs.task(run_in="process")
def returns_in_process() -> list[int]:
    child = os.fork()
    return ended(child) if child else []


@jobs.task(run_in="process")
async def goes_on_in_the_loop_of_process() -> list[int]:
    never = asyncio.get_running_loop().create_future()
    child = os.fork()
    return ended(child) if child else await never


@jobs.task
def plain() -> str:
    return "done"
"""


class Forking:
    """A worker with the tasks above, and the app that enqueues for it."""

    def __init__(self, backend: Backend, folder: Path) -> None:
        (folder / "forking.py").write_text(TASKS)
        self.log = folder / "worker.log"
        self.app = Leasehold(backend.url, schema=backend.schema)
        path = os.pathsep.join([str(folder), str(ROOT / "src")])
        environment = {**os.environ, "PYTHONPATH": path}
        environment |= {"LEASEHOLD_URL": backend.url, "LEASEHOLD_SCHEMA": backend.schema}
        with self.log.open("wb") as log:
            self.worker = launch(
                [sys.executable, "-m", "leasehold", "worker", "forking:jobs"],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def run(self, task: str) -> Any:
        """The result of a job, while the worker lives."""
        (made,) = self.app.__internals__.store.enqueue([new_job(task=task)])
        job = self.app.get(made.id)

        def ended_or_alone() -> bool:
            return job.refresh().state in ("succeeded", "failed") or self.worker.poll() is not None

        wait_for(ended_or_alone, f"job of {task} to end\n{self.said()}", PATIENCE)
        assert self.worker.poll() is None, self.said()
        return job.result(timeout=0)

    def end(self) -> None:
        """As a service manager ends it."""
        assert "draining" not in self.said(), self.said()
        self.worker.send_signal(signal.SIGTERM)
        assert self.worker.wait(PATIENCE) == 0, self.said()
        assert "draining" in self.said()


@pytest.fixture
def forking(backend: Backend, tmp_path: Path) -> Iterator[Forking]:
    found = Forking(backend, tmp_path)
    yield found
    with contextlib.suppress(ProcessLookupError):
        found.worker.kill()
    found.worker.wait(PATIENCE)
    found.app.close()


@pytest.mark.timeout(150)
@pytest.mark.parametrize("task", ["in_thread", "on_loop", "in_process", "on_loop_of_process"])
def test_children_of_multiprocessing_end_on_sigterm_and_the_worker_does_not(forking, task):
    assert forking.run(task) == [2, 4, False, signal.SIGTERM]
    assert forking.run("plain") == "done"
    forking.end()


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    "task",
    [
        "returns",
        "in_a_step",
        "returns_on_loop",
        "goes_on_in_the_loop",
        "in_a_task_of_its_own",
        "returns_in_process",
        "goes_on_in_the_loop_of_process",
    ],
)
def test_a_fork_that_comes_back_from_its_handler_ends_and_says_so(forking, task):
    child, code = forking.run(task)
    assert code == 1
    assert f"process {child}: a handler forked it, and it came back from there;" in forking.said()
    assert forking.run("plain") == "done"
    forking.end()


@pytest.mark.timeout(150)
@pytest.mark.parametrize("task", ["raises", "raises_on_loop"])
def test_a_fork_that_raises_in_its_handler_ends_and_says_what(forking, task):
    child, code = forking.run(task)
    assert code == 1
    assert f"process {child}: a handler forked it, and it came back from there (it raised" in forking.said()
    assert "ValueError: a copy" in forking.said()
    forking.end()


@pytest.mark.timeout(150)
def test_a_fork_that_exits_in_its_handler_exits_with_its_code(forking):
    assert forking.run("exits")[1] == 7
    assert "came back" not in forking.said()
    forking.end()
