"""What the keeper makes of the answers to a renewal."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Iterator

import pytest

from leasehold.domain.job import Grant, Renewal
from leasehold.domain.states import Flag
from leasehold.run.attempt import Attempt
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.settings import TaskSettings
from leasehold.worker import lease_keeper
from leasehold.worker.attempts import Attempts
from leasehold.worker.lease_keeper import RENEW_AGAIN_WITHIN, LeaseKeeper

PATIENCE = 20.0
LEASE = 300.0
GRANT = Grant(1, "a", 7, 1, "work", "default", "{}", LEASE, None, None, None, None, None)


class Answers:
    """A store that renews as the test says, and shows when it was asked."""

    def __init__(self) -> None:
        self.requested: queue.Queue[float] = queue.Queue()
        self.given: queue.Queue[Renewal] = queue.Queue()

    def renew(self, leases: dict[str, int]) -> list[Renewal]:
        assert leases == {"a": 7}
        self.requested.put(time.monotonic())
        return [self.given.get(timeout=PATIENCE)]

    def close(self) -> None: ...


def work() -> None: ...


@pytest.mark.timeout(60)
def test_a_lease_that_was_held_but_not_extended_is_believed_no_longer_and_asked_for_again_soon():
    loop = asyncio.new_event_loop()
    attempts, store = Attempts(loop, lambda: None), Answers()
    keeper = LeaseKeeper(store, attempts, lambda: True)
    definition = TaskDefinition(work, "work", TaskSettings(lease=LEASE))
    run = Attempt(GRANT, definition, time.monotonic(), time.monotonic())
    assert run.renew_every > PATIENCE + RENEW_AGAIN_WITHIN
    believed, run.renew_at = run.usable_until, time.monotonic()
    attempts.held["a"] = run
    keeper.start()
    try:
        first = store.requested.get(timeout=PATIENCE)
        store.given.put(Renewal("a", Flag.PAUSE, extended=False))
        # The next question comes when the first answer has been dealt with.
        second = store.requested.get(timeout=PATIENCE)
        assert second - first >= RENEW_AGAIN_WITHIN / 2, "it does not spin either"
        assert run.usable_until == believed
        assert (run.flag, run.cause, run.must_stop) == (Flag.PAUSE, "requested", True)
        store.given.put(Renewal("a", Flag.PAUSE))
    finally:
        keeper.stop()
        loop.close()
    assert run.usable_until > believed
    assert run.renew_at >= second + run.renew_every - PATIENCE


class Flags:
    """A store that shows which looks at the flags it gets."""

    def __init__(self) -> None:
        self.requested: queue.Queue[dict[int, int]] = queue.Queue()
        self.given: dict[int, Flag] = {}

    def read_stop_requests(self, leases: dict[str, tuple[int, int]]) -> dict[str, Flag]:
        given = self.given
        self.requested.put(leases)
        return given

    def close(self) -> None: ...


@pytest.fixture
def held(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[LeaseKeeper, Flags, Attempts]]:
    """A keeper that has just begun, and holds nothing; its heartbeat is far away."""
    monkeypatch.setattr(lease_keeper, "IDLE", 2 * PATIENCE)
    listens = getattr(request, "param", True)
    loop = asyncio.new_event_loop()
    attempts, store = Attempts(loop, lambda: None), Flags()
    keeper = LeaseKeeper(store, attempts, lambda: listens)
    keeper.start()
    while keeper._next_at == float("inf"):  # until it sleeps
        time.sleep(0.001)
    yield keeper, store, attempts
    keeper.stop()
    loop.close()


def hold(attempts: Attempts, keeper: LeaseKeeper) -> Attempt:
    definition = TaskDefinition(work, "work", TaskSettings(lease=LEASE))
    run = Attempt(GRANT, definition, time.monotonic(), time.monotonic())
    attempts.held["a"] = run
    keeper.expect(run.renew_at)
    return run


@pytest.mark.timeout(60)
def test_a_hint_is_looked_at_once_now_and_once_when_the_gap_is_over(held, monkeypatch):
    """A run that was claimed a moment before the hint is not in the books yet when it comes."""
    monkeypatch.setattr(lease_keeper, "READ_STOPS_GAP", 0.2)
    keeper, store, attempts = held
    store.given = {"a": Flag.CANCEL}  # before the last of the two looks, however slow we are
    keeper.expect_stop_request()
    run = hold(attempts, keeper)
    assert store.requested.get(timeout=PATIENCE) == {"a": (1, 7)}
    while run.cause is None:  # the last of what the keeper's thread writes
        time.sleep(0.001)
    assert (run.flag, run.cause) == (Flag.CANCEL, "requested")


@pytest.mark.timeout(60)
def test_many_hints_are_few_looks(held, monkeypatch):
    """On SQLite every commit is a hint."""
    monkeypatch.setattr(lease_keeper, "READ_STOPS_GAP", 0.2)
    keeper, _, attempts = held
    hold(attempts, keeper)
    began_at = time.monotonic()
    while time.monotonic() < began_at + 1.0:
        keeper.expect_stop_request()
        time.sleep(0.001)
    took = time.monotonic() - began_at
    while keeper.stop_reads < 2:  # the last one comes when the gap is over
        time.sleep(0.001)
    assert keeper.stop_reads <= took / 0.2 + 2


@pytest.mark.timeout(60)
@pytest.mark.parametrize("held", [False], indirect=True)
def test_without_hints_the_keeper_looks_by_itself_while_it_holds_a_run(held, monkeypatch):
    monkeypatch.setattr(lease_keeper, "READ_STOPS_EVERY", 0.02)
    keeper, store, attempts = held
    hold(attempts, keeper)
    for _ in range(3):
        assert store.requested.get(timeout=PATIENCE) == {"a": (1, 7)}, "it slept on"
    attempts.held.clear()
    keeper.expect(float("-inf"))
