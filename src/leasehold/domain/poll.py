"""Polling with growing intervals."""

from __future__ import annotations

from collections.abc import Callable

GROWTH = 1.5


class Poll:
    """The pauses between polls, from `soonest` to `latest` seconds, until `timeout` seconds have passed by `clock`."""

    def __init__(
        self, soonest: float, latest: float, clock: Callable[[], float], timeout: float | None = None
    ) -> None:
        self._soonest = soonest
        self._latest = latest
        self._clock = clock
        self._pause = soonest
        self._deadline = None if timeout is None else clock() + timeout

    def again(self) -> None:
        """Poll often again, because something has changed."""
        self._pause = self._soonest

    def pause(self, wanted: float | None = None) -> float | None:
        """Seconds to wait before the next poll, never past the end; None: the time is over. `wanted`: the
        pause that the other side requested."""
        if wanted is None:
            pause, self._pause = self._pause, min(self._pause * GROWTH, self._latest)
        else:
            pause = min(wanted, self._latest)
        if self._deadline is None:
            return pause
        left = self._deadline - self._clock()
        return min(pause, left) if left > 0 else None
