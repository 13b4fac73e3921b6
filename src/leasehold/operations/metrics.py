"""Metrics: totals and gauges, for scrapes and charts."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.domain.errors import InvalidInput
from leasehold.domain.metrics import (
    KEPT_MINUTES,
    MOST_PAIRS,
    OTHER,
    Labels,
    LeaseAge,
    Metrics,
    ReadyAge,
    Rollup,
    SlotUse,
)
from leasehold.domain.records import COUNT_CAP, QueueCount
from leasehold.operations.local import LocalOperator


class MetricOperations(LocalOperator):
    def metrics(self) -> Metrics:
        """Return totals and gauges, in a few reads, whatever the number of jobs. The number of labels is
        bounded."""
        store = self._store
        totals, gauges = store.totals(), store.gauges(COUNT_CAP)
        labels = Labels((one.queue, one.task) for one in totals)
        # A worker without queues runs only jobs of `run_now` and `run_by_id`.
        cards = [card for card in store.list_workers() if card.queues]
        alive = [card for card in cards if not card.draining]
        return Metrics(
            totals=totals,
            jobs=_jobs(store.count_by_queue(COUNT_CAP), labels),
            ready=_ready(gauges.ready),
            leases=_leases(gauges.leases, labels),
            slots=_slots(gauges.slots),
            open_questions=gauges.open_questions,
            workers=len(alive),
            draining=len(cards) - len(alive),
            places=sum(card.concurrency for card in alive),
        )

    def rollups(
        self, minutes: int = 60, *, queue: str | None = None, task: str | None = None
    ) -> list[Rollup]:
        """Count the jobs that ended in the last `minutes`, minute by minute, oldest first."""
        _check_minutes(minutes)
        return self._store.list_rollups(minutes * 60.0, queue, task)


def _check_minutes(minutes: object) -> None:
    if isinstance(minutes, bool) or not isinstance(minutes, int) or not 1 <= minutes <= KEPT_MINUTES:
        raise InvalidInput("minutes", f"{minutes!r} is out of range", f"use 1 to {KEPT_MINUTES:,}")


def _jobs(counts: Iterable[QueueCount], labels: Labels) -> list[QueueCount]:
    found: dict[tuple[str, str, str], QueueCount] = {}
    for one in counts:
        queue, task = labels.of(one.queue, one.task)
        key = queue, task, one.state.value
        jobs = one.jobs + (found[key].jobs if key in found else 0)
        found[key] = QueueCount(queue, task, one.state, jobs)
    return list(found.values())


def _leases(ages: Iterable[LeaseAge], labels: Labels) -> list[LeaseAge]:
    found: dict[tuple[str, str], LeaseAge] = {}
    for one in ages:
        key = queue, task = labels.of(one.queue, one.task)
        other = found.get(key, one)
        found[key] = LeaseAge(
            queue, task, max(one.oldest, other.oldest), min(one.expires_in, other.expires_in)
        )
    return list(found.values())


def _ready(ages: list[ReadyAge]) -> list[ReadyAge]:
    """Return the queues whose oldest job waits longest, and all others as one."""
    ages = sorted(ages, key=lambda age: -age.seconds)
    shown, others = ages[: MOST_PAIRS - 1], ages[MOST_PAIRS - 1 :]
    return [*shown, ReadyAge(OTHER, max(age.seconds for age in others))] if others else shown


def _slots(uses: list[SlotUse]) -> list[SlotUse]:
    """Return the first slots by name, and all others as one."""
    shown, others = uses[: MOST_PAIRS - 1], uses[MOST_PAIRS - 1 :]
    if not others:
        return shown
    return [*shown, SlotUse(OTHER, sum(one.used for one in others), sum(one.limit for one in others))]
