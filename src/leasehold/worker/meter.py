"""The meter: counts in memory what its worker settles, and stores the counts with the worker's beat.

If a worker is killed, its counts since the last beat are lost. Nothing is counted twice: an attempt that was refused
because its lease was lost is counted by the worker that found the loss.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from leasehold.domain.errors import StoreError
from leasehold.domain.job import Grant, Job
from leasehold.domain.metrics import Tally, Times, outcome_label
from leasehold.domain.outcome import Lost, Outcome, Success
from leasehold.domain.records import Reaped
from leasehold.run.attempt import Attempt

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

TENANT_QUEUE_TASK: Callable[[Grant], tuple[str | None, str, str]] = itemgetter(
    *map(Grant._fields.index, ("tenant", "queue", "task"))
)
"""All three fields in one call: this runs for every job."""


class Meter:
    """Counts the endings of this worker, and stores the counts with each beat. Thread-safe."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._tally = Tally()
        self._lock = threading.Lock()

    def count(
        self,
        batch: Sequence[tuple[Attempt, Outcome]],
        decided: Mapping[str, Job] | None = None,
        fenced: Sequence[Attempt] = (),
    ) -> None:
        """Count endings that the database accepted. `decided`: the current rows of jobs that did not just succeed."""
        good: dict[tuple[str | None, str, str], Times] = {}
        found = {"succeeded": good}
        plain = not decided and not fenced
        for attempt, outcome in batch:
            grant, some = attempt.grant, good
            if not plain or type(outcome) is not Success:
                if attempt in fenced:
                    continue
                job = decided.get(grant.id) if decided else None
                some = found.setdefault(outcome_label(type(outcome), job.state if job else None), {})
            whose = TENANT_QUEUE_TASK(grant)
            times = some.get(whose)
            if times is None:
                times = some[whose] = Times()
            if started_at := attempt.started_at:
                waited = grant.waited
                if waited is not None:
                    times.waits.append(waited + started_at - attempt.held_at)
                else:
                    # Adopted: it has run before.
                    started_at -= grant.execution_age or 0.0
                times.durations.append(attempt.ended_at - started_at)
            else:
                times.unseen += 1
        with self._lock:
            for word, some in found.items():
                for (tenant, queue, task), times in some.items():
                    self._tally.add(tenant, queue, task, word, times)

    def count_losses(self, losses: Sequence[Reaped]) -> None:
        """Count lost attempts. How long they waited and ran is not known here."""
        with self._lock:
            for lost in losses:
                outcome = outcome_label(Lost, lost.state)
                self._tally.add(lost.tenant, lost.queue, lost.task, outcome, Times(1))

    def flush(self) -> None:
        """Store the counts. Counts that could not be written are kept for the next call, and the error is raised. A
        tenant's trouble is reported elsewhere, and does not count as trouble of the worker."""
        with self._lock:
            tally, self._tally = self._tally, Tally()
        trouble: StoreError | None = None
        for tenant, rollups in tally.taken().items():
            try:
                self._store.add_rollups(rollups, tenant=tenant)
            except StoreError as error:
                trouble = error if tenant is None else trouble
                with self._lock:
                    self._tally.put_back(tenant, rollups)
        if trouble is not None:
            raise trouble
