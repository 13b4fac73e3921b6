"""The lease keeper: renews what this worker holds and brings back what was asked of it.

It has a thread and a connection of its own: a handler that blocks the event loop, or a settle that waits for the
database, must not cost a lease.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from leasehold.domain.states import Flag
from leasehold.run.attempt import Attempt
from leasehold.stores.contract import Store
from leasehold.worker.service import Service

logger = logging.getLogger("leasehold.worker")

IDLE = 10.0


class LeaseKeeper:
    def __init__(
        self,
        store: Store,
        held: dict[str, Attempt],
        *,
        on_flag: Callable[[Attempt, Flag], None],
        on_lost: Callable[[Attempt], None],
    ) -> None:
        self._store = store
        self._held = held
        self._on_flag = on_flag
        self._on_lost = on_lost
        # After trouble every second counts: others reap what is not renewed.
        self._service = Service("lease keeper", self._beat, first=0.05, slowest=1.0)
        self._next_at = float("inf")
        """When the next beat is due; infinite during a beat, so that what comes meanwhile is not missed."""
        self.beats = 0
        """Renewal statements sent."""

    def start(self) -> None:
        self._service.start()

    def expect(self, run: Attempt) -> None:
        """A lease has come. The keeper may be asleep for longer than it lasts."""
        if run.renew_at < self._next_at:
            self._next_at = run.renew_at
            self._service.nudge()

    def stop(self) -> None:
        self._service.stop()
        self._store.close()

    def _beat(self) -> float:
        self._next_at = float("inf")
        held = list(self._held.values())
        if held and _due(held) <= time.monotonic():
            self._renew(held)
        held = list(self._held.values())
        now = time.monotonic()
        self._next_at = min(self._next_at, _due(held) if held else now + IDLE)
        return max(0.01, self._next_at - now)

    def _renew(self, held: list[Attempt]) -> None:
        """All of them in one statement, whoever it was that was due."""
        leases = {run.grant.id: run.grant.token for run in held}
        sent_at = time.monotonic()
        renewals = {renewal.id: renewal for renewal in self._store.renew(leases)}
        self.beats += 1
        for run in held:
            # Renewed or not, it has had its turn: what is gone must not make the keeper spin.
            run.renew_at = sent_at + run.heartbeat
            renewal = renewals.get(run.grant.id)
            if renewal is not None:
                run.renewed(sent_at)
                if renewal.stop_requested is not None and renewal.stop_requested is not run.flag:
                    run.flag = renewal.stop_requested
                    self._on_flag(run, renewal.stop_requested)
                elif renewal.stop_requested is None:
                    run.flag = None
            elif not run.settled and not run.state.completed and self._held.get(run.grant.id) is run:
                # Not ours any more, and not because we have just settled it ourselves.
                self._on_lost(run)


def _due(held: list[Attempt]) -> float:
    """The first in need decides, so that one statement a beat serves all."""
    return min(run.renew_at for run in held)
