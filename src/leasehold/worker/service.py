"""The background loop of a role: a role supplies one beat; start, stop, back-off and error handling are shared."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Protocol

from leasehold.domain.errors import StoreError

logger = logging.getLogger("leasehold.worker")

SLOWEST = 30.0
ENDS_WITHIN = 5.0
"""Seconds that a stop waits for the beat under way."""


class Role(Protocol):
    """Something that runs beside the event loop as long as the worker lives."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Service:
    """Calls `beat` in its own thread until it is stopped. `beat` returns the seconds until the next call."""

    def __init__(
        self, name: str, beat: Callable[[], float], *, first: float = 0.0, slowest: float = SLOWEST
    ) -> None:
        self._role = name
        self._one_beat = beat
        self._first = first
        self._slowest = slowest
        """Most seconds between two tries while the database fails."""
        self._nudge = threading.Event()
        self._stopping = False
        self._troubles = 0
        self._thread = threading.Thread(target=self._run, name=f"leasehold-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def nudge(self) -> None:
        """Beat now."""
        self._nudge.set()

    def stop(self) -> None:
        self._stopping = True
        self._nudge.set()
        self._thread.join(ENDS_WITHIN)

    def _run(self) -> None:
        self._nudge.wait(self._first)
        while True:
            # Clear it before the beat: a stop or a nudge that comes later ends the wait below.
            self._nudge.clear()
            if self._stopping:
                return
            self._nudge.wait(self._beat_safely())

    def _beat_safely(self) -> float:
        """Wait out database trouble, and log it once; log a bug every time. Neither ends the loop."""
        try:
            pause = self._one_beat()
        except StoreError as error:
            self._troubles += 1
            if self._troubles == 1:
                logger.warning("%s: %s; trying again", self._role, error)
            return min(self._slowest, 0.2 * 2.0 ** min(self._troubles, 10)) * random.uniform(0.5, 1.0)
        except Exception:
            logger.exception("%s: unexpected error; continuing", self._role)
            return 5.0
        if self._troubles:
            logger.info("%s: the database is back", self._role)
            self._troubles = 0
        return pause
