"""What workers count and readers get: outcomes of runs, histograms with fixed bounds, a bounded number of labels."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Literal

from leasehold.domain.frozen import frozen
from leasehold.domain.outcome import (
    Asked,
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
from leasehold.domain.states import State
from leasehold.domain.views import QueueCount

BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
"""Seconds: upper bounds of the buckets of every histogram. Beyond the last there is one bucket more. They are stored by
place: who changes them has to convert the rows."""
MOST_PAIRS = 200
"""Pairs of queue and kind that are told apart."""
SPARE = 50
"""Of those, for queues whose further kinds are told as one, and the last for everything else."""
OTHER = "other"
KEPT_MINUTES = 48 * 60
"""How far back the rows by minute go."""

RunOutcome = Literal[
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
"""What became of a job with one run of it. The first six are states it came to; with the others it goes on."""

_ENDS: dict[State, RunOutcome] = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.TIMED_OUT: "timed_out",
    State.CANCELLED: "cancelled",
    State.PAUSED: "paused",
    State.WAITING: "waiting",
}
_GOES_ON: dict[type[Outcome], RunOutcome] = {
    Failure: "retried",
    AttemptTimedOut: "retried",
    Crashed: "crashed",
    Lost: "lost",
    Snoozed: "snoozed",
    Stopped: "handed_back",
    HandedBack: "handed_back",
    Detached: "detached",
    # What these lead to is a state, which is not known after a lost reply; mostly it is this one.
    Success: "succeeded",
    Asked: "waiting",
    DeadlinePassed: "timed_out",
    Expired: "timed_out",
    Breached: "failed",
}


def run_outcome(outcome: type[Outcome], state: State | None) -> RunOutcome:
    """By how the run ended and the state that the job came to; None: an earlier try had arrived, and nobody told."""
    return (_ENDS.get(state) if state is not None else None) or _GOES_ON[outcome]


class Labels:
    """Which pairs of queue and kind are told apart: first come, first served. A worker that makes up queues or kinds
    as it goes must not make up series without end."""

    def __init__(self, known: Iterable[tuple[str, str]] = ()) -> None:
        self.known = set(known)

    def of(self, queue: str, kind: str) -> tuple[str, str]:
        for pair, room in (((queue, kind), MOST_PAIRS - SPARE), ((queue, OTHER), MOST_PAIRS - 1)):
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
    """How many came into each bucket alone; not added up from the left."""
    seconds: float = 0.0
    """All of them together."""

    @property
    def count(self) -> int:
        """How many values there are."""
        return sum(self.buckets)

    def __add__(self, other: Histogram) -> Histogram:
        added = tuple(a + b for a, b in zip(self.buckets, other.buckets, strict=True))
        return Histogram(added, self.seconds + other.seconds)


@frozen
class Rollup:
    """Runs of one task in one queue that ended alike."""

    queue: str
    kind: str
    outcome: str
    runs: int
    wait: Histogram = Histogram()
    """From when a job was due until its run began. Of runs that were begun, and not of adopted ones."""
    run: Histogram = Histogram()
    """From when it began until its handler ended. Of runs whose end was seen: not of lost ones."""
    minute: datetime | None = None
    """In which they were written down, by the database's clock; None: since ever."""

    def __add__(self, other: Rollup) -> Rollup:
        return replace(
            self, runs=self.runs + other.runs, wait=self.wait + other.wait, run=self.run + other.run
        )


def bounded(rollups: Iterable[Rollup], labels: Labels) -> list[Rollup]:
    """With labels that are told apart; those that became alike are one."""
    found: dict[tuple[str, str, str], Rollup] = {}
    for one in rollups:
        queue, kind = labels.of(one.queue, one.kind)
        key = queue, kind, one.outcome
        one = replace(one, queue=queue, kind=kind)
        found[key] = found[key] + one if key in found else one
    return list(found.values())


class Times:
    """Of runs that ended alike: the seconds that they took, and that their jobs had waited."""

    __slots__ = ("runs", "unseen", "waits")

    def __init__(self, unseen: int = 0) -> None:
        self.waits: list[float] = []
        self.runs: list[float] = []
        self.unseen = unseen
        """Runs besides, of which neither is known."""


