"""Metrics: outcomes of attempts and histograms with fixed bounds and a bounded number of labels."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Literal

from leasehold.domain.frozen import frozen
from leasehold.domain.outcome import (
    AttemptTimedOut,
    Breached,
    Crashed,
    DeadlinePassed,
    Detached,
    Expired,
    Failure,
    HandedBack,
    Lost,
    Outcome,
    Snoozed,
    Stopped,
    Success,
)
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.records import QueueCount
from leasehold.domain.states import State

BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
"""Upper bounds of the buckets of every histogram, in seconds. One more bucket holds everything beyond the last. Rows
store buckets by position: a change of the bounds has to convert the rows."""
MOST_PAIRS = 200
"""Most pairs of queue and task that get their own labels."""
SPARE = 50
"""How many of these pairs are reserved for queues whose further tasks share one label; the last is for all others."""
OTHER = "other"
KEPT_MINUTES = 48 * 60
"""For how many minutes rows by minute are kept."""

OutcomeLabel = Literal[
    "succeeded",
    "failed",
    "timed_out",
    "cancelled",
    "paused",
    "waiting",
    "retried",
    "crashed",
    "lost",
    "snoozed",
    "handed_back",
    "detached",
]
"""What one attempt led to. The first six are states that the job reached; after the others the job goes on."""

_ENDS: dict[State, OutcomeLabel] = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.TIMED_OUT: "timed_out",
    State.CANCELLED: "cancelled",
    State.PAUSED: "paused",
    State.WAITING: "waiting",
}
_GOES_ON: dict[type[Outcome], OutcomeLabel] = {
    Failure: "retried",
    AttemptTimedOut: "retried",
    Crashed: "crashed",
    Lost: "lost",
    Snoozed: "snoozed",
    Stopped: "handed_back",
    HandedBack: "handed_back",
    Detached: "detached",
    # After a lost reply the state is unknown; for these outcomes it is usually the one given here.
    Success: "succeeded",
    QuestionAsked: "waiting",
    DeadlinePassed: "timed_out",
    Expired: "timed_out",
    Breached: "failed",
}


def outcome_label(outcome: type[Outcome], state: State | None) -> OutcomeLabel:
    """Map the attempt's end and the job's state to a label. No state: an earlier try was stored, its reply lost."""
    return (_ENDS.get(state) if state is not None else None) or _GOES_ON[outcome]


class Labels:
    """Decides which pairs of queue and task get their own labels: first come, first served. A worker that invents names
    of queues or tasks must not create endless series."""

    def __init__(self, known: Iterable[tuple[str, str]] = ()) -> None:
        self.known = set(known)

    def of(self, queue: str, task: str) -> tuple[str, str]:
        for pair, room in (((queue, task), MOST_PAIRS - SPARE), ((queue, OTHER), MOST_PAIRS - 1)):
            if pair in self.known:
                return pair
            if len(self.known) < room:
                self.known.add(pair)
                return pair
        self.known.add((OTHER, OTHER))
        return OTHER, OTHER


@frozen
class Histogram:
    """Counts of durations, by buckets with fixed bounds."""

    buckets: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    """How many values fell into each bucket; not cumulative."""
    seconds: float = 0.0
    """The sum of all values."""

    @property
    def count(self) -> int:
        """How many values there are."""
        return sum(self.buckets)

    def __add__(self, other: Histogram) -> Histogram:
        added = tuple(a + b for a, b in zip(self.buckets, other.buckets, strict=True))
        return Histogram(added, self.seconds + other.seconds)


@frozen
class Rollup:
    """Attempts of one task in one queue with the same outcome."""

    queue: str
    task: str
    outcome: str
    attempts: int
    wait: Histogram = Histogram()
    """Seconds from due to start. Counts attempts that started, not adopted ones."""
    duration: Histogram = Histogram()
    """Seconds from the start to the end of the handler. Counts attempts whose end was seen: not lost ones."""
    minute: datetime | None = None
    """The minute in which they were recorded, by the database's clock; None: all time."""

    def __add__(self, other: Rollup) -> Rollup:
        return replace(
            self,
            attempts=self.attempts + other.attempts,
            wait=self.wait + other.wait,
            duration=self.duration + other.duration,
        )


def bounded(rollups: Iterable[Rollup], labels: Labels) -> list[Rollup]:
    """Replace labels beyond the bound, and merge the rollups whose labels became equal."""
    found: dict[tuple[str, str, str], Rollup] = {}
    for one in rollups:
        queue, task = labels.of(one.queue, one.task)
        key = queue, task, one.outcome
        one = replace(one, queue=queue, task=task)
        found[key] = found[key] + one if key in found else one
    return list(found.values())


