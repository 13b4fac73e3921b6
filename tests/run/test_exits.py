"""`sys.exit` and KeyboardInterrupt in a handler, and in what it has started: they end that job, not the worker."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from leasehold import Context, Leasehold, State, SyncContext
from tests.workers import burst, until


async def leave() -> None:
    await asyncio.sleep(0)
    sys.exit(3)


async def interrupt() -> None:
    raise KeyboardInterrupt


async def in_gather() -> None:
    await asyncio.gather(leave(), asyncio.sleep(60))


async def in_a_task_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(interrupt())
        group.create_task(asyncio.sleep(60))


async def of_a_child_of_a_child() -> None:
    await asyncio.create_task(in_gather())


async def that_nobody_waits_for() -> None:
    child = asyncio.create_task(leave())
    await asyncio.sleep(60)
    await child


WAYS = {
    "in gather": in_gather,
    "in a task group": in_a_task_group,
    "of a child of a child": of_a_child_of_a_child,
    "that nobody waits for": that_nobody_waits_for,
}


@pytest.mark.parametrize("way", WAYS)
def test_an_exit_in_a_child_task_fails_its_job_and_nobody_elses(app, way):
    @app.task
    async def culprit() -> None:
        await WAYS[way]()

    @app.task
    async def neighbour(ctx: Context) -> str:
        await until(lambda: culprit_job.refresh().state is State.FAILED)
        return "unharmed"

    culprit_job, job = culprit.enqueue(), neighbour.enqueue()
    worker = burst(app)
    assert (culprit_job.refresh().state, culprit_job.attempt) == (State.FAILED, 1)
    assert ("KeyboardInterrupt" if "group" in way else "SystemExit: 3") in culprit_job.error
    assert (job.result(timeout=0), job.attempt) == ("unharmed", 1)
    assert (worker.attempts.ended, worker.attempts.fenced, worker.attempts.lost) == (2, 0, 0)


def test_an_exit_in_a_handler_in_its_step_or_in_a_thread_fails_its_job_alone(app):
    @app.task
    async def on_loop() -> None:
        sys.exit("enough")

    @app.task
    def in_thread() -> None:
        raise KeyboardInterrupt

    @app.task
    async def in_step(ctx: Context) -> None:
        await ctx.step("s", sys.exit, 4)

    @app.task
    async def in_to_thread() -> None:
        await asyncio.gather(asyncio.to_thread(sys.exit, 5))

    @app.task
    def in_a_loop_of_its_own(ctx: SyncContext) -> None:
        asyncio.run(in_gather())

    tasks = (on_loop, in_thread, in_step, in_to_thread, in_a_loop_of_its_own)
    jobs = [task.enqueue() for task in tasks]
    burst(app)
    assert [(job.refresh().state, job.attempt) for job in jobs] == [(State.FAILED, 1)] * len(jobs)


def test_a_child_that_is_cancelled_before_it_starts_is_not_warned_about(app, recwarn):
    @app.task
    async def work() -> str:
        child = asyncio.create_task(leave(), name="named")
        assert child.get_name() == "named"
        child.cancel()
        await asyncio.gather(child, return_exceptions=True)
        return "done"

    job = work.enqueue()
    burst(app)
    assert job.result(timeout=0) == "done"
    assert [str(found.message) for found in recwarn if "never awaited" in str(found.message)] == []


def test_an_exit_of_a_task_that_has_outlived_its_run_harms_nobody(app):
    gone = asyncio.Event()

    async def late() -> None:
        await gone.wait()
        sys.exit(6)

    @app.task
    async def starts_it() -> None:
        children.append(asyncio.create_task(late()))

    @app.task
    async def neighbour() -> str:
        await until(lambda: first.refresh().state is State.SUCCEEDED)
        gone.set()
        await asyncio.wait(children)
        return "unharmed"

    children: list[asyncio.Task[None]] = []
    first, job = starts_it.enqueue(), neighbour.enqueue()
    burst(app)
    assert (first.refresh().state, job.result(timeout=0)) == (State.SUCCEEDED, "unharmed")


def test_a_loop_keeps_the_task_factory_it_had(app):
    made = []

    def own(loop, coro, **more):
        made.append(coro)
        return asyncio.Task(coro, loop=loop, **more)

    @app.task
    async def culprit() -> None:
        await in_gather()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(own)
        job = await culprit.aenqueue()
        async with app.worker(), app.worker():
            await until(lambda: job.refresh().state is State.FAILED)
        assert made
        assert loop.get_task_factory() is own

    asyncio.run(main())


PROGRAM = """
import asyncio, sys
from leasehold import Leasehold
app = Leasehold(sys.argv[1])

async def leave():
    sys.exit(3)

@app.task
async def culprit():
    await asyncio.gather(leave())

@app.task
async def slow():
    await asyncio.sleep(0.5)
    return "done"
"""


def test_a_worker_process_outlives_an_exit_in_a_child_task_and_a_real_interrupt_drains_it(tmp_path: Path):
    (tmp_path / "tasks.py").write_text(
        textwrap.dedent(PROGRAM).replace("sys.argv[1]", repr(f"sqlite:///{tmp_path}/jobs.db"))
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    app = Leasehold(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def culprit() -> None: ...

    @app.task
    async def slow() -> str: ...

    command = [sys.executable, "-m", "leasehold", "worker", "tasks:app", "--poll", "0.05"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as worker:
        try:
            first = culprit.enqueue()

            async def ended() -> None:
                await until(lambda: first.refresh().state is State.FAILED, 60)
                job = await slow.aenqueue()
                await until(lambda: job.refresh().state is not State.QUEUED)
                worker.send_signal(signal.SIGINT)
                await until(lambda: worker.poll() is not None, 60)
                assert (job.refresh().state, worker.returncode) == (State.SUCCEEDED, 0)

            asyncio.run(ended())
        finally:
            worker.kill()
    app.close()
