"""Charts and figures from the counts of each minute. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from leasehold.domain.frozen import frozen
from leasehold.domain.metrics import BOUNDS, Histogram, Rollup

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
    run: float | None


@frozen
class Times:
    """Waiting and running times over several minutes."""

    runs: int
    wait_median: float | None
    wait_p95: float | None
    run_median: float | None
    run_p95: float | None


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


def times_of(rollups: Iterable[Rollup]) -> Times:
    wait, run, runs = Histogram(), Histogram(), 0
    for one in rollups:
        wait, run, runs = wait + one.wait, run + one.run, runs + one.runs
    return Times(runs, quantile(wait, 0.5), quantile(wait, 0.95), quantile(run, 0.5), quantile(run, 0.95))


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


def since_the_first_run(minutes: Sequence[Minute], least: int) -> Sequence[Minute]:
    """The minutes without the idle ones at the beginning: a new system should not show an empty hour."""
    idle = next(
        (n for n, one in enumerate(minutes) if one.succeeded + one.failed + one.retried), len(minutes)
    )
    return minutes[max(0, min(idle - 1, len(minutes) - least)) :]


def _minute(at: datetime, found: Sequence[Rollup]) -> Minute:
    times = times_of(found)

    def count(outcomes: Sequence[str]) -> int:
        return sum(one.runs for one in found if one.outcome in outcomes)

    return Minute(
        at, count(("succeeded",)), count(_ENDED_BADLY), count(_GOES_ON), times.wait_p95, times.run_p95
    )


def runs_chart(minutes: Sequence[Minute]) -> str:
    """The chart of outcomes, as JSON for dashboard.js."""
    return _chart(
        "runs",
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
            ("run", "blue", False, [one.run for one in minutes]),
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
