"""How endings go out: in batches, two of them at most at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from leasehold import Leasehold, State
from leasehold.domain.job import Grant
from leasehold.stores.answers import Ending, Settled
from leasehold.worker.settler import AT_ONCE
from tests.workers import burst

PATIENCE = 20.0


def test_many_endings_do_not_wait_for_a_slow_batch_and_a_third_one_does(
    app: Leasehold, monkeypatch: pytest.MonkeyPatch
):
    @app.task
    async def work(n: int) -> int:
        return n

    settle, lock, second = app.__internals__.store.settle, threading.Lock(), threading.Event()
    under_way: list[int] = []
    most: list[int] = []
    overlapped: list[bool] = []

    def slow(endings: Sequence[Ending]) -> Settled:
        with lock:
            under_way.append(len(endings))
            most.append(len(under_way))
            first = len(most) == 1
        if first:
            overlapped.append(second.wait(PATIENCE))
        else:
            second.set()
        try:
            return settle(endings)
        finally:
            with lock:
                under_way.pop()

    monkeypatch.setattr(app.__internals__.store, "settle", slow)
    jobs = work.enqueue_many([{"n": n} for n in range(4_000)])
    burst(app, concurrency=1_000)
    assert overlapped == [True]
    assert max(most) == AT_ONCE
    assert [job.result(timeout=0) for job in jobs[:3]] == [0, 1, 2]
    assert app.count()[State.SUCCEEDED] == len(jobs)


def test_claims_go_on_while_two_batches_are_stuck(app: Leasehold, monkeypatch: pytest.MonkeyPatch):
    @app.task
    async def work(n: int) -> int:
        return n

    settle, claim, stuck = (
        app.__internals__.store.settle,
        app.__internals__.store.claim,
        threading.Semaphore(0),
    )
    claimed = threading.Event()
    answered: list[bool] = []

    def slow(endings: Sequence[Ending]) -> Settled:
        stuck.release()
        answered.append(claimed.wait(PATIENCE))
        return settle(endings)

    def notice(*asked: Any) -> list[Grant]:
        grants = claim(*asked)
        if stuck.acquire(blocking=False):
            if stuck.acquire(blocking=False):
                claimed.set()
            stuck.release()
        return grants

    monkeypatch.setattr(app.__internals__.store, "settle", slow)
    monkeypatch.setattr(app.__internals__.store, "claim", notice)
    jobs = work.enqueue_many([{"n": n} for n in range(4_000)])
    burst(app, concurrency=1_000)
    assert all(answered)
    assert app.count()[State.SUCCEEDED] == len(jobs)
