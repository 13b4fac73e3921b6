"""The waiting side of hints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Wakeups(Protocol):
    """Hints that there may be work. They only shorten a wait; nothing is lost with them."""

    def wait(self, seconds: float) -> bool:
        """Block until something may have changed, at most this long. True: look now."""
        ...

    def call(self, on_hint: Callable[[], None]) -> bool:
        """Whether each hint will be told to this function as it comes, from the thread that brings it. `wait` then
        hears of none. False: somebody has to wait."""
        ...

    def stir(self) -> None:
        """There was work: more may follow soon."""
        ...

    @property
    def hears(self) -> bool:
        """Hints come through. False: only looking helps, until they do."""
        ...

    def close(self) -> None: ...
