"""What one run has told and the database has not yet taken; and how it gets there."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from leasehold.domain.job import Grant
from leasehold.domain.stream import LOG, LOG_CAP, PROGRESS, Note, RunNotes

WRITE_EVERY = 0.25
PROGRESS_EVERY = 0.5
"""Progress alone is not worth more commits than two a second."""
LARGE = 500
"""Notes of a run that are written at once, and that one transaction takes."""
MOST_EVENTS = 10_000
MOST_SIZE = 16 * 1024 * 1024
"""What one run may have waiting, as events and as characters of their data."""
NEVER = float("-inf")


class RunStream:
    """What one run has told and the database has not yet taken. The writer's lock guards it."""

    __slots__ = (
        "_first_at",
        "_log_size",
        "_not_before",
        "_progress_at",
        "_sent",
        "_size",
        "closed",
        "events",
        "grant",
        "notes",
        "place",
        "taken",
    )

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.notes: list[Note] = []
        self.place = 0
        self.taken = 0
        """The place up to which the database has taken everything."""
        self.events = 0
        self.closed = False
        self._size = 0
        self._log_size = 0
        """Characters of log that are not on their way to the database yet."""
        self._sent = 0
        """The last place that is, or was, on its way."""
        self._first_at = NEVER
        self._progress_at = NEVER
        self._not_before = NEVER

    @property
    def full(self) -> bool:
        return self.events >= MOST_EVENTS or self._size >= MOST_SIZE

    @property
    def due_at(self) -> float:
        """When it shall be written. Progress may make the rest wait, so that the order is kept."""
        if len(self.notes) >= LARGE:
            return self._not_before
        due = self._first_at + WRITE_EVERY
        if any(note.kind == PROGRESS for note in self.notes):
            due = max(due, self._progress_at + PROGRESS_EVERY)
        return max(due, self._not_before)

    def add(self, kind: str, data: str | None, key: str | None, text: str) -> None:
        self.place += 1
        note = Note(self.place, kind, data, key, text)
        if not self.notes:
            self._first_at = time.monotonic()
        if kind == PROGRESS:
            self._forget_progress()
        self.notes.append(note)
        self._count(note, 1)
        if kind == LOG:
            self._log_size += len(text)
            while self._log_size > LOG_CAP:
                self._cut_log()

    def take(self, upto: int, most: int) -> RunNotes:
        notes = tuple(note for note in self.notes[:most] if note.place <= upto)
        for note in notes:
            if note.kind == LOG and note.place > self._sent:
                self._log_size -= len(note.text)
        self._sent = max(self._sent, notes[-1].place if notes else 0)
        return RunNotes(self.grant.id, self.grant.token, self.grant.attempt, notes)

    def wrote(self, run: RunNotes) -> None:
        """The database has these. Progress that was written may have been replaced in the list meanwhile."""
        now, upto = time.monotonic(), run.notes[-1].place
        if any(note.kind == PROGRESS for note in run.notes):
            self._progress_at = now
        for note in self.notes:
            if note.place <= upto:
                self._count(note, -1)
        self.notes = [note for note in self.notes if note.place > upto]
        self.taken = max(self.taken, upto)
        self._first_at = now

    def put_off(self) -> None:
        """The database could not take it now; whoever asks at once again would ask in vain."""
        self._not_before = time.monotonic() + WRITE_EVERY

    def close(self) -> None:
        """What comes now is for nobody: the job has ended, or is another's."""
        self.closed = True
        self.notes = []

    def _count(self, note: Note, sign: int) -> None:
        if note.kind not in (LOG, PROGRESS):
            self.events += sign
            self._size += sign * len(note.data or "")

    def _forget_progress(self) -> None:
        """Only the newest counts. The one before is near the end of the list, if it is there."""
        for index in range(len(self.notes) - 1, -1, -1):
            if self.notes[index].kind == PROGRESS:
                del self.notes[index]
                return

    def _cut_log(self) -> None:
        """The oldest lines go, and the next ones know how much stood before them. What is on its way to the database
        is cut there: cut here too, it would be counted twice."""
        first, *rest = (
            index for index, note in enumerate(self.notes) if note.kind == LOG and note.place > self._sent
        )
        oldest = self.notes[first]
        if rest:
            heir, gone = self.notes[rest[0]], len(oldest.text)
            self.notes[rest[0]] = replace(heir, cut=heir.cut + oldest.cut + gone)
            del self.notes[first]
        else:
            gone = len(oldest.text) - LOG_CAP
            self.notes[first] = replace(oldest, text=oldest.text[gone:], cut=oldest.cut + gone)
        self._log_size -= gone


class Teller(Protocol):
    """A run, as the writer sees it."""

    grant: Grant
    stream: RunStream | None


class StreamWriter(Protocol):
    """Takes what the runs of a worker tell to the database, in batches."""

    def stream_of(self, run: Teller) -> RunStream:
        """One per run, whichever of its threads speaks first: two would count the same places."""
        ...

    def put(
        self, stream: RunStream, kind: str, data: str | None = None, key: str | None = None, text: str = ""
    ) -> bool:
        """From any thread. False: too much waits already."""
        ...

    def wait_for_room(self, stream: RunStream, seconds: float) -> None: ...

    def wait_until_taken(self, stream: RunStream, upto: int, seconds: float) -> bool:
        """Raises LeaseLost when it never will be."""
        ...

    def write(self, streams: Iterable[RunStream]) -> set[RunStream]:
        """Write what these runs have told until now. Those of whom something is left: somebody has their rows locked.
        Raises StoreError: nothing is lost, it is tried again."""
        ...
