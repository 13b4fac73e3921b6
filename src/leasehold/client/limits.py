"""`app.slots` and `app.rates`: limits across all workers, set, read and closed at run time."""

from __future__ import annotations

from typing import Unpack

from leasehold.client.aio import aio
from leasehold.domain.pause_window import PauseOptions, PauseWindow
from leasehold.domain.records import RateRow, SlotRow
from leasehold.operations import limits
from leasehold.operations.local import Operator


class Slots:
    """Named resources with so many units each: `app.slots.set("browser", 4)`."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def set(self, name: str, limit: int, *, actor: str | None = None) -> None:
        """Let at most `limit` units be in use at once, across all workers. 0 closes the slot; running jobs go on."""
        self._operator.call(limits.set_slot, name, limit, actor=actor)

    aset = aio(set)

    def list(self) -> list[SlotRow]:
        """List every slot with its limit, the units in use, and the first 20 jobs that hold them."""
        return self._operator.call(limits.list_slots)

    alist = aio(list)


class Rates:
    """How often jobs of a key may start: `app.rates.set("openai", "60/min", burst=1)`."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def set(self, key: str, limit: str, *, burst: int = 1, actor: str | None = None) -> None:
        """Set how often jobs of a key may start: evenly spaced ("60/min" is one a second), up to `burst` at once after
        a quiet time. In any window of W seconds, never more than W times the rate, plus `burst`."""
        self._operator.call(limits.set_rate, key, limit, burst=burst, actor=actor)

    aset = aio(set)

    def close(self, key: str, **closing: Unpack[PauseOptions]) -> None:
        """Start no job of this key, on any worker, `for_` a duration, `until` an instant, or until `open`. Running jobs
        go on. `explain()` shows `reason` and `actor`."""
        self._operator.call(limits.close_rate, key, **PauseWindow(**closing).arguments)

    aclose = aio(close)

    def open(self, key: str, *, actor: str | None = None) -> bool:
        """Start jobs of this key again. False: it was not closed."""
        return self._operator.call(limits.open_rate, key, actor=actor)

    aopen = aio(open)

    def list(self) -> list[RateRow]:
        """List every key with its limit, when the next job may start, and who closed it, why and until when."""
        return self._operator.call(limits.list_rates)

    alist = aio(list)
