"""What a run tells while it runs, and what a watcher gets to see of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from leasehold.domain.frozen import frozen
from leasehold.domain.states import State

PROGRESS = "progress"
"""How far the job is. Only the newest is kept."""
STALLED = "stalled"
"""Nothing was heard of the job for its `stall_after`."""
STATE = "state"
"""Made by the watcher from what it sees; never stored."""
LOG = "log"
"""Goes to the log tail, not to the events."""
RESERVED = frozenset({PROGRESS, STALLED, STATE, LOG})

LOG_CAP = 65_536
"""Characters of log that are kept of an attempt."""


@frozen
class Event:
    """One thing that happened to a job, as a watcher sees it. `watch(since=event.seq)` continues after it.

    A change of state (`kind` "state", `data` {"state": …, "attempt": …}) is seen, not stored: it carries the `seq` of
    the last stored event before it, and no `at`."""

    seq: int
    kind: str
    data: Any
    key: str | None = None
    attempt: int = 0
    at: datetime | None = None
    """When it was stored, by the database's clock."""


@frozen
class Progress:
    """How far a job says it is."""

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
    """Characters that stood before it and were dropped."""

    def __str__(self) -> str:
        head = f"({self.cut:,} characters before this are cut)\n" if self.cut else ""
        return head + self.text


@dataclass(frozen=True, slots=True, eq=False)
class Note:
    """One thing a run tells. `place` counts up within the run, so that a note sent twice is written once."""

    place: int
    kind: str
    data: str | None = None
    """Encoded JSON. Of log lines: how far their source was read, for whoever reads on."""
    key: str | None = None
    text: str = ""
    """Lines of log, or what the history shall say."""
    cut: int = 0
    """Characters of log before `text` that were dropped."""


@frozen
class RunNotes:
    """What the holder of a lease has to tell, in order."""

    id: str
    token: int
    attempt: int
    notes: tuple[Note, ...]


@frozen
class Seen:
    """One look at a job: where it stands, and the events stored before that, behind a sequence number."""

    state: State
    attempt: int
    events: list[Event]
