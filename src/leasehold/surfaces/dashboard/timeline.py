"""The timeline of a job: a bar for each holder of its lease, gaps, hand-overs, steps. Positions in per cent. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from leasehold.domain.frozen import frozen
from leasehold.domain.records import AttemptRecord, HistoryEntry, StepRecord
from leasehold.domain.stream import Update
from leasehold.surfaces.dashboard.render import span

ROW, TOP = 34, 22
"""Pixels: the height of a bar with its label, and of the scale above the bars."""
MOST_BARS = 40
MOST_TICKS = 200
_LONG_WAIT = 3
"""If a job waited more than this many times as long as it ran, the timeline begins shortly before its first attempt."""

_LOOK_OF_OUTCOME = {
    "running": "running",
    "succeeded": "succeeded",
    "failed": "failed",
    "timed_out": "timed_out",
    "breached": "failed",
    "lost": "stopping",
    "crashed": "stopping",
    "asked": "waiting",
    "snoozed": "scheduled",
    "stopped": "paused",
    "cancelled": "cancelled",
}
_UNCLEAN = ("lost", "crashed")


@frozen
class Tick:
    at: float
    title: str


@frozen
class Bar:
    y: int
    start: float
    width: float
    look: str
    label: str
    title: str
    right: bool
    """Whether the label is aligned with the end of the bar: at its start there is no room."""
    steps: tuple[Tick, ...]


@frozen
class Gap:
    """A time without a holder of the lease."""

    y: int
    start: float
    width: float
    title: str


@frozen
class Handover:
    """The moment when an attempt continued under another holder."""

    at: float
    y: int
    title: str


@frozen
class Timeline:
    height: int
    bars: tuple[Bar, ...]
    gaps: tuple[Gap, ...]
    handovers: tuple[Handover, ...]
    marks: tuple[Tick, ...]
    """Transitions and updates, on the line below the bars."""
    scale: tuple[Tick, ...]
    left_out: int
    """The number of older attempts that are not drawn."""
    waited: str
    """The time before the first attempt, if it is not drawn."""


def timeline(
    created_at: datetime,
    until: datetime,
    attempts: Sequence[AttemptRecord],
    steps: Sequence[StepRecord] = (),
    history: Sequence[HistoryEntry] = (),
    updates: Sequence[Update] = (),
) -> Timeline | None:
    """The timeline of a job. None: the job has no attempt yet."""
    shown = list(attempts)[-MOST_BARS:]
    if not shown:
        return None
    first = shown[0].started_at
    end = max([until, *(one.ended_at or until for one in shown)])
    ran = max((end - first).total_seconds(), 0.001)
    start, waited = created_at, ""
    if (first - created_at).total_seconds() > _LONG_WAIT * ran or len(shown) < len(attempts):
        start = first - timedelta(seconds=ran * 0.04)
        waited = span((first - created_at).total_seconds())
    scale = _Scale(min(start, first), end)
    bars = [_bar(scale, place, one, steps, until) for place, one in enumerate(shown)]
    return Timeline(
        height=TOP + ROW * len(bars) + 18,
        bars=tuple(bars),
        gaps=tuple(_gaps(scale, shown)),
        handovers=tuple(_handovers(scale, shown)),
        marks=_marks(scale, created_at, history, updates),
        scale=scale.ticks(created_at),
        left_out=len(attempts) - len(shown),
        waited=waited,
    )


def _marks(
    scale: _Scale, created_at: datetime, history: Sequence[HistoryEntry], updates: Sequence[Update]
) -> tuple[Tick, ...]:
    found = [(one.at, one.event.replace("_", " ")) for one in history]
    found += [(one.at, f"update {one.kind}") for one in updates if one.at is not None]
    return tuple(
        Tick(scale.at(at), f"{what}, {span((at - created_at).total_seconds())} after it was enqueued")
        for at, what in sorted(found)[-MOST_TICKS:]
        if at >= scale.start
    )


class _Scale:
    def __init__(self, start: datetime, end: datetime) -> None:
        self.start = start
        self._length = max((end - start).total_seconds(), 0.001)

    def at(self, then: datetime) -> float:
        return round(min(100.0, max(0.0, (then - self.start).total_seconds() / self._length * 100)), 3)

    def ticks(self, zero: datetime) -> tuple[Tick, ...]:
        """Ticks at the quarters, labelled with the time since the job was enqueued."""
        before = (self.start - zero).total_seconds()
        return tuple(Tick(25.0 * n, span(before + self._length * n / 4)) for n in range(5))


def _bar(scale: _Scale, place: int, one: AttemptRecord, steps: Sequence[StepRecord], until: datetime) -> Bar:
    end = one.ended_at or until
    start, stop = scale.at(one.started_at), scale.at(end)
    took = span(max((end - one.started_at).total_seconds(), 0.0))
    label = f"{one.attempt} · {one.outcome.replace('_', ' ')} · {took} · {one.worker or 'no worker'}"
    within = [
        Tick(scale.at(step.saved_at), f"step {step.name}")
        for step in steps
        if step.attempt == one.attempt and one.started_at <= step.saved_at <= end
    ]
    return Bar(
        y=TOP + ROW * place,
        start=start,
        width=max(stop - start, 0.25),
        look=_LOOK_OF_OUTCOME.get(one.outcome, "queued"),
        label=label,
        title=f"Attempt {one.attempt}, {one.outcome}, {took}, lease held by {one.worker or 'no worker'}",
        right=start > 55,
        steps=tuple(within[:MOST_TICKS]),
    )


def _gaps(scale: _Scale, shown: Sequence[AttemptRecord]) -> list[Gap]:
    found = []
    for place, (one, other) in enumerate(pairwise(shown)):
        if one.ended_at is None or one.attempt == other.attempt or one.outcome not in _UNCLEAN:
            continue
        start, stop = scale.at(one.ended_at), scale.at(other.started_at)
        long = span(max((other.started_at - one.ended_at).total_seconds(), 0.0))
        found.append(
            Gap(
                TOP + ROW * place,
                start,
                max(stop - start, 0.2),
                f"no lease for {long} after attempt {one.attempt} was {one.outcome}",
            )
        )
    return found


def _handovers(scale: _Scale, shown: Sequence[AttemptRecord]) -> list[Handover]:
    return [
        Handover(
            scale.at(other.started_at),
            TOP + ROW * place,
            f"attempt {other.attempt} continues: {one.worker or 'no worker'} → {other.worker or 'no worker'}",
        )
        for place, (one, other) in enumerate(pairwise(shown))
        if one.attempt == other.attempt
    ]
