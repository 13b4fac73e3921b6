"""Limits across all workers: units of a slot, starts per rate, the pause windows of rates, queues and tasks, and when
a full task may have a place for `run_now`.

A rate is stored as one instant, `next_at`: when the next job would start if jobs came evenly, one every `spacing`
seconds. It may lie ahead of now by up to `burst` jobs. So in any window of W seconds at most W / spacing + burst jobs
start.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from functools import lru_cache
from typing import Any, TypedDict

from leasehold.domain.checks.texts import checked_actor, checked_reason, storable_name
from leasehold.domain.checks.times import Duration, checked_instant, seconds
from leasehold.domain.errors import InvalidInput, RunningJob
from leasehold.domain.frozen import frozen

MOST_UNITS = 1_000_000
LONGEST_BURST = 100 * 365 * 86_400.0
"""Most seconds that a burst may stand for: both databases must be able to store the time of the next start."""
_UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PER = re.compile(r"\s*(\d+)\s*/\s*([\w.]+)\s*")


@frozen(kw_only=True)
class Slot:
    """What a task needs of a slot, and the limit that the slot gets if it has none yet:
    `slots={"browser": Slot(units=1, limit=4)}`."""

    units: int = 1
    """How many units of the slot the job holds while it runs."""
    limit: int | None = None
    """How many units the slot has, unless `app.slots.set` has set its limit before."""


@frozen
class Rate:
    """The rate key of a task, and the limit that the key gets if it has none yet:
    `rate=Rate("openai", "60/min", burst=1)`."""

    key: str
    """The name of the rate limit; all tasks with the same key share it."""
    limit: str | None = None
    """How many jobs may start in which time, such as "60/min", unless `app.rates.set` has set the limit before."""
    burst: int = 1
    """How many jobs may start at once after a quiet time."""


@frozen
class DefaultLimit:
    """A limit that the first enqueue stores if it does not exist: of a slot, or, with `spacing`, of a rate."""

    name: str
    limit: int = 0
    text: str = ""
    spacing: float | None = None
    burst: int = 1


@frozen
class Need:
    """What a job needs in order to start: units of slots, and a token of a rate."""

    slots: tuple[tuple[str, int], ...] = ()
    rate: str | None = None

    def __bool__(self) -> bool:
        return bool(self.slots) or self.rate is not None


@frozen
class SlotCount:
    name: str
    limit: int
    used: int

    @property
    def free(self) -> int:
        """Units that are free. A limit lowered below its use leaves none free, and ends no job."""
        return max(0, self.limit - self.used)


@frozen
class RateUse:
    """The state of a rate at one moment."""

    key: str
    spacing: float
    burst: int
    ahead: float
    """Seconds by which `next_at` lies ahead of that moment."""
    closed: bool = False
    closed_for: float | None = None
    """Seconds until the rate opens by itself; None: it does not, or is not closed."""

    @property
    def tokens(self) -> int:
        """How many jobs may start now."""
        if self.closed:
            return 0
        # The database stores whole microseconds, so a token due in less than one counts as due.
        return max(0, math.floor(self.burst - self.ahead / self.spacing + 1e-6 / self.spacing + 1e-9))

    def opens_in(self, units: int = 1) -> float | None:
        """Seconds until this many jobs may start; None: only when someone opens the rate."""
        if self.closed and self.closed_for is None:
            return None
        due = self.ahead - (self.burst - units) * self.spacing
        return max(0.0, due, self.closed_for or 0.0)


class Room:
    """The units and tokens that are left while a claim takes jobs."""

    def __init__(self, slots: Iterable[SlotCount], rates: Iterable[RateUse]) -> None:
        self._free = {slot.name: slot.free for slot in slots}
        self._rates = {rate.key: rate for rate in rates}
        self._taken: dict[str, int] = {}

    def fits(self, need: Need) -> int:
        """Return how many jobs with this need could start now. A slot or rate without a row admits none."""
        counts = [self._free.get(name, 0) // units for name, units in need.slots]
        if need.rate is not None:
            counts.append(self._tokens(need.rate))
        return min(counts)

    def take(self, need: Need, jobs: int) -> None:
        for name, units in need.slots:
            self._free[name] -= units * jobs
        if need.rate is not None and jobs:
            self._taken[need.rate] = self._taken.get(need.rate, 0) + jobs

    @property
    def taken(self) -> dict[str, int]:
        """Tokens taken so far, by rate."""
        return self._taken

    def opens_in(self, need: Need) -> float | None:
        """Seconds until the rate lets the next job with this need start. None: the rate does not block it,
        only a person can open the rate, or a slot is full as well."""
        rate = self._rates.get(need.rate or "")
        if rate is None or self._tokens(rate.key) > 0:
            return None
        if any(self._free.get(name, 0) < units for name, units in need.slots):
            return None
        return rate.opens_in(self._taken.get(rate.key, 0) + 1)

    def _tokens(self, key: str) -> int:
        rate = self._rates.get(key)
        return 0 if rate is None else rate.tokens - self._taken.get(key, 0)


@lru_cache(maxsize=4096)
def slots_text(slots: tuple[tuple[str, int], ...]) -> str | None:
    """Encode slots for the gate's row: the same need always gives the same text."""
    return json.dumps(dict(sorted(slots)), ensure_ascii=False) if slots else None


def read_need(slots: str | None, rate: str | None) -> Need:
    """Decode the need from the gate's row."""
    return Need(tuple(sorted(json.loads(slots).items())) if slots else (), rate)


