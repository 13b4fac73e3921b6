"""Looking again and again for something that nobody announces: often at first, then less and less often."""

from __future__ import annotations

import time

GROWTH = 1.5


class Poll:
    """The pauses between looks, from `soonest` to `latest` seconds, until `timeout` seconds are over."""

    def __init__(self, soonest: float, latest: float, timeout: float | None = None) -> None:
        self._soonest = soonest
        self._latest = latest
        self._pause = soonest
        self._deadline = None if timeout is None else time.monotonic() + timeout

    def again(self) -> None:
        """Something has happened: look often again."""
        self._pause = self._soonest

    def pause(self) -> float | None:
        """Seconds to wait before the next look, never past the end; None: the time is over."""
        pause, self._pause = self._pause, min(self._pause * GROWTH, self._latest)
        if self._deadline is None:
            return pause
        left = self._deadline - time.monotonic()
        return min(pause, left) if left > 0 else None
