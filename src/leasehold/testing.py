"""Support for tests: a clock to advance."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """Stands still until it is advanced. A store that is opened with it takes its now from here, on every database."""

    def __init__(self, start: datetime = START) -> None:
        self.reset(start)

    def reset(self, start: datetime = START) -> None:
        self._now = start
        self._monotonic = 1000.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """The wall clock alone, as when it is set or a failover brings another one."""
        self._now += timedelta(seconds=seconds)