class Times:
    """Times of attempts with the same outcome: how long they took, and how long their jobs had waited."""

    __slots__ = ("durations", "unseen", "waits")

    def __init__(self, unseen: int = 0) -> None:
        self.waits: list[float] = []
        self.durations: list[float] = []
        self.unseen = unseen
        """Further attempts whose times are unknown."""


def histogram_of(seconds: list[float]) -> Histogram:
    """Count seconds by bucket. Sorting first lets each bound count many values at once."""
    seconds.sort()
    ends = [bisect_right(seconds, bound) for bound in BOUNDS]
    return Histogram(
        tuple(b - a for a, b in zip([0, *ends], [*ends, len(seconds)], strict=True)), sum(seconds)
    )


Whose = str | None
"""A tenant; None: the app's own store."""
_Key = tuple[Whose, str, str, str]

MOST_SINGLE_TIMES = 5000
"""Most attempts whose times are kept one by one."""


class Tally:
    """What one worker has counted since its last report. Not thread-safe."""

    def __init__(self) -> None:
        self._rollups: dict[_Key, Rollup] = {}
        self._times: dict[_Key, Times] = {}
        """Times that are not in a rollup yet: a batch may be small, and a rollup of each would take longer."""
        self._labels: dict[Whose, Labels] = {}

    def add(self, tenant: Whose, queue: str, task: str, outcome: str, times: Times) -> None:
        key = self._key(tenant, queue, task, outcome)
        before = self._times.get(key)
        if before is None:
            self._times[key] = times
            return
        before.durations += times.durations
        before.waits += times.waits
        before.unseen += times.unseen
        if len(before.durations) > MOST_SINGLE_TIMES:
            self._roll_up(key, self._times.pop(key))

    def taken(self) -> Mapping[Whose, list[Rollup]]:
        """Return the rollups by tenant. Do not call `add` afterwards."""
        while self._times:
            self._roll_up(*self._times.popitem())
        found: dict[Whose, list[Rollup]] = {}
        for (tenant, *_), rollup in self._rollups.items():
            found.setdefault(tenant, []).append(rollup)
        return found

    def put_back(self, tenant: Whose, rollups: Iterable[Rollup]) -> None:
        """Add back rollups that could not be written."""
        for one in rollups:
            self._merge(self._key(tenant, one.queue, one.task, one.outcome), one)

    def _key(self, tenant: Whose, queue: str, task: str, outcome: str) -> _Key:
        labels = self._labels.get(tenant)
        if labels is None:
            labels = self._labels[tenant] = Labels()
        return tenant, *labels.of(queue, task), outcome

    def _roll_up(self, key: _Key, times: Times) -> None:
        _, queue, task, outcome = key
        attempts = len(times.durations) + times.unseen
        wait, duration = histogram_of(times.waits), histogram_of(times.durations)
        self._merge(key, Rollup(queue, task, outcome, attempts, wait, duration))

    def _merge(self, key: _Key, one: Rollup) -> None:
        before = self._rollups.get(key)
        _, queue, task, _ = key
        self._rollups[key] = replace(one, queue=queue, task=task) if before is None else before + one


# --- read models ----------------------------------------------------------------------------------------------------


@frozen
class ReadyAge:
    """The age of the oldest job of a queue that is due and not claimed."""

    queue: str
    seconds: float


@frozen
class LeaseAge:
    """Leases of one task in one queue."""

    queue: str
    task: str
    oldest: float
    """Seconds since the oldest attempt began."""
    expires_in: float
    """Seconds until the first lease runs out. Below 0: it was not renewed, and no worker has taken the job over yet."""


@frozen
class SlotUse:
    """How many units of a slot are in use."""

    name: str
    used: int
    limit: int


@frozen
class Gauges:
    """The present values that a store reports, besides the number of its jobs."""

    ready: list[ReadyAge]
    leases: list[LeaseAge]
    slots: list[SlotUse]
    open_questions: int


@frozen
class Metrics:
    """All metrics of a store at one moment."""

    totals: list[Rollup]
    """Totals since the store was made. They only grow."""
    jobs: list[QueueCount]
    """Jobs by queue, task and state, each state counted up to 10,000. Succeeded and cancelled jobs are not counted."""
    ready: list[ReadyAge]
    leases: list[LeaseAge]
    slots: list[SlotUse]
    open_questions: int
    workers: int
    """Live workers that take jobs."""
    draining: int
    """Live workers that take no more jobs."""
    places: int
    """Jobs that the workers can run at once."""
