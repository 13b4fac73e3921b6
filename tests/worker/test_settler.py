"""How endings go out: in batches, two of them at most at once, and once each though replies are lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from leasehold import Leasehold, State
from leasehold.domain.job import Grant
from leasehold.errors import DatabaseUnreachable
from leasehold.stores.results import Ending, Settled
from leasehold.worker.settler import MOST_BATCHES
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

    def slow(endings: Sequence[Ending], **more: Any) -> Settled:
        with lock:
            under_way.append(len(endings))
            most.append(len(under_way))
            first = len(most) == 1
        if first:
            overlapped.append(second.wait(PATIENCE))
        else:
            second.set()
        try:
            return settle(endings, **more)
        finally:
            with lock:
                under_way.pop()

    monkeypatch.setattr(app.__internals__.store, "settle", slow)
    jobs = work.enqueue_many([{"n": n} for n in range(4_000)])
    burst(app, concurrency=1_000)
    assert overlapped == [True]
    assert max(most) == MOST_BATCHES
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

    def slow(endings: Sequence[Ending], **more: Any) -> Settled:
        stuck.release()
        answered.append(claimed.wait(PATIENCE))
        return settle(endings, **more)

    def notice(*requested: Any, **more: Any) -> list[Grant]:
        grants = claim(*requested, **more)
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


def test_a_settle_that_lands_after_the_look_counts_though_its_repeat_is_refused(
    app: Leasehold, monkeypatch: pytest.MonkeyPatch
):
    @app.task
    async def work(n: int) -> int:
        return n

    settle, read = app.__internals__.store.settle, app.__internals__.store.read_settlements
    on_its_way: list[Ending] = []
    verdicts: list[str] = []

    def slow(endings: Sequence[Ending], **more: Any) -> Settled:
        if not verdicts:
            on_its_way.extend(endings)
            raise DatabaseUnreachable("the store", "no answer")
        return settle(endings, **more)

    def look(leases: Mapping[str, int], worker: str) -> dict[str, str]:
        found = read(leases, worker)
        verdicts.extend(found.values())
        settle(on_its_way)
        on_its_way.clear()
        return found

    monkeypatch.setattr(app.__internals__.store, "settle", slow)
    monkeypatch.setattr(app.__internals__.store, "read_settlements", look)
    job = work.enqueue(7)
    worker = burst(app)
    assert verdicts == ["mine", "done"]
    assert (worker.attempts.ended, worker.attempts.fenced, worker.attempts.lost) == (1, 0, 0)
    assert (job.result(timeout=0), job.__row__.attempt) == (7, 1)


def test_endings_that_are_tried_one_by_one_after_a_lost_reply_are_looked_for_first(
    app: Leasehold, monkeypatch: pytest.MonkeyPatch
):
    begun: list[int] = []

    @app.task
    async def work(n: int) -> int:
        begun.append(n)
        while len(begun) < 3:  # they end together, in one batch
            await asyncio.sleep(0)
        return n

    settle, read = app.__internals__.store.settle, app.__internals__.store.read_settlements
    sizes: list[int] = []
    looks: list[int] = []

    def unheard(endings: Sequence[Ending], **more: Any) -> Settled:
        settled = settle(endings, **more)
        sizes.append(len(endings))
        if len(sizes) == 1:
            raise DatabaseUnreachable("the store", "no answer")
        return settled

    def fails_once(leases: Mapping[str, int], worker: str) -> dict[str, str]:
        looks.append(len(leases))
        if len(looks) == 1:
            raise RuntimeError("not the database's fault")
        return read(leases, worker)

    monkeypatch.setattr(app.__internals__.store, "settle", unheard)
    monkeypatch.setattr(app.__internals__.store, "read_settlements", fails_once)
    jobs = work.enqueue_many([{"n": n} for n in range(3)])
    worker = burst(app)
    assert (sizes[0], looks[0]) == (3, 3)
    assert (worker.attempts.ended, worker.attempts.fenced) == (3, 0)
    assert [job.result(timeout=0) for job in jobs] == [0, 1, 2]
