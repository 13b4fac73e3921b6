"""Now: running, waiting and failed jobs, with charts of the last hour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from leasehold.domain.failures import Failures
from leasehold.domain.frozen import frozen
from leasehold.domain.records import COUNT_CAP, Filter, PauseRecord, QueueRow
from leasehold.domain.states import State
from leasehold.surfaces.dashboard.charts import (
    minutes_of,
    runs_chart,
    since_the_first_run,
    times_chart,
    times_of,
)
from leasehold.surfaces.dashboard.page import Page
from leasehold.surfaces.dashboard.page_request import PageRequest

MINUTES = 60
LEAST_MINUTES = 15
"""The least minutes that the charts show; without idle minutes at the beginning they show an hour at most."""
LATELY = 5
"""Minutes that the figures at the top cover."""
MOST_FAILURES = 8
MOST_SLOTS = 12
MOST_QUEUES = 20
_SHOWN = (
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
    drawn = since_the_first_run(minutes, LEAST_MINUTES)
    lately = [
        one for one in rollups if one.minute is not None and (now - one.minute).total_seconds() < LATELY * 60
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
        "per_minute": sum(one.runs for one in lately if one.outcome == "succeeded") / LATELY,
        "lately": LATELY,
        "minutes": minutes,
        "runs_chart": runs_chart(drawn),
        "times_chart": times_chart(drawn),
        "lines": sorted(lines, key=_busy)[:MOST_QUEUES],
        "more_lines": max(0, len(lines) - MOST_QUEUES),
        "shown": [state.value for state in _SHOWN],
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
    counts = {state.value: row.counts.get(state, 0) for state in _SHOWN}
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


PAGE = Page("", "now", "now.html", read)
