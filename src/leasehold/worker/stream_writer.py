"""The event writer: what the runs of a worker tell goes to the database in batches, from a thread of its own.

A handler that tells something only appends to a list in memory. The list is written every quarter of a second, at once
when it is long, and before the job's own ending: who sees a job at rest sees all that it told. What could not be
written stays in the list, in order, and is tried again; the store knows by each note's place what it has already.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from leasehold.domain.errors import LeaseLost, StoreError
from leasehold.domain.job import Grant
from leasehold.domain.stream import LOG, LOG_CAP, PROGRESS, STALLED, Note, RunNotes
from leasehold.stores.contract import Store
from leasehold.worker.service import Service

logger = logging.getLogger("leasehold.worker")

WRITE_EVERY = 0.25
PROGRESS_EVERY = 0.5
"""Progress alone is not worth more commits than two a second."""
LARGE = 500
"""Notes of a run that are written at once, and that one transaction takes."""
MOST_EVENTS = 10_000
MOST_SIZE = 16 * 1024 * 1024
"""What one run may have waiting, as events and as characters of their data."""
IDLE = 60.0
NEVER = float("-inf")


class RunStream:
    """What one run has told and the database has not yet taken. The writer's lock guards it."""

    __slots__ = (
        "_first_at",
        "_log_size",
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

    @property
    def full(self) -> bool:
        return self.events >= MOST_EVENTS or self._size >= MOST_SIZE

    @property
    def due_at(self) -> float:
        """When it shall be written. Progress may make the rest wait, so that the order is kept."""
        if len(self.notes) >= LARGE:
            return NEVER
        due = self._first_at + WRITE_EVERY
        if any(note.kind == PROGRESS for note in self.notes):
            due = max(due, self._progress_at + PROGRESS_EVERY)
        return due

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
    """A context, as the writer sees it."""

    _grant: Grant
    _stream: RunStream | None


class EventWriter:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = threading.Condition()
        """Guards all streams; notified when the database has taken something."""
        self._writing = threading.Lock()
        """One batch at a time, so that a run's notes arrive in order."""
        self._open: dict[RunStream, None] = {}
        self._awake = False
        self._in_trouble = False
        self._service = Service("event writer", self._beat, first=IDLE, slowest=1.0)
        self.commits = 0
        """Batches that the database has taken."""

    def start(self) -> None:
        self._service.start()

    def stop(self) -> None:
        self._service.stop()
        # What abandoned handlers have told; the ended ones' went before their endings.
        if self._open:
            with contextlib.suppress(StoreError):
                self.write(list(self._open))

    # -- from the handlers -----------------------------------------------------------------------------------------
    def stream_of(self, run: Teller) -> RunStream:
        """One per run, whichever of its threads speaks first: two would count the same places."""
        with self._changed:
            if run._stream is None:
                run._stream = RunStream(run._grant)
            return run._stream

    def put(
        self, stream: RunStream, kind: str, data: str | None = None, key: str | None = None, text: str = ""
    ) -> bool:
        """From any thread. False: too much waits already."""
        with self._changed:
            if stream.closed:
                return True
            if stream.full and kind not in (PROGRESS, LOG, STALLED):
                return False
            stream.add(kind, data, key, text)
            self._open[stream] = None
            asleep, self._awake = not self._awake, True
            many = len(stream.notes) == LARGE
        # After trouble the service knows itself when to try again.
        if asleep or (many and not self._in_trouble):
            self._service.nudge()
        return True

    def wait_for_room(self, stream: RunStream, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: stream.closed or not stream.full, seconds)

    def wait_until_taken(self, stream: RunStream, upto: int, seconds: float) -> bool:
        """Raises LeaseLost when it never will be."""
        with self._changed:
            done = self._changed.wait_for(lambda: stream.closed or stream.taken >= upto, seconds)
            if stream.taken < upto and stream.closed:
                raise LeaseLost(stream.grant.id, stream.grant.token)
            return done

    # -- to the database -------------------------------------------------------------------------------------------
    def write(self, streams: Iterable[RunStream]) -> None:
        """Write what these runs have told until now. Raises StoreError: nothing is lost, it is tried again."""
        with self._writing:
            targets = [(stream, stream.place) for stream in streams]
            while batch := self._next_batch(targets):
                self._write(batch)

    def finish(self, streams: Sequence[RunStream]) -> None:
        """Before these runs are settled: everything they told, and nothing more. Raises StoreError."""
        self.write(streams)
        with self._changed:
            for stream in streams:
                stream.close()
                self._open.pop(stream, None)

    def _next_batch(self, targets: Sequence[tuple[RunStream, int]]) -> list[tuple[RunStream, RunNotes]]:
        batch: list[tuple[RunStream, RunNotes]] = []
        room = LARGE
        with self._changed:
            for stream, upto in targets:
                run = stream.take(upto, room)
                if run.notes:
                    batch.append((stream, run))
                    room -= len(run.notes)
                if room <= 0:
                    break
        return batch

    def _write(self, batch: list[tuple[RunStream, RunNotes]]) -> None:
        try:
            fenced = set(self._store.write_events([run for _, run in batch]))
        except StoreError:
            self._in_trouble = True
            raise
        except Exception as error:
            self._write_singly(batch, error)
            return
        self._in_trouble = False
        self.commits += 1
        with self._changed:
            for stream, run in batch:
                if (run.id, run.token) in fenced:
                    stream.close()
                else:
                    stream.wrote(run)
                if not stream.notes:
                    self._open.pop(stream, None)
            self._changed.notify_all()

    def _write_singly(self, batch: list[tuple[RunStream, RunNotes]], error: Exception) -> None:
        """Not the database's fault: what it refuses must not hold up the rest."""
        pieces = [
            (stream, RunNotes(run.id, run.token, run.attempt, (note,)))
            for stream, run in batch
            for note in run.notes
        ]
        if len(pieces) > 1:
            for piece in pieces:
                self._write([piece])
            return
        stream, run = pieces[0]
        logger.error("job %s: its %r event is dropped: %s", run.id, run.notes[0].kind, error)
        with self._changed:
            stream.wrote(run)
            if not stream.notes:
                self._open.pop(stream, None)
            self._changed.notify_all()

    def _beat(self) -> float:
        with self._changed:
            now = time.monotonic()
            due = [stream for stream in self._open if stream.due_at <= now]
        if due:
            self.write(due)
        with self._changed:
            if not self._open:
                self._awake = False
                return IDLE
            return max(0.01, min(stream.due_at for stream in self._open) - time.monotonic())
