"""The bell: many callers, few rings, and none is owed for ever."""

from __future__ import annotations

import threading

import pytest

from leasehold.stores.database import wakeups
from leasehold.stores.database.wakeups import NotifyThrottle

PATIENCE = 30.0


class Rings:
    def __init__(self) -> None:
        self.count = threading.Semaphore(0)

    def __call__(self) -> None:
        self.count.release()

    def receive(self) -> bool:
        return self.count.acquire(timeout=PATIENCE)


class StandingClock:
    """In place of the module `time`: however slow the machine is, what is called meanwhile comes at once."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StandingClock:
    clock = StandingClock()
    monkeypatch.setattr(wakeups, "time", clock)
    return clock


def payers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "leasehold notify"]


def wait_for_payers() -> None:
    for thread in payers():
        thread.join(PATIENCE)


def test_the_first_caller_is_heard_at_once_and_later_ones_together(clock: StandingClock):
    rings, others = Rings(), payers()
    throttle = NotifyThrottle(rings)
    for _ in range(100):
        throttle()
    assert len([thread for thread in payers() if thread not in others]) == 1
    assert rings.receive()
    clock.now += wakeups.NOTIFY_GAP
    assert rings.receive()
    wait_for_payers()
    assert not rings.count.acquire(blocking=False)


def test_whoever_takes_the_turn_rings_for_those_who_are_owed(
    clock: StandingClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(wakeups, "NOTIFY_SILENCE", 0.0)
    rings = Rings()
    throttle = NotifyThrottle(rings)
    assert throttle.take_turn()
    throttle.defer()
    assert throttle.take_turn()  # by another, in a commit of his own
    wait_for_payers()
    assert not rings.count.acquire(blocking=False)


def test_a_turn_that_was_taken_and_not_used_is_given_back():
    rings = Rings()
    throttle = NotifyThrottle(rings)
    assert throttle.take_turn()
    throttle.defer()
    assert rings.receive()


def test_a_ring_that_fails_does_not_end_the_bell():
    received = threading.Event()
    failed: list[int] = []

    def notify() -> None:
        if not failed:
            failed.append(1)
            raise OSError("the server is away")
        received.set()

    throttle = NotifyThrottle(notify)
    throttle()
    throttle()
    assert received.wait(PATIENCE)


def test_what_is_owed_is_paid_at_the_end(monkeypatch: pytest.MonkeyPatch):
    """A command that tells two jobs to stop ends before the second ring is due."""
    monkeypatch.setattr(wakeups, "NOTIFY_GAP", 2.0)
    monkeypatch.setattr(wakeups, "NOTIFY_SILENCE", 2.0)
    rings = Rings()
    throttle = NotifyThrottle(rings)
    throttle()
    assert rings.receive()
    throttle.flush()
    assert not rings.count.acquire(blocking=False), "nothing was owed"
    throttle()
    throttle.flush()
    assert rings.receive()
