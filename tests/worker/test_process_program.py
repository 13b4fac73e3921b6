"""`run_in="process"` in a worker that is a program of its own: tasks of its main file, and a worker killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from leasehold import State
from leasehold.errors import InvalidTask
from tests.worker.test_process_ends import is_gone, said
from tests.workers import wait_for

pytestmark = [pytest.mark.slow(3), pytest.mark.one_store("postgres")]

PROGRAM = """
import asyncio, os, subprocess, sys, time
from pathlib import Path
from leasehold import Leasehold

app = Leasehold(sys.argv[1], schema=sys.argv[2] or None)

def note(folder, name, pid):
    (Path(folder) / "tmp").write_text(str(pid))
    (Path(folder) / "tmp").rename(Path(folder) / name)

@app.task(run_in="process")
def name(folder: str) -> str:
    return __name__

@app.task(run_in="process", lease=3)
def stay(folder: str) -> None:
    note(folder, "guard", os.getppid())
    note(folder, "child", os.getpid())
    note(folder, "grandchild", subprocess.Popen(["sleep", "3600"], start_new_session=True).pid)
    while True:
        time.sleep(0.1)

if __name__ == "__main__":
    asyncio.run(app.worker(burst="burst" in sys.argv).run())
"""


def name(folder: str) -> str:
    """For the producer; the program has its own."""


def stay(folder: str) -> None: ...


@pytest.fixture
def program(backend, tmp_path):
    """Starts the program above as a worker."""
    started = []
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, str(path), backend.url, backend.schema or "", *arguments]
        started.append(subprocess.Popen(argv, cwd=tmp_path))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_task_of_a_programs_main_file_runs_in_a_process(app, program, tmp_path):
    job = app.task(name).enqueue(str(tmp_path))
    assert program("burst").wait(60) == 0
    assert job.result(timeout=0) == "__mp_main__", (
        "as multiprocessing calls it: what stands under `if` is not run"
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_worker_that_is_killed_leaves_no_child_and_no_grandchild(app, program, tmp_path, how):
    app.task(lease=90)(stay).enqueue(str(tmp_path))
    worker = program()
    wait_for((tmp_path / "grandchild").exists)
    began_at = time.monotonic()
    os.kill(worker.pid, how)
    worker.wait()
    pids = [said(tmp_path, name) for name in ("guard", "child", "grandchild")]
    wait_for(lambda: all(map(is_gone, pids)))
    assert time.monotonic() - began_at < 20, "long before the end of its lease"


def test_a_child_does_not_outlive_its_lease_while_its_worker_is_frozen(app, program, tmp_path):
    job = app.task(lease=3)(stay).enqueue(str(tmp_path))
    worker = program()
    wait_for((tmp_path / "grandchild").exists)
    os.kill(worker.pid, signal.SIGSTOP)
    frozen_at = time.monotonic()
    pids = [said(tmp_path, name) for name in ("child", "grandchild")]
    wait_for(lambda: all(map(is_gone, pids)))
    assert time.monotonic() - frozen_at < 16, "a lease, and what a busy machine may add"
    assert job.refresh().state == State.RUNNING
    (tmp_path / "child").unlink()
    os.kill(worker.pid, signal.SIGCONT)
    wait_for((tmp_path / "child").exists)
    assert job.refresh().__row__.attempt == 2


# -- what no other process can find -----------------------------------------------------------------------------------
def test_a_function_that_cannot_be_imported_is_refused_where_it_is_registered(app):
    def local() -> None: ...

    for function in (local, lambda: None):
        with pytest.raises(InvalidTask, match="cannot be imported"):
            app.task(name="task", run_in="process")(function)


def hidden() -> None: ...


kept, hidden = hidden, 1  # another now has its name


def test_a_function_whose_name_is_anothers_is_refused_when_the_worker_starts(app):
    app.task(run_in="process")(kept)
    with pytest.raises(InvalidTask, match="which is not what"):
        app.worker()
