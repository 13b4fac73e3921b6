"""A run that takes a rate or a slot while it runs: it asks, and asks again when that may help."""

from __future__ import annotations

import time

from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.errors import AcquireTimedOut, LeaseLost
from leasehold.domain.limits import checked_limit_name, checked_number
from leasehold.run.journal import Journal
from leasehold.run.state import RunState

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two looks at a slot. A rate says itself when to come back, but it may be opened or changed before."""


class Acquiring:
    """One call of `ctx.acquire`. `try_once` is called, by the handler's colour, until it answers None."""

    def __init__(
        self, run: RunState, journal: Journal, name: str, units: int, timeout: Duration | None
    ) -> None:
        self._run = run
        self._journal = journal
        self._name = checked_limit_name(name, "name")
        self._units = checked_number(units, "units", 1)
        self._timeout = None if timeout is None else seconds(timeout, "timeout")
        self._began_at = time.monotonic()
        self._pause = FIRST_PAUSE

    def try_once(self) -> float | None:
        """Seconds to sleep before the next try; None: it is ours."""
        grant = self._run.grant
        try:
            answer = self._journal.store.acquire(grant.id, grant.token, self._name, self._units)
        except LeaseLost:
            self._journal.lost(self._run)
            raise
        if answer.granted:
            self._run.holds_slots |= answer.what == "slot"
            return None
        wait = answer.wait if answer.wait is not None else self._longer()
        return self._within_timeout(min(max(wait, 0.001), LONGEST_PAUSE))

    def _longer(self) -> float:
        pause, self._pause = self._pause, min(self._pause * 1.5, LONGEST_PAUSE)
        return pause

    def _within_timeout(self, wait: float) -> float:
        if self._timeout is None:
            return wait
        left = self._began_at + self._timeout - time.monotonic()
        if left <= 0:
            raise AcquireTimedOut(self._name, self._units, self._timeout)
        return min(wait, left)


def release(run: RunState, journal: Journal, name: str) -> None:
    """Give units back before the run ends, and tell those who wait for them."""
    name = checked_limit_name(name, "name")
    if journal.store.release_slot(run.grant.id, run.grant.attempt, name):
        journal.store.wake()