def parse_rate(limit: object, field: str = "limit") -> tuple[str, float]:
    """Return the text without blanks, and the seconds between two jobs: "60/min" is ("60/min", 1.0)."""
    found = _PER.fullmatch(limit) if isinstance(limit, str) else None
    remedy = 'write "60/min", "5/s", "100/h", "1000/d" or "3/10s"'
    if found is None:
        raise InvalidInput(field, f"{limit!r} is not a rate", remedy)
    number, per = int(found[1]), found[2].lower()
    try:
        length = _UNITS.get(per) or seconds(per, field, positive=True)
    except InvalidInput:
        raise InvalidInput(field, f"{limit!r} is not a rate", remedy) from None
    if number < 1:
        raise InvalidInput(field, f"{limit!r} lets nothing start", f"{remedy}; close the key to stop it")
    spacing = length / number
    if spacing < 1e-6:
        raise InvalidInput(field, f"{limit!r} is more than a million a second", remedy)
    return f"{number}/{per}", spacing


def checked_limit_name(name: object, field: str) -> str:
    return storable_name(name, field)


def checked_number(number: object, field: str, least: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= MOST_UNITS:
        raise InvalidInput(field, f"{number!r} is out of range", f"give {least} to {MOST_UNITS:,}")
    return number


def checked_burst(burst: object, field: str, spacing: float) -> int:
    number = checked_number(burst, field, 1)
    if number * spacing > LONGEST_BURST:
        raise InvalidInput(field, f"{number:,} starts take over a hundred years at this rate", "give less")
    return number


def checked_slots(
    slots: Mapping[str, Any] | None,
) -> tuple[tuple[tuple[str, int], ...], tuple[DefaultLimit, ...]]:
    """Parse a task's `slots=`: its needs by name, and its default limits."""
    if not slots:
        return (), ()
    if not isinstance(slots, Mapping):
        raise InvalidInput("slots", f"{slots!r} is not a mapping", 'write slots={"browser": 1}')
    needs, defaults = [], []
    for name, wanted in sorted(slots.items()):
        field = f"slots.{checked_limit_name(name, 'slots')}"
        slot = wanted if isinstance(wanted, Slot) else Slot(units=wanted)
        needs.append((name, checked_number(slot.units, field, 1)))
        if slot.limit is not None:
            defaults.append(DefaultLimit(name, checked_number(slot.limit, f"{field}.limit", 0)))
    return tuple(needs), tuple(defaults)


def rate_template(rate: object) -> str | None:
    """Return the key of a task's `rate=`; it may contain arguments."""
    if isinstance(rate, str) and _PER.fullmatch(rate):
        remedy = f'write rate=Rate("openai", "{rate.strip()}"), with a key that all who share the limit use'
        raise InvalidInput("rate", f"{rate!r} is a limit, and its key is missing", remedy)
    key = rate.key if isinstance(rate, Rate) else rate
    return None if key is None else checked_limit_name(key, "rate")


def brought_rate(name: str, rate: object, burst: object) -> DefaultLimit | None:
    """Return the default limit given in a call of `ctx.acquire`."""
    if rate is None:
        if burst is not None:
            raise InvalidInput("burst", "comes without a rate", 'give both: rate="60/min", burst=5')
        return None
    text, spacing = parse_rate(rate, "rate")
    burst = 1 if burst is None else checked_burst(burst, "burst", spacing)
    return DefaultLimit(name, text=text, spacing=spacing, burst=burst)


def default_rate(rate: object) -> tuple[str, float, int] | None:
    """Return the default limit of a task's `rate=`: its text, the seconds between two jobs, its burst."""
    if not isinstance(rate, Rate) or rate.limit is None:
        return None
    text, spacing = parse_rate(rate.limit, "rate.limit")
    return text, spacing, checked_burst(rate.burst, "rate.burst", spacing)


# -- pause windows -----------------------------------------------------------------------------------------------------


class PauseOptions(TypedDict, total=False):
    """The keywords of `app.queues.pause`, `app.tasks.pause` and `app.rates.close`."""

    for_: Duration | None
    until: datetime | None
    reason: str | None
    actor: str | None


class PauseArguments(TypedDict):
    for_: float | None
    until: datetime | None
    reason: str | None
    actor: str | None


@frozen(kw_only=True)
class PauseWindow:
    """A pause with a length, with an end, or with neither: then it lasts until someone ends it."""

    for_: Duration | None = None
    until: datetime | None = None
    reason: str | None = None
    """Shown by `why` and in lists."""
    actor: str | None = None
    length: float | None = field(init=False)
    """`for_` in seconds."""

    def __post_init__(self) -> None:
        if self.for_ is not None and self.until is not None:
            raise InvalidInput("until", "cannot be given together with for_", "give one of them")
        if self.until is not None:
            checked_instant(self.until, "until")
        checked_reason(self.reason)
        checked_actor(self.actor)
        length = None if self.for_ is None else seconds(self.for_, "for_", positive=True)
        object.__setattr__(self, "length", length)

    @property
    def arguments(self) -> PauseArguments:
        """The keywords that the verbs take."""
        return {"for_": self.length, "until": self.until, "reason": self.reason, "actor": self.actor}


# -- run_now -----------------------------------------------------------------------------------------------------------

SHORTEST_HINT = 1.0
LONGEST_HINT = 60.0


def retry_hint(holders: Sequence[RunningJob], now: datetime) -> float:
    """Estimate the seconds until a place is free. Attempts observed at a random moment have on average done half of
    their time, so the first of n ends after twice their mean age divided by n + 1. If a worker is dead, its place is
    free when its lease runs out, so the estimate is capped at that time."""
    ages = [(now - one.started_at).total_seconds() for one in holders if one.started_at is not None]
    guess = 2.0 * sum(ages) / len(ages) / (len(ages) + 1) if ages else LONGEST_HINT
    ends = [(one.lease_expires_at - now).total_seconds() for one in holders if one.lease_expires_at]
    return round(max(SHORTEST_HINT, min([guess, LONGEST_HINT, *ends])), 1)
