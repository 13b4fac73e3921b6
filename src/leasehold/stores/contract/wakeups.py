"""The waiting side of hints."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol


class Hint(enum.Flag):
    """What may have changed."""

    WORK = enum.auto()
    """There may be something to claim; for those who wait for groups, something to read."""
    STOP = enum.auto()
    """A running job may have been told to stop."""
    HOOKS = enum.auto()
    """Something may have happened that somebody listens to, or there may be other listeners."""


NOTHING, ANYTHING = Hint(0), Hint.WORK | Hint.STOP | Hint.HOOKS


class Wakeups(Protocol):
    """Hints of what may have changed. They only shorten a wait; nothing is lost with them."""

    def wait(self, seconds: float) -> Hint:
        """Block until something may have changed, at most this long. What it may be; or NOTHING."""
        ...

    def call(self, on_hint: Callable[[Hint], None]) -> bool:
        """Whether each hint will be told to this function as it comes, from the thread that brings it. `wait` then
        hears of none. False: somebody has to wait."""
        ...

    def stir(self) -> None:
        """There was work: more may follow soon."""
        ...

    @property
    def hears(self) -> bool:
        """Hints come through, from other processes too. False: only looking helps, until they do."""
        ...

    def close(self) -> None: ...
