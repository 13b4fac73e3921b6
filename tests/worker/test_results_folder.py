"""The folder for results is full or gone when a handler ends: its result is kept, and the handler never runs again."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold import Leasehold, State
from leasehold.domain.checks.payload import LARGEST, LARGEST_IN_PIECES
from leasehold.types import Job
from tests.disks import fill, small_disk
from tests.workers import burst, wait_for, working

SIZE = 2 * LARGEST


class Trouble:
    """Begins and ends by the test's word."""

    def __init__(self, disk: Path) -> None:
        self.disk = disk
        self.folder = disk / "results"

    def begin(self) -> None: ...

    def end(self) -> None: ...


class Full(Trouble):
    def begin(self) -> None:
        self._ballast = fill(self.disk)

    def end(self) -> None:
        self._ballast.unlink()


class Gone(Trouble):
    def begin(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.write_text("a file where the folder was")

    def end(self) -> None:
        self.folder.unlink()


@pytest.fixture(params=[Full, Gone], ids=["full", "gone"])
def trouble(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trouble]:
    if request.param is Gone:
        yield Gone(tmp_path)
        return
    with small_disk(tmp_path / "disk", "64m") as disk:
        if disk is None:
            pytest.skip("only root may mount a small file system")
        yield Full(disk)


@pytest.fixture
def app_settings(trouble: Trouble, tmp_path: Path) -> dict[str, Any]:
    return {"results": trouble.folder, "executions": tmp_path / "runs"}


class Handlers:
    """Handlers of each kind that return a large result when the gate is open, and count how often they have begun."""

    def __init__(self, app: Leasehold, folder: Path) -> None:
        self.gate, self.begun = folder / "gate", folder / "begun"

        @app.task
        async def on_loop(gate: str, begun: str, size: int) -> str:
            return await asyncio.to_thread(wait_and_return, gate, begun, size)

        @app.task
        def in_thread(gate: str, begun: str, size: int) -> str:
            return wait_and_return(gate, begun, size)

        in_process = app.task(run_in="process", name="in_process")(wait_and_return)

        @app.command()
        def outside(gate: str, begun: str, size: int) -> list[str]:
            script = (
                'echo $$ >> "$2"; while [ ! -e "$1" ]; do sleep 0.02; done;'
                """ (printf '"'; head -c "$3" /dev/zero | tr '\\0' x; printf '"') > $LEASEHOLD_RESULT"""
            )
            return ["sh", "-c", script, "sh", gate, begun, str(size)]

        self._tasks: dict[str, Any] = {
            "on loop": on_loop,
            "in thread": in_thread,
            "in process": in_process,
            "outside": outside,
        }

    def enqueue(self, kind: str, size: int = SIZE) -> Job[Any]:
        return self._tasks[kind].enqueue(str(self.gate), str(self.begun), size)

    def count(self) -> int:
        return len(self.begun.read_text().split()) if self.begun.exists() else 0


def wait_and_return(gate: str, begun: str, size: int) -> str:
    with open(begun, "a") as file:
        file.write(f"{os.getpid()}\n")
    while not os.path.exists(gate):
        time.sleep(0.02)
    return "x" * size


@pytest.fixture
def handlers(app: Leasehold, tmp_path: Path) -> Handlers:
    return Handlers(app, tmp_path)


def kept_in_vain(handlers: Handlers, trouble: Trouble, worker: Any, number: int = 1) -> None:
    """Their handlers end while the folder takes nothing."""
    wait_for(lambda: handlers.count() == number)
    trouble.begin()
    handlers.gate.touch()
    wait_for(lambda: any(f"{number} result(s) are kept" in text for text in worker.health().problems))


@pytest.mark.parametrize("kind", ["on loop", "in thread", "in process", "outside"])
def test_a_result_is_kept_until_its_folder_takes_it(app, handlers, trouble, kind):
    job = handlers.enqueue(kind)
    with working(app) as worker:
        kept_in_vain(handlers, trouble, worker)
        assert not worker.health().ok
        assert str(trouble.folder) in worker.health().problems[0]
        assert job.refresh().state is State.RUNNING
        trouble.end()
        wait_for(lambda: job.refresh().state is not State.RUNNING)
        assert (job.state, job.attempt, job.__row__.failures) == (State.SUCCEEDED, 1, 0)
        assert worker.health().ok
    assert job.result(0) == "x" * SIZE
    assert job.result_ref == f"{job.id}.1.json"
    assert handlers.count() == 1


@pytest.mark.parametrize("trouble", [Gone], ids=["gone"], indirect=True)
def test_it_is_logged_once_when_it_begins_and_once_when_it_is_over(app, handlers, trouble, caplog):
    caplog.set_level(logging.INFO, "leasehold.worker")
    jobs = [handlers.enqueue("on loop") for _ in range(3)]
    with working(app) as worker:
        kept_in_vain(handlers, trouble, worker, 3)
        trouble.end()
        for job in jobs:
            wait_for(lambda job=job: job.refresh().state is State.SUCCEEDED)
    begun = [record for record in caplog.records if "are kept until their folder" in record.message]
    over = [record for record in caplog.records if "can be written to again" in record.message]
    assert [record.levelname for record in begun + over] == ["WARNING", "INFO"]


@pytest.mark.parametrize(
    ("kind", "stop"),
    [
        *(
            (kind, stop)
            for kind in ("on loop", "in thread", "outside")
            for stop in ("drain", "cancel", "timeout")
        ),
        ("in process", "drain"),
    ],
)
@pytest.mark.parametrize("trouble", [Gone], ids=["gone"], indirect=True)
def test_a_stop_stores_a_result_that_the_folder_does_not_take_in_the_database(
    app, handlers, trouble, kind, stop
):
    job = handlers.enqueue(kind)
    with working(app, shutdown_grace=60.0) as worker:
        kept_in_vain(handlers, trouble, worker)
        if stop == "cancel":
            job.cancel()
            wait_for(lambda: job.refresh().state is not State.RUNNING)
        elif stop == "timeout":
            (attempt,) = worker.attempts.unfinished()
            worker.attempts.stop(attempt, "timeout")
            wait_for(lambda: job.refresh().state is not State.RUNNING)
    if (kind, stop) == ("outside", "drain"):
        assert job.refresh().__row__.orphan, "its result is in its folder, where the next worker finds it"
        trouble.end()
        burst(app)
    assert (job.refresh().state, job.attempt) == (State.SUCCEEDED, 1)
    assert job.result(0) == "x" * SIZE
    assert handlers.count() == 1


@pytest.mark.parametrize("kind", ["on loop", "in thread"])
@pytest.mark.parametrize("trouble", [Gone], ids=["gone"], indirect=True)
def test_a_stop_fails_a_job_whose_result_the_database_does_not_take_either(app, handlers, trouble, kind):
    job = handlers.enqueue(kind, LARGEST_IN_PIECES)
    with working(app) as worker:
        kept_in_vain(handlers, trouble, worker)
    assert job.refresh().state is State.FAILED
    assert "was not stored: cannot write to the results folder" in (job.error or "")
    assert handlers.count() == 1
    trouble.end()
    job.resume()
    burst(app)
    assert job.refresh().state is State.SUCCEEDED
