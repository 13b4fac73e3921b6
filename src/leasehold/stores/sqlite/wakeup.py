"""Wake-ups on SQLite: `PRAGMA data_version` moves when anybody else commits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from leasehold.stores.database.wakeups import ANYTHING, NOTHING, Hint, listen_here
from leasehold.stores.sqlite.database import SqliteDatabase

EAGER, CALM = 0.01, 0.05
EAGER_FOR = 30.0
"""After work more work is likely; a quiet file is looked at less often. Not after every change: the workers' own
signs of life are changes too."""


class SqliteWakeups:
    def __init__(self, database: SqliteDatabase, *labels: str) -> None:
        self._kept = database.keep()
        self._listener = listen_here(*labels)
        self._version = self._data_version()
        self._stirred_at = float("-inf")
        self._closed = False
        self._waiting = threading.Lock()

    def wait(self, seconds: float) -> Hint:
        with self._waiting:
            return NOTHING if self._closed else self._wait(seconds)

    def _wait(self, seconds: float) -> Hint:
        deadline = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            pause = EAGER if now - self._stirred_at < EAGER_FOR else CALM
            received = self._listener.wait(max(0.0, min(pause, deadline - now)))
            if self._closed:
                return NOTHING
            version = self._data_version()
            if version != self._version:
                # A commit does not say what it was about.
                self._version = version
                return ANYTHING
            if received or time.monotonic() >= deadline:
                return received

    def call(self, on_hint: Callable[[Hint], None]) -> bool:
        """Commits of other processes send no hint: only polling finds them."""
        return False

    def stir(self) -> None:
        self._stirred_at = time.monotonic()

    @property
    def listens(self) -> bool:
        return True

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        with self._waiting:
            self._kept.close()

    def _data_version(self) -> tuple[int, int]:
        """Versions of two connections say nothing about each other: after a new opening there may be something."""
        version = int(self._kept.ask("PRAGMA data_version"))
        return self._kept.openings, version
