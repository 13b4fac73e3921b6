"""The stream of an attempt: progress, log lines and updates, and what a watcher sees of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from leasehold.domain.frozen import frozen
from leasehold.domain.states import State

PROGRESS = "progress"
"""How far the job is. Only the newest progress is kept."""
STALLED = "stalled"
"""The job gave no sign of life for its `stall_after`."""
STATE = "state"
"""A change of state. The watcher makes this update from the states it sees; it is never stored."""
LOG = "log"
"""Log lines. They go to the log tail, not to the other updates."""
RESERVED = frozenset({PROGRESS, STALLED, STATE, LOG})

LOG_CAP = 65_536
"""Most characters of log that are kept of an attempt."""


@frozen
class Update:
    """One update of a job, as a watcher sees it. `watch(since=update.seq)` continues after it.

    A change of state (`kind` "state", `data` {"state": …, "attempt": …}) is observed, not stored: it has the `seq` of
    the last stored update before it, and no `at`."""

    seq: int
    kind: str
    data: Any
    key: str | None = None
    attempt: int = 0
    at: datetime | None = None
    """When the update was stored, by the database's clock."""


@frozen
class Progress:
    """How far a job is, as its handler reported it."""

    done: float
    total: float | None
    note: str
    at: datetime

    def __str__(self) -> str:
        how_far = f"{self.done:g}" if self.total is None else f"{self.done:g} of {self.total:g}"
        return f"{how_far}: {self.note}" if self.note else how_far


@frozen
class LogTail:
    """The last lines that an attempt has logged."""

    attempt: int
    text: str
    cut: int = 0
    """Characters before `text` that were dropped."""

    def __str__(self) -> str:
        head = f"({self.cut:,} characters before this are cut)\n" if self.cut else ""
        return head + self.text


@dataclass(frozen=True, slots=True, eq=False)
class Note:
    """One report of an attempt. `number` counts up within the attempt, so that a note sent twice is written once."""

    number: int
    kind: str
    data: str | None = None
    """Encoded JSON. For log lines: how far their source was read, so that a later reader can continue."""
    key: str | None = None
    text: str = ""
    """Log lines, or the text for the history."""
    cut: int = 0
    """Characters of log before `text` that were dropped."""


@frozen
class RunNotes:
    """The notes that a lease's holder sends, in order."""

    id: str
    token: int
    attempt: int
    notes: tuple[Note, ...]


@frozen
class UpdatePage:
    """One read of a job: its state, and the updates after a sequence number, read at one moment."""

    state: State
    attempt: int
    updates: list[Update]
