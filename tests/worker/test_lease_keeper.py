"""What the keeper makes of the answers to a renewal."""

from __future__ import annotations

import asyncio
import queue
import time

import pytest

from leasehold.domain.job import Grant, Renewal
from leasehold.domain.states import Flag
from leasehold.run.attempt import Attempt
from leasehold.tasks.definition import TaskDefinition
from leasehold.tasks.settings import TaskSettings
from leasehold.worker.attempts import Attempts
from leasehold.worker.lease_keeper import AGAIN, LeaseKeeper

PATIENCE = 20.0
LEASE = 300.0
GRANT = Grant(1, "a", 7, 1, "work", "default", "{}", LEASE, None, None, None, None, None)


class Answers:
    """A store that renews as the test says, and shows when it was asked."""

    def __init__(self) -> None:
        self.asked: queue.Queue[float] = queue.Queue()
        self.given: queue.Queue[Renewal] = queue.Queue()

    def renew(self, leases: dict[str, int]) -> list[Renewal]:
        assert leases == {"a": 7}
        self.asked.put(time.monotonic())
        return [self.given.get(timeout=PATIENCE)]

    def close(self) -> None: ...


def work() -> None: ...


@pytest.mark.timeout(60)
def test_a_lease_that_was_held_but_not_extended_is_believed_no_longer_and_asked_for_again_soon():
    loop = asyncio.new_event_loop()
    attempts, store = Attempts(loop, lambda run, asked: None, lambda: None), Answers()
    keeper = LeaseKeeper(store, attempts)
    definition = TaskDefinition(work, "work", TaskSettings(lease=LEASE))
    run = Attempt(GRANT, definition, time.monotonic(), time.monotonic())
    assert run.heartbeat > PATIENCE + AGAIN
    believed, run.renew_at = run.lease_until, time.monotonic()
    attempts.held["a"] = run
    keeper.start()
    try:
        first = store.asked.get(timeout=PATIENCE)
        store.given.put(Renewal("a", Flag.PAUSE, extended=False))
        # The next question comes when the first answer has been dealt with.
        second = store.asked.get(timeout=PATIENCE)
        assert second - first >= AGAIN / 2, "it does not spin either"
        assert run.lease_until == believed
        assert (run.flag, run.cause, run.stop_requested) == (Flag.PAUSE, "flag", True)
        store.given.put(Renewal("a", Flag.PAUSE))
    finally:
        keeper.stop()
        loop.close()
    assert run.lease_until > believed
    assert run.renew_at >= second + run.heartbeat - 1.0
