"""Overview page: the jobs that run, wait or fail now, and charts by the minute."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from leasehold.domain.frozen import frozen
from leasehold.domain.metrics import BOUNDS, Histogram, Rollup
from leasehold.domain.records import COUNT_CAP, Filter, PauseRecord, QueueRow
from leasehold.domain.search import Failures
from leasehold.domain.states import State
from leasehold.surfaces.dashboard.page import DashboardPage
from leasehold.surfaces.dashboard.page_request import PageRequest

# -- charts ------------------------------------------------------------------------------------------------------------
# Pure.

_ENDED_BADLY = ("failed", "timed_out")
_GOES_ON = ("retried", "crashed", "lost")


@frozen
class Minute:
    at: datetime
    succeeded: int
    failed: int
    retried: int
    wait: float | None
    """The 95th percentile, in seconds; None: no attempt ended in this minute."""
    duration: float | None


@frozen
class Percentiles:
    """Waiting and running times over several minutes."""

    attempts: int
    wait_median: float | None
    wait_p95: float | None
    attempt_median: float | None
    attempt_p95: float | None


def quantile(histogram: Histogram, share: float) -> float | None:
    """The quantile, interpolated within its bucket; at most the last bound. None: the histogram is empty."""
    count = histogram.count
    if not count:
        return None
    rank, seen, low = share * count, 0, 0.0
    for bound, number in zip(BOUNDS, histogram.buckets, strict=False):
        if number and seen + number >= rank:
            return low + (bound - low) * max(0.0, rank - seen) / number
        seen, low = seen + number, bound
    return BOUNDS[-1]


def times_of(rollups: Iterable[Rollup]) -> Percentiles:
    wait, duration, attempts = Histogram(), Histogram(), 0
    for one in rollups:
        wait, duration, attempts = wait + one.wait, duration + one.duration, attempts + one.attempts
    return Percentiles(
        attempts,
        wait_median=quantile(wait, 0.5),
        wait_p95=quantile(wait, 0.95),
        attempt_median=quantile(duration, 0.5),
        attempt_p95=quantile(duration, 0.95),
    )


def minutes_of(rollups: Sequence[Rollup], now: datetime, minutes: int) -> list[Minute]:
    """Every minute until now, also those in which no attempt ended."""
    last = now.replace(second=0, microsecond=0)
    by_minute: dict[datetime, list[Rollup]] = {
        last - timedelta(minutes=n): [] for n in range(minutes - 1, -1, -1)
    }
    for one in rollups:
        if one.minute is not None and (minute := one.minute.replace(second=0, microsecond=0)) in by_minute:
            by_minute[minute].append(one)
    return [_minute(at, found) for at, found in by_minute.items()]


def since_the_first_attempt(minutes: Sequence[Minute], least: int) -> Sequence[Minute]:
    """The minutes without the idle ones at the beginning: a new system should not show an empty hour."""
    idle = next(
        (n for n, one in enumerate(minutes) if one.succeeded + one.failed + one.retried), len(minutes)
    )
    return minutes[max(0, min(idle - 1, len(minutes) - least)) :]


def _minute(at: datetime, found: Sequence[Rollup]) -> Minute:
    times = times_of(found)

    def count(outcomes: Sequence[str]) -> int:
        return sum(one.attempts for one in found if one.outcome in outcomes)

    return Minute(
        at, count(("succeeded",)), count(_ENDED_BADLY), count(_GOES_ON), times.wait_p95, times.attempt_p95
    )


def attempts_chart(minutes: Sequence[Minute]) -> str:
    """The chart of outcomes, as JSON for dashboard.js."""
    return _chart(
        "attempts",
        minutes,
        [
            ("succeeded", "green", True, [one.succeeded for one in minutes]),
            ("failed", "red", True, [one.failed for one in minutes]),
            ("retried", "orange", False, [one.retried for one in minutes]),
        ],
    )


def times_chart(minutes: Sequence[Minute]) -> str:
    return _chart(
        "s",
        minutes,
        [
            ("wait", "violet", False, [one.wait for one in minutes]),
            ("attempt", "blue", False, [one.duration for one in minutes]),
        ],
    )


def _chart(
    unit: str, minutes: Sequence[Minute], lines: list[tuple[str, str, bool, Sequence[float | None]]]
) -> str:
    return json.dumps(
        {
            "unit": unit,
            "series": [{"label": label, "colour": colour, "fill": fill} for label, colour, fill, _ in lines],
            "data": [
                [int(one.at.timestamp()) for one in minutes],
                *([None if value is None else round(value, 4) for value in values] for *_, values in lines),
            ],
        }
    )


# -- overview ----------------------------------------------------------------------------------------------------------

MINUTES = 60
LEAST_MINUTES = 15
"""The charts show MINUTES without the idle ones at the beginning, but at least this many."""
FIGURES_MINUTES = 5
"""Minutes that the figures at the top cover."""
MOST_FAILURES = 8
MOST_SLOTS = 12
MOST_QUEUES = 20
_SHOWN_STATES = (
    State.RUNNING,
    State.QUEUED,
    State.PENDING,
    State.WAITING,
    State.PAUSED,
    State.FAILED,
    State.TIMED_OUT,
)


@frozen
class QueueLine:
    """One task in one queue."""

    queue: str
    task: str
    counts: dict[str, int]
    workers: int
    paused: PauseRecord | None
    oldest: float | None
    """Age of the oldest ready job of the queue, in seconds."""


def read(page_request: PageRequest) -> dict[str, Any]:
    operations, caller = page_request.operations, page_request.caller
    now = operations.now()
    metrics = operations.metrics()
    rollups = caller.visible_rows(operations.rollups(MINUTES))
    minutes = minutes_of(rollups, now, MINUTES)
    drawn = since_the_first_attempt(minutes, LEAST_MINUTES)
    lately = [
        one
        for one in rollups
        if one.minute is not None and (now - one.minute).total_seconds() < FIGURES_MINUTES * 60
    ]
    ready = {age.queue: age.seconds for age in caller.visible_rows(metrics.ready)}
    lines = [_line(row, ready) for row in caller.visible_rows(operations.list_queues(metrics.jobs))]
    counts = _sum(caller.visible_rows(metrics.jobs))
    return {
        "now": now,
        "counts": counts,
        "oldest": max(ready.values(), default=None),
        "oldest_queue": max(ready, key=lambda queue: ready[queue], default=None),
        "metrics": metrics,
        "all_queues": not caller.access.queues,
        "times": times_of(lately),
        "per_minute": sum(one.attempts for one in lately if one.outcome == "succeeded") / FIGURES_MINUTES,
        "lately": FIGURES_MINUTES,
        "minutes": minutes,
        "attempts_chart": attempts_chart(drawn),
        "times_chart": times_chart(drawn),
        "lines": sorted(lines, key=_busy)[:MOST_QUEUES],
        "more_lines": max(0, len(lines) - MOST_QUEUES),
        "shown": [state.value for state in _SHOWN_STATES],
        "slots": metrics.slots[:MOST_SLOTS] if not caller.access.queues else [],
        "failures": _failures(page_request),
        "most_failures": MOST_FAILURES,
        "cap": COUNT_CAP,
    }


def _sum(counts: Iterable[Any]) -> dict[str, int]:
    found = {state.value: 0 for state in State}
    for one in counts:
        found[one.state.value] = min(COUNT_CAP, found[one.state.value] + one.jobs)
    return found


def _line(row: QueueRow, ready: dict[str, float]) -> QueueLine:
    counts = {state.value: row.counts.get(state, 0) for state in _SHOWN_STATES}
    paused = row.queue_pause or row.task_pause
    return QueueLine(row.queue, row.task, counts, row.workers, paused, ready.get(row.queue))


def _busy(line: QueueLine) -> tuple[int, str, str]:
    """The sort key: lines with jobs come first."""
    return (0 if any(line.counts.values()) else 1, line.queue, line.task)


def _failures(page_request: PageRequest) -> Failures:
    queues = page_request.caller.access.queues
    if not queues:
        return page_request.operations.list_failures(1000)
    if len(queues) == 1 and not set("*?") & set(queues[0]):
        return page_request.operations.list_failures(1000, Filter(queue=queues[0]))
    return Failures([], 0, False)


PAGE = DashboardPage("", "overview", "overview.html", read)
