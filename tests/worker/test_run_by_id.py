"""`app.run_by_id`: exactly this job, here, settled when the call returns; or why not, and when to come back."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from leasehold import Context, Leasehold, Retry, State, SyncContext
from leasehold.errors import DatabaseUnreachable, InvalidInput
from leasehold.testing import ManualClock
from leasehold.types import Notification, NotRun, RunResult
from leasehold.worker import embedded
from leasehold.worker.embedded import FirstSightings
from tests.backends import new_id, new_job
from tests.workers import until

PATIENCE = 20.0


@pytest.fixture
def app_settings() -> dict[str, Any]:
    return {"shutdown_grace": 0.2}


def ran(answer: RunResult | NotRun) -> RunResult:
    assert isinstance(answer, RunResult), answer
    return answer


def not_run(answer: RunResult | NotRun) -> NotRun:
    assert isinstance(answer, NotRun), answer
    return answer


# -- a run -------------------------------------------------------------------------------------------------------------


def test_it_runs_that_job_with_all_that_a_worker_gives_and_returns_when_it_is_settled(app, backend):
    @app.task(lease=2, heartbeat=0.2)
    async def study(ctx: Context, n: int) -> int:
        found = await ctx.step("search", lambda: n + 1)
        ctx.progress(1, 2, "half")
        ctx.emit("page", {"n": found})
        await asyncio.sleep(2.4)  # longer than its lease: somebody has to renew it
        return found

    other, job = study.enqueue(0), study.using(queue="elsewhere").enqueue(1)
    answer = ran(app.run_by_id(job.id, worker="worker-1"))
    assert (answer.job_id, answer.job.state, answer.retry_in) == (job.id, State.SUCCEEDED, None)
    assert answer.job.result(timeout=0) == 2
    row = backend.open().get(job.id)
    assert (row.state, row.settled_by, row.attempt, row.crashes) == (State.SUCCEEDED, "worker-1", 1, 0)
    assert backend.query("SELECT name FROM leasehold.step WHERE job_id = ?", job.id) == [("search",)]
    assert [event.data for event in job.watch() if event.kind == "page"] == [{"n": 2}]
    assert other.refresh().state is State.QUEUED


def test_plain_functions_run_and_failures_say_when_they_are_due_again(app):
    @app.task(retry=Retry(max_attempts=2, backoff="40s"))
    def flaky(ctx: SyncContext) -> None:
        raise ConnectionError("no luck")

    @app.task(retry=Retry(max_attempts=1))
    def hopeless() -> None:
        raise ValueError("never")

    answer = ran(app.run_by_id(flaky.enqueue().id))
    assert (answer.job.state, answer.job.attempt) == (State.QUEUED, 1)
    assert 10 < answer.retry_in <= 40
    again = not_run(app.run_by_id(answer.job_id))
    assert (again.state, again.why) == (State.QUEUED, "it is not due yet")
    assert 10 < again.retry_in <= 40
    final = ran(app.run_by_id(hopeless.enqueue().id))
    assert (final.job.state, final.retry_in) == (State.FAILED, None)


def test_the_async_twin_holds_no_thread_while_jobs_run(app):
    begun, at_once = [], 40

    @app.task
    async def meet() -> int:
        begun.append(1)
        while len(begun) < at_once:  # all of them run at the same time, or none ends
            await asyncio.sleep(0.01)
        return len(begun)

    async def call() -> list[RunResult | NotRun]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(2))
        return await asyncio.gather(*(app.arun_by_id(job.id) for job in meet.enqueue_many([{}] * at_once)))

    assert {ran(answer).job.state for answer in asyncio.run(call())} == {State.SUCCEEDED}


def test_the_hooks_of_a_run_have_been_called_when_it_returns(app):
    reported: list[Notification] = []

    @app.on("question")
    def notify(event: Notification) -> None:
        reported.append(event)

    @app.task
    async def asks(ctx: Context) -> None:
        await ctx.ask("go", "May I?", bool)

    answer = ran(app.run_by_id(asks.enqueue().id))
    assert (answer.job.state, answer.retry_in) == (State.WAITING, None)
    assert [event.job_id for event in reported] == [answer.job_id]


# -- not now -----------------------------------------------------------------------------------------------------------


def test_what_cannot_run_is_left_as_it_is_and_the_reason_told(app, backend):
    @app.task
    def work() -> None: ...

    store = app.__internals__.store
    (foreign,) = store.enqueue([new_job(task="unknown_here")])
    done, held = work.enqueue(), work.using(hold=True).enqueue()
    app.run_by_id(done.id)
    before = {job_id: store.get(job_id) for job_id in (foreign.id, done.id, held.id)}
    unknown = not_run(app.run_by_id(foreign.id))
    assert (unknown.state, unknown.why) == (State.QUEUED, "no task is named 'unknown_here' here")
    assert unknown.retry_in == 30, "somebody else may know it"
    assert not_run(app.run_by_id(done.id)) == NotRun(done.id, State.SUCCEEDED, "it has succeeded", None)
    assert not_run(app.run_by_id(held.id)) == NotRun(held.id, State.PENDING, "it is pending", None)
    assert {job_id: store.get(job_id) for job_id in before} == before
    missing = not_run(app.run_by_id(new_id()))
    assert (missing.state, missing.retry_in) == (None, None)
    assert "no job has the id" in missing.why
    with pytest.raises(InvalidInput, match="worker"):
        app.run_by_id(held.id, worker="")


def test_two_callers_of_one_job_run_it_once(app):
    runs = []
    began, go = threading.Event(), threading.Event()

    @app.task
    def work() -> None:
        runs.append(1)
        began.set()
        assert go.wait(PATIENCE)

    job = work.enqueue()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(app.run_by_id, job.id)
        assert began.wait(PATIENCE)
        second = not_run(app.run_by_id(job.id))
        assert (second.state, second.why.startswith("its lease is held by ")) == (State.RUNNING, True)
        assert 0 < second.retry_in <= 30
        go.set()
        assert ran(first.result(PATIENCE)).job.state is State.SUCCEEDED
    assert runs == [1]


def test_a_caller_may_wait_until_the_job_is_due(app):
    @app.task
    def work() -> int:
        return 1

    ran(app.run_by_id(work.enqueue().id))  # the first call starts what the others find
    job = work.using(delay=5).enqueue()
    assert not_run(app.run_by_id(job.id)).retry_in <= 5
    assert ran(app.run_by_id(job.id, wait="20s")).job.state is State.SUCCEEDED
    held = work.using(hold=True).enqueue()
    assert not_run(app.run_by_id(held.id, wait="1h")).state is State.PENDING, "there is nothing to wait for"


@pytest.mark.parametrize("waits", [True, False], ids=["who waits", "who comes back"])
def test_a_lease_whose_owner_died_is_taken_by_two_looks(app, backend, waits):
    @app.task(lease=2)
    def work() -> int:
        return 7

    ran(app.run_by_id(work.enqueue().id))  # the first call starts what the others find
    job = work.enqueue()
    backend.open().claim_by_id(job.id, "dead")
    if waits:
        answer = ran(app.run_by_id(job.id, wait=PATIENCE))
    else:
        reported, answer = [], app.run_by_id(job.id)
        deadline = threading.Event()
        while isinstance(answer, NotRun):
            assert answer.retry_in is not None
            reported.append(answer.why)
            deadline.wait(min(answer.retry_in, 1.0))
            answer = app.run_by_id(job.id)
        assert reported[0] == "its lease is held by dead"
    assert (answer.job.state, answer.job.attempt) == (State.SUCCEEDED, 2)
    assert [entry.event for entry in answer.job.history()][:1] == ["lost"]


def test_the_first_look_of_an_earlier_call_counts(backend):
    clock = ManualClock()
    store, looks = backend.open(clock), FirstSightings()
    (job,) = store.enqueue([new_job()])
    store.claim_by_id(job.id, "dead")
    clock.advance(31)
    assert looks.claim(store, job.id, "me").retry_in == 10
    clock.advance(4)
    assert looks.claim(store, job.id, "me").retry_in == 6
    clock.advance(6)
    assert looks.claim(store, job.id, "me").attempt == 2


# -- trouble -----------------------------------------------------------------------------------------------------------


def test_whoever_cannot_wait_any_longer_leaves_nothing_behind(app):
    """As rq's own time limit, which raises in the main thread; or Ctrl-C."""
    began = threading.Event()

    @app.task
    async def endless() -> None:
        began.set()
        await asyncio.sleep(3600)

    class TimeIsUp(Exception):
        pass

    def raise_it(*_: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGUSR1, raise_it)
    job = endless.enqueue()

    def signal_another_thread() -> None:
        # As a signal that comes just before the main thread begins to wait, it does not wake the wait.
        began.wait(PATIENCE)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    watcher = threading.Thread(target=signal_another_thread)
    watcher.start()
    try:
        with pytest.raises(TimeIsUp):
            app.run_by_id(job.id)
    finally:
        watcher.join()
        signal.signal(signal.SIGUSR1, before)
    asyncio.run(until(lambda: job.refresh().state is State.QUEUED))
    row = job.__row__
    assert (row.state, row.worker, row.failures, row.crashes) == (State.QUEUED, None, 0, 0)


