"""Hooks are called though the process that made the move was killed right after its commit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leasehold import Leasehold
from leasehold.domain.budgets import Spend
from leasehold.domain.hooks import EVENTS, PendingNotification
from leasehold.domain.job import TIED
from leasehold.domain.outcome import DeadlinePassed, Failure, Stopped, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from leasehold.types import Notification
from tests.backends import Backend, new_id, put
from tests.contract.lives import SITE, claim_one, end, lose, orphan, run
from tests.launcher import launch
from tests.workers import PATIENCE, until, wait_for


def _succeed(store: JobStore, _: ManualClock) -> None:
    put(store, group="g")
    grant = claim_one(store)
    store.settle([Ending(grant.id, grant.token, Success("1"), grant.seq, max(TIED, grant.special))])


def _adopt(store: JobStore, clock: ManualClock) -> None:
    orphan(store, clock)
    assert store.adopt("other", [SITE])


def _spend(store: JobStore, _: ManualClock) -> None:
    grant = run(store, policy=Policy(budget={"tokens": 1}))
    store.spend(grant.id, grant.token, 1, [Spend("a", "tokens", 2)])


def _stall(store: JobStore, _: ManualClock) -> None:
    store.notify_listeners(
        [PendingNotification("stalled", new_id(), "work", "default", 1, None, "silent", {})]
    )


DEEDS: dict[str, Callable[[JobStore, ManualClock], object]] = {
    "succeeded": _succeed,
    "failed": lambda s, _: end(s, run(s), Failure("x", final=True)),
    "timed_out": lambda s, _: end(s, run(s), DeadlinePassed("late")),
    "cancelled": lambda s, _: s.cancel(put(s).id),
    "paused": lambda s, _: end(s, run(s), Stopped(pause=True)),
    "requeued": lambda s, _: end(s, run(s), Failure("x")),
    "lost": lambda s, c: lose(s, c, run(s)),
    "adopted": _adopt,
    "lane_halted": lambda s, _: end(s, run(s, lane="l"), Failure("x", final=True)),
    "budget_exhausted": _spend,
    "group_done": _succeed,
    "stalled": _stall,
    "question": lambda s, _: end(s, run(s), QuestionAsked("q", "May I?")),
}


def killed_after(backend: Backend, deed: Callable[[JobStore, ManualClock], object]) -> None:
    """Done in a process of its own, which dies before it could do anything else."""
    child = os.fork()
    if child == 0:
        try:
            clock = ManualClock()
            deed(backend.open(clock), clock)
        except BaseException:
            os._exit(1)
        os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the deed itself failed"


def serve(app: Leasehold, condition: Callable[[], object]) -> None:
    """A worker of the app until that is so; nothing is open when it has gone."""

    async def work() -> None:
        async with app.worker(queues="elsewhere", retention=None):
            await until(condition)

    asyncio.run(work())
    app.close()


@pytest.fixture
def listening(backend: Backend) -> tuple[Leasehold, list[Notification]]:
    """An app whose hook listens to everything; a worker of it has been there and is gone."""
    app = Leasehold(backend.url, schema=backend.schema)
    received: list[Notification] = []

    @app.on(*EVENTS, name="all")
    def receive(event: Notification) -> None:
        received.append(event)

    @app.task
    def nothing() -> None: ...

    return app, received


@pytest.mark.parametrize("event", EVENTS)
def test_a_hook_is_called_though_the_process_was_killed_right_after_its_commit(
    backend: Backend, listening: tuple[Leasehold, list[Notification]], event: str
) -> None:
    app, received = listening
    serve(app, lambda: True)
    killed_after(backend, DEEDS[event])
    assert received == []
    serve(app, lambda: event in {one.name for one in received})
    ids = [one.id for one in received]
    assert len(set(ids)) == len(ids)


def test_a_hook_that_kills_its_process_is_called_again_by_another_with_the_same_id(
    backend: Backend, listening: tuple[Leasehold, list[Notification]]
) -> None:
    app, received = listening
    serve(app, lambda: True)
    clock = ManualClock()
    store = backend.open(clock)
    store.cancel(put(store).id)
    store.close()

    def take(other: JobStore, _: ManualClock) -> None:
        assert len(other.take_events(["all"], 10, 0.5)) == 1

    before = backend.query("SELECT id FROM leasehold.outbox")
    killed_after(backend, take)
    serve(app, lambda: received)
    assert [(one.id,) for one in received] == before


HANGING = """
import os, sys, time
from leasehold import Leasehold

app = Leasehold(os.environ["JOBS_URL"], schema=os.environ["JOBS_SCHEMA"])

@app.task
def work() -> None: ...

@app.on("cancelled", name="hangs")
def hang(event) -> None:
    print("the hook hangs", file=sys.stderr, flush=True)
    time.sleep(100_000)
"""


def test_a_worker_whose_hook_sleeps_for_ever_ends_at_its_sigterm(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    log = tmp_path / "log"
    store = backend.open()
    with log.open("wb") as stderr:
        process = launch(
            [sys.executable, "-m", "leasehold", "worker", "hanging:app"],
            cwd=tmp_path,
            env={**os.environ, "JOBS_URL": backend.url, "JOBS_SCHEMA": backend.schema},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        wait_for(store.list_listeners, lambda: f"the listener: {log.read_text()}")
        store.cancel(put(store, queue="of nobody").id)
        wait_for(
            lambda: "the hook hangs" in log.read_text(), lambda: f"the call of the hook: {log.read_text()}"
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    assert "left hook hangs" in log.read_text()
    assert backend.query("SELECT count(*) FROM leasehold.outbox") == [(1,)], "its event is delivered again"
