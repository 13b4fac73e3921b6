"""The lease keeper: renews this worker's leases and reads stop requests, on a hint or with the next renewal.

It has its own thread and connection: a handler that blocks the event loop, or a settle that waits for the database,
must not cost a lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

from leasehold.domain.job import Renewal
from leasehold.domain.states import Flag
from leasehold.run.attempt import Attempt
from leasehold.worker.attempts import Attempts
from leasehold.worker.service import Service

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

IDLE = 10.0
RENEW_AGAIN_WITHIN = 0.5
"""Most seconds until a lease whose row was locked is renewed again."""
READ_STOPS_GAP = 0.1
"""Seconds between two reads of stop requests: on SQLite every commit by any process is a hint."""
READ_STOPS_EVERY = 0.25
"""Seconds between two reads while attempts are held and hints from other processes do not arrive."""


_RENEW_AT: Callable[[Attempt], float] = attrgetter("renew_at")


class LeaseKeeper(Service):
    def __init__(self, store: JobStore, attempts: Attempts, listens: Callable[[], bool]) -> None:
        # After trouble every second counts: other workers reap leases that are not renewed.
        super().__init__("lease keeper", self._beat, first=0.05, slowest=1.0)
        self._store = store
        self._attempts = attempts
        self._listens = listens
        """Whether stop requests of other processes arrive as hints."""
        self._next_at = float("inf")
        """When the next beat is due; infinite during a beat, so that no lease that comes meanwhile is missed."""
        self._read_stops_at = float("inf")
        """When to read the stop requests; infinite: no read is requested."""
        self._stops_read_at = float("-inf")
        self._read_stops_again = False
        self.beats = 0
        """Renewal statements sent."""
        self.stop_reads = 0
        """Reads of stop requests sent."""

    def expect(self, renew_at: float) -> None:
        """Expect new leases, the first due at `renew_at`: the keeper may be asleep for longer than they last."""
        if not self._listens():
            renew_at = min(renew_at, self._stops_read_at + READ_STOPS_EVERY)
        if renew_at < self._next_at:
            self._next_at = renew_at
            self.nudge()

    def expect_stop_request(self) -> None:
        """Read the stop requests soon: there may be a new one. Callable from any thread; many calls cause one read."""
        self._read_stops_again = True
        read_at = self._stops_read_at + READ_STOPS_GAP
        if read_at < self._read_stops_at:
            self._read_stops_at = read_at
            if read_at < self._next_at:
                self._next_at = read_at
                self.nudge()

    def stop(self) -> None:
        super().stop()
        self._store.close()

    def _beat(self) -> float:
        self._next_at = float("inf")
        held = list(self._attempts.held.values())
        if held and _due(held) <= time.monotonic():
            self._renew(held)
        if self._read_stops_at <= time.monotonic():
            self._read_stop_requests()
        held = list(self._attempts.held.values())
        now = time.monotonic()
        if held and not self._listens():
            self._read_stops_at = min(self._read_stops_at, max(now, self._stops_read_at + READ_STOPS_EVERY))
        self._next_at = min(self._next_at, self._read_stops_at, _due(held) if held else now + IDLE)
        return max(0.01, self._next_at - now)

    def _read_stop_requests(self) -> None:
        """Read the stop requests, and once more after the gap: an attempt just claimed may not be in `held` yet."""
        # In this order: no request from here on is lost.
        self._read_stops_at = float("inf")
        self._stops_read_at = time.monotonic()
        again, self._read_stops_again = self._read_stops_again, False
        if again:
            self._read_stops_at = self._stops_read_at + READ_STOPS_GAP
        held = {attempt.grant.id: attempt for attempt in self._attempts.unfinished()}
        if not held:
            return
        leases = {job_id: (attempt.grant.seq, attempt.grant.token) for job_id, attempt in held.items()}
        flags = self._store.read_stop_requests(leases)
        self.stop_reads += 1
        for job_id, flag in flags.items():
            self._apply_stop_request(held[job_id], flag)

    def _renew(self, held: list[Attempt]) -> None:
        """Renew all leases in one statement, whichever was due."""
        leases = {attempt.grant.id: attempt.grant.token for attempt in held}
        sent_at = time.monotonic()
        renewals = {renewal.id: renewal for renewal in self._store.renew(leases)}
        self.beats += 1
        for attempt in held:
            # Renewed or not, set the next time: a lost lease must not make the keeper spin.
            attempt.renew_at = sent_at + attempt.renew_every
            renewal = renewals.get(attempt.grant.id)
            if renewal is not None and renewal.dropped:
                self._attempts.on_dropped(attempt)
            elif renewal is not None:
                self._renewed(attempt, renewal, sent_at)
            elif (
                not attempt.ended_at
                and not attempt.completed
                and self._attempts.held.get(attempt.grant.id) is attempt
            ):
                # The lease is not ours any more, and not because we have just settled it.
                self._attempts.on_lost(attempt)

    def _renewed(self, attempt: Attempt, renewal: Renewal, sent_at: float) -> None:
        if renewal.extended:
            attempt.renewed(sent_at)
        else:
            # The lease runs on as before: trusting it longer would let the handler go on while another worker has the
            # job.
            attempt.renew_at = sent_at + min(attempt.renew_every, RENEW_AGAIN_WITHIN)
        if renewal.stop_requested is None:
            attempt.flag = None
        else:
            self._apply_stop_request(attempt, renewal.stop_requested)

    def _apply_stop_request(self, attempt: Attempt, flag: Flag) -> None:
        if flag is not attempt.flag:
            attempt.flag = flag
            self._attempts.on_stop_request(attempt, flag)


def _due(held: list[Attempt]) -> float:
    """The earliest due lease sets the beat; one statement renews all."""
    return min(map(_RENEW_AT, held))