def test_whoever_is_interrupted_before_the_wait_leaves_nothing_behind_either(app, monkeypatch):
    """The run has begun, and nobody has begun to wait for it."""

    @app.task
    async def endless() -> None:
        await asyncio.sleep(3600)

    real = embedded._Host.leave

    def interrupted(host: embedded._Host) -> None:
        real(host)
        monkeypatch.setattr(embedded._Host, "leave", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(embedded._Host, "leave", interrupted)
    job = endless.enqueue()
    with pytest.raises(KeyboardInterrupt):
        app.run_by_id(job.id)
    row = job.refresh().__row__
    assert (row.state, row.worker, row.failures, row.crashes) == (State.QUEUED, None, 0, 0)


def test_a_cancelled_waiter_hands_the_job_back(app):
    began = threading.Event()

    @app.task
    async def endless() -> None:
        began.set()
        await asyncio.sleep(3600)

    job = endless.enqueue()

    async def scene() -> None:
        waiter = asyncio.create_task(app.arun_by_id(job.id))
        assert await asyncio.to_thread(began.wait, PATIENCE)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter

    asyncio.run(scene())
    assert (job.refresh().state, job.__row__.worker) == (State.QUEUED, None)


def test_a_grant_whose_answer_was_lost_is_run_all_the_same(app, monkeypatch):
    runs = []

    @app.task
    def work() -> None:
        runs.append(1)

    job, store = work.enqueue(), app.__internals__.store
    claim = store.claim_by_id

    def cut_off(*args: object, **kwargs: object) -> None:
        monkeypatch.undo()
        claim(*args, **kwargs)
        raise DatabaseUnreachable("test", "the reply was lost")

    monkeypatch.setattr(store, "claim_by_id", cut_off)
    answer = ran(app.run_by_id(job.id))
    assert (answer.job.state, answer.job.attempt, runs) == (State.SUCCEEDED, 1, [1])


def test_a_handler_on_the_same_loop_is_refused_the_blocking_form_and_may_await_the_other(app):
    @app.task
    async def inner() -> int:
        return 5

    @app.task
    async def blocking(job_id: str) -> str:
        try:
            app.run_by_id(job_id)
        except InvalidInput as refused:
            return str(refused)
        return "it did"

    @app.task
    async def awaiting(job_id: str) -> int:
        return (await app.arun_by_id(job_id)).job.result(timeout=0)

    job = inner.enqueue()
    answer = ran(app.run_by_id(blocking.enqueue(job.id).id))
    assert "await app.arun_by_id" in answer.job.result(timeout=0)
    assert ran(app.run_by_id(awaiting.enqueue(job.id).id)).job.result(timeout=0) == 5


# -- forks -------------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], object]) -> int:
    """The exit status of a forked child that leaves as a work horse of rq does: without any cleaning up."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_work_horse_that_leaves_at_once_has_left_nothing_behind(backend, tmp_path):
    """On SQLite the parent has not used the store before it forks."""
    app = Leasehold(backend.url, schema=backend.schema)

    @app.task
    async def work(ctx: Context, n: int) -> int:
        ctx.emit("page", n)
        return 2 * n

    store = backend.open()
    jobs = [new_job(task="work", args=f'{{"n": {n}}}') for n in range(2)]
    store.enqueue(jobs)
    if backend.name == "sqlite":
        backend.close_opened()
    else:
        assert ran(app.run_by_id(jobs[0].id)).job.result(timeout=0) == 0, "and the parent's own host is alive"
    job = jobs[1]
    assert in_child(lambda: ran(app.run_by_id(job.id, worker="horse-1"))) == 0
    row = backend.open().get(job.id)
    assert (row.state, row.result, row.settled_by) == (State.SUCCEEDED, "2", "horse-1")
    assert [event.data for event in app.get(job.id).watch()][:1] == [1]
    app.close()


def test_what_a_killed_caller_left_is_recovered_by_the_next_with_no_worker(backend, tmp_path: Path, request):
    app = Leasehold(backend.url, schema=backend.schema, shutdown_grace=0)
    request.addfinalizer(app.close)

    @app.task(lease=2)
    def work(die: str) -> str:
        if not Path(die).exists():
            Path(die).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "at last"

    job, bystander = (
        new_job(task="work", args=f'{{"die": "{tmp_path}/{n}"}}', lease_seconds=2) for n in range(2)
    )
    backend.open().enqueue([job, bystander])
    backend.close_opened()
    for one in (job, bystander):
        assert in_child(lambda one=one: app.run_by_id(one.id)) == -signal.SIGKILL
    answer = ran(app.run_by_id(job.id, wait=PATIENCE))
    assert (answer.job.result(timeout=0), answer.job.attempt) == ("at last", 2)
    # The other one nobody asks for by its id: the host's reaper brings it back to its queue.
    left = app.get(bystander.id)
    while left.refresh().state is not State.QUEUED:
        threading.Event().wait(0.05)
    app.close()