def histogram_of(seconds: list[float]) -> Histogram:
    """They are sorted: many at once are counted by their bounds, not one by one."""
    seconds.sort()
    ends = [bisect_right(seconds, bound) for bound in BOUNDS]
    return Histogram(
        tuple(b - a for a, b in zip([0, *ends], [*ends, len(seconds)], strict=True)), sum(seconds)
    )


Whose = str | None
"""A tenant; None: the app's own."""
_Key = tuple[Whose, str, str, str]

LONG = 5000
"""Runs whose times are kept one by one."""


class Tally:
    """What one worker has counted since its last beat. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._rollups: dict[_Key, Rollup] = {}
        self._times: dict[_Key, Times] = {}
        """Not among those yet: a batch that has just ended may be small, and to make a rollup of it takes longer."""
        self._labels: dict[Whose, Labels] = {}

    def add(self, tenant: Whose, queue: str, kind: str, outcome: str, times: Times) -> None:
        key = self._key(tenant, queue, kind, outcome)
        before = self._times.get(key)
        if before is None:
            self._times[key] = times
            return
        before.runs += times.runs
        before.waits += times.waits
        before.unseen += times.unseen
        if len(before.runs) > LONG:
            self._roll_up(key, self._times.pop(key))

    def taken(self) -> Mapping[Whose, list[Rollup]]:
        """By tenant. It takes no more."""
        while self._times:
            self._roll_up(*self._times.popitem())
        found: dict[Whose, list[Rollup]] = {}
        for (tenant, *_), rollup in self._rollups.items():
            found.setdefault(tenant, []).append(rollup)
        return found

    def put_back(self, tenant: Whose, rollups: Iterable[Rollup]) -> None:
        """What could not be written."""
        for one in rollups:
            self._merge(self._key(tenant, one.queue, one.kind, one.outcome), one)

    def _key(self, tenant: Whose, queue: str, kind: str, outcome: str) -> _Key:
        labels = self._labels.get(tenant)
        if labels is None:
            labels = self._labels[tenant] = Labels()
        return tenant, *labels.of(queue, kind), outcome

    def _roll_up(self, key: _Key, times: Times) -> None:
        _, queue, kind, outcome = key
        runs = len(times.runs) + times.unseen
        wait, run = histogram_of(times.waits), histogram_of(times.runs)
        self._merge(key, Rollup(queue, kind, outcome, runs, wait, run))

    def _merge(self, key: _Key, one: Rollup) -> None:
        before = self._rollups.get(key)
        _, queue, kind, _ = key
        self._rollups[key] = replace(one, queue=queue, kind=kind) if before is None else before + one


# --- what a reader gets ---------------------------------------------------------------------------------------------


@frozen
class ReadyAge:
    """The oldest job of a queue that is due and that nobody has taken."""

    queue: str
    seconds: float


@frozen
class LeaseAge:
    """Leases of one task in one queue."""

    queue: str
    kind: str
    oldest: float
    """Seconds since the oldest run began."""
    expires_in: float
    """Seconds until the first of them runs out. Below 0: nobody has renewed it, or taken it over yet."""


@frozen
class SlotUse:
    """How much of a slot is in use."""

    name: str
    used: int
    limit: int


@frozen
class Gauges:
    """What a store tells of the moment, beside the number of its jobs."""

    ready: list[ReadyAge]
    leases: list[LeaseAge]
    slots: list[SlotUse]
    open_questions: int


@frozen
class Metrics:
    """One look at a store."""

    totals: list[Rollup]
    """Since the store was made. They only grow."""
    jobs: list[QueueCount]
    """By queue, task and state, each state counted up to 10,000. Successes and cancelled jobs are not among them."""
    ready: list[ReadyAge]
    leases: list[LeaseAge]
    slots: list[SlotUse]
    open_questions: int
    workers: int
    """That live and take jobs."""
    draining: int
    """That live and take no more."""
    places: int
    """Jobs that the workers can run at once."""
