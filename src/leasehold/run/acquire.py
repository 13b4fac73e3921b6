"""A run that takes a rate or a slot while it runs: it asks, and asks again when that may help."""

from __future__ import annotations

import time

from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.errors import AcquireTimedOut, LeaseLost
from leasehold.domain.limits import brought_rate, checked_limit_name, checked_number
from leasehold.domain.poll import Poll
from leasehold.run.journal import Journal
from leasehold.run.state import RunState

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two looks at a slot. A rate says itself when to come back, but it may be opened or changed before."""


class Acquiring:
    """One call of `ctx.acquire`. `try_once` is called, by the handler's colour, until it answers None."""

    def __init__(
        self,
        run: RunState,
        journal: Journal,
        name: str,
        units: int,
        rate: str | None,
        burst: int | None,
        timeout: Duration | None,
    ) -> None:
        self._run = run
        self._journal = journal
        self._name = checked_limit_name(name, "name")
        self._units = checked_number(units, "units", 1)
        self._default = brought_rate(self._name, rate, burst)
        self._timeout = None if timeout is None else seconds(timeout, "timeout")
        self._poll = Poll(FIRST_PAUSE, LONGEST_PAUSE, time.monotonic, self._timeout)

    def try_once(self) -> float | None:
        """Seconds to sleep before the next try; None: it is ours."""
        grant = self._run.grant
        try:
            answer = self._journal.store.acquire(
                grant.id, grant.token, self._name, self._units, self._default
            )
        except LeaseLost:
            self._journal.lost(self._run)
            raise
        if answer.granted:
            self._run.holds_slots |= answer.what == "slot"
            return None
        pause = self._poll.pause(None if answer.wait is None else max(answer.wait, 0.001))
        if pause is None:
            raise AcquireTimedOut(self._name, self._units, self._timeout or 0.0)
        return pause


def release(run: RunState, journal: Journal, name: str) -> None:
    """Give units back before the run ends, and tell those who wait for them."""
    name = checked_limit_name(name, "name")
    if journal.store.release_slot(run.grant.id, run.grant.attempt, name):
        journal.store.wake()
