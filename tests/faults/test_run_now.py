"""Cap and reject across processes: the limit holds, a killed holder does not count for ever, ends need no worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold import AtCapacity, Leasehold, State
from leasehold.operations import jobs
from tests.backends import Backend
from tests.faults.harness import PATIENCE, ROOT, wait_for
from tests.faults.run_now_main import register
from tests.launcher import launch

Ask = Callable[..., dict[str, Any]]


class Caller:
    def __init__(self, backend: Backend, folder: Path, settings: dict[str, Any]) -> None:
        config = {"url": backend.url, "schema": backend.schema, "folder": str(folder), "settings": settings}
        self.process = launch(
            [sys.executable, "-m", "tests.faults.run_now_main", json.dumps(config)],
            cwd=ROOT,
            env=os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, times: int = 1) -> None:
        """Without waiting for the answers, so that several processes ask at the same time."""
        assert self.process.stdin is not None
        self.process.stdin.write("call\n" * times)
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended with {self.process.wait(PATIENCE)}"
        reported: dict[str, Any] = json.loads(line)
        return reported

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start(backend: Backend, tmp_path: Path) -> Iterator[Callable[..., Caller]]:
    callers: list[Caller] = []

    def start(**settings: Any) -> Caller:
        caller = Caller(backend, tmp_path, settings)
        callers.append(caller)
        assert caller.answer() == {"ready": True}
        return caller

    yield start
    for caller in callers:
        caller.close()


@pytest.mark.timeout(120)
def test_two_processes_start_exactly_as_many_as_the_cap_and_name_the_true_holders(start, backend, tmp_path):
    limit = 4
    callers = [start(max_running=limit) for _ in range(2)]
    for caller in callers:
        caller.ask(limit + 1)
    reported = [caller.answer() for caller in callers for _ in range(limit + 1)]
    started = {one["id"] for one in reported if "id" in one}
    refused = [one for one in reported if "id" not in one]
    assert (len(started), len(refused)) == (limit, 2 * (limit + 1) - limit)
    workers = dict(backend.query("SELECT id, worker FROM leasehold.job_row"))
    assert {str(job_id) for job_id in workers} == started, "what was refused has left nothing behind"
    for one in refused:
        assert {holder["job_id"]: holder["worker"] for holder in one["holders"]} == {
            str(job_id): worker for job_id, worker in workers.items()
        }
        assert one["max_running"] == limit
        assert one["retry_after"] >= 1
    (tmp_path / "open").touch()
    with Leasehold(backend.url, schema=backend.schema) as app:
        register(app, tmp_path)
        assert [app.get(job_id).result(timeout=PATIENCE) for job_id in started] == ["done"] * limit


@pytest.mark.slow(6)
@pytest.mark.timeout(120)
@pytest.mark.parametrize("queueing", [True, False])
def test_a_killed_holder_counts_until_its_lease_ends_and_is_cleared_with_no_worker(
    start, backend, tmp_path, queueing
):
    lease = 4.0
    settings = {"max_running": 1, "lease": lease, "queueing": queueing}
    caller = start(**settings)
    caller.ask()
    dead = caller.answer()["id"]
    caller.kill()
    with Leasehold(backend.url, schema=backend.schema, shutdown_grace=0) as app:
        hold = register(app, tmp_path, **settings)
        with pytest.raises(AtCapacity) as refused:
            app.run_now(hold)
        (holder,) = refused.value.holders
        assert holder.job_id == dead
        # A hint that is followed leads to a place: the lease is over by then, and nobody has renewed it.
        assert 1 <= refused.value.retry_after <= lease
        began = time.monotonic()
        job = wait_for(lambda: _started(app, hold), "a place")
        assert time.monotonic() - began < lease + 15.0
        assert app.__internals__.store.now() >= holder.lease_expires_at
        # The reaper of the runner takes both looks: no worker is there.
        state = State.QUEUED if queueing else State.FAILED
        wait_for(lambda: app.get(dead).state is state, "the dead run to be cleared")
        assert [entry.event for entry in app.__internals__.operations.call(jobs.history, dead)] == ["lost"]
        (tmp_path / "open").touch()
        assert job.result(timeout=PATIENCE) == "done"


def _started(app: Leasehold, task: Any) -> Any:
    try:
        return app.run_now(task)
    except AtCapacity:
        return None


PROGRAM = """
import asyncio, os, sys
from leasehold import Leasehold

app = Leasehold(sys.argv[1], schema=sys.argv[2])

@app.task(max_running=1)
async def late(n: int) -> int:
    await asyncio.sleep(0.5)
    return n
"""

ENDS = """
print(app.run_now(late, 7).id)
"""

NO_MORE_THREADS = """
import threading

def refuse(thread, start=threading.Thread.start):
    if threading._SHUTTING_DOWN:  # as Python 3.12.0 to 3.12.2
        raise RuntimeError("can't create new thread at interpreter shutdown")
    start(thread)

threading.Thread.start = refuse
"""

KEEPS_AND_COMPLETES = """
from leasehold import Context

@app.task(max_running=1)
async def completes(ctx: Context, n: int) -> int:
    await asyncio.sleep(0.5)
    assert await ctx.step("one", int, "1") == 1
    assert await ctx.step("two", int, "2", durable="batch") == 2
    async with ctx.complete(n):
        pass

print(app.run_now(completes, 7).id)
"""

BY_ID = """
job = late.enqueue(7)
app.run_by_id(job.id)
print(job.id)
"""

FORKS = """
assert app.run_now(late, 1).result(30) == 1
child = os.fork()
if child == 0:
    code = 0 if app.run_now(late, 2).result(30) == 2 else 1
    app.close()
    os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(app.run_now(late, 7).id)
"""


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(ENDS, id="a program that ends"),
        pytest.param(FORKS, id="both sides of a fork"),
        pytest.param(NO_MORE_THREADS + ENDS, id="no thread can start any more"),
        pytest.param(NO_MORE_THREADS + BY_ID, id="no thread can start any more after a run by id"),
        pytest.param(
            NO_MORE_THREADS + KEEPS_AND_COMPLETES, id="no thread can start any more for the handler"
        ),
    ],
)
def test_runs_are_finished_before_the_interpreter_is(backend, program):
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            PROGRAM + program,
            backend.url,
            backend.schema,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    row = backend.open().get(done.stdout.strip())
    assert (row.state, row.result, row.attempt) == (State.SUCCEEDED, "7", 1)
