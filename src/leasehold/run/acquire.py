"""`ctx.acquire`: takes a rate or a slot during an attempt, polling until it is free."""

from __future__ import annotations

from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.errors import AcquireTimedOut, LeaseLost
from leasehold.domain.limits import brought_rate, checked_limit_name, checked_number
from leasehold.domain.poll import Poll
from leasehold.run.journal import Journal
from leasehold.run.state import RunState

FIRST_PAUSE = 0.02
"""Seconds between the first two polls of a slot, then more. A rate says itself when to try again."""


class Acquiring:
    """One call of `ctx.acquire`: `run` blocks, `run_async` awaits."""

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
        self._waits = journal.waits
        self._poll = Poll(FIRST_PAUSE, self._waits.longest_pause, self._waits.monotonic, self._timeout)
        self._what = ""
        """What it waits for, in words."""
        self._timed = False
        """Whether time alone will bring it, or end the wait."""

    def run(self) -> None:
        """Wait, blocking; a stop ends the wait."""
        pause = self._try_once()
        if pause is None:
            return
        with self._run.waiting_for(self._what):
            while pause is not None:
                self._waits.wait(self._run, pause, self._timed)
                self._run.raise_if_stopped()
                pause = self._try_once()

    async def run_async(self) -> None:
        pause = await self._journal.call(self._try_once)
        if pause is None:
            return
        with self._run.waiting_for(self._what):
            while pause is not None:
                await self._waits.wait_async(self._run, pause, self._timed)
                pause = await self._journal.call(self._try_once)

    def _try_once(self) -> float | None:
        """Seconds to wait before the next try; None: acquired."""
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
        self._what = f"{answer.what} {self._name!r}"
        self._timed = answer.wait is not None or self._timeout is not None
        pause = self._poll.pause(None if answer.wait is None else max(answer.wait, 0.001))
        if pause is None:
            raise AcquireTimedOut(self._name, self._units, self._timeout or 0.0)
        return pause


def release(run: RunState, journal: Journal, name: str) -> None:
    """Give units back before the attempt ends, and wake the workers whose jobs wait for them."""
    name = checked_limit_name(name, "name")
    if journal.store.release_slot(run.grant.id, run.grant.attempt, name):
        journal.store.notify_workers()
