"""The state of a live attempt for all parts of its worker: its grant, its stop request, its reports."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Protocol, TypeVar

from leasehold.domain.errors import DatabaseUnreachable, InvalidInput, PoolExhausted
from leasehold.domain.job import Grant
from leasehold.domain.signals import StopRequested
from leasehold.domain.stream import LOG, LOG_CAP, PROGRESS, Note, RunNotes

# -- the buffer of what it has reported --------------------------------------------------------------------------------

WRITE_EVERY = 0.25
PROGRESS_EVERY = 0.5
"""Progress alone is not worth more than two commits a second."""
NOTES_AT_ONCE = 500
"""From this many notes on, an attempt's notes are written at once; also the most notes per transaction."""
MOST_UPDATES = 10_000
MOST_BUFFERED = 16 * 1024 * 1024
"""Most updates of one attempt that may wait, and most characters of their data."""
NEVER = float("-inf")


class RunStream:
    """What one attempt has reported and the database has not yet stored. The writer's lock guards it."""

    __slots__ = (
        "_first_at",
        "_log_size",
        "_not_before",
        "_progress_at",
        "_sent",
        "_size",
        "closed",
        "grant",
        "notes",
        "number",
        "taken",
        "updates",
    )

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.notes: list[Note] = []
        self.number = 0
        self.taken = 0
        """The number up to which the database has stored everything."""
        self.updates = 0
        self.closed = False
        self._size = 0
        self._log_size = 0
        """Characters of log that are not being sent to the database yet."""
        self._sent = 0
        """The last number that is, or was, being sent."""
        self._first_at = NEVER
        self._progress_at = NEVER
        self._not_before = NEVER

    @property
    def full(self) -> bool:
        return self.updates >= MOST_UPDATES or self._size >= MOST_BUFFERED

    @property
    def due_at(self) -> float:
        """When to write it. Progress may delay the rest, so that the order is kept."""
        if len(self.notes) >= NOTES_AT_ONCE:
            return self._not_before
        due = self._first_at + WRITE_EVERY
        if any(note.kind == PROGRESS for note in self.notes):
            due = max(due, self._progress_at + PROGRESS_EVERY)
        return max(due, self._not_before)

    def add(self, kind: str, data: str | None, key: str | None, text: str) -> None:
        self.number += 1
        note = Note(self.number, kind, data, key, text)
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
        notes = tuple(note for note in self.notes[:most] if note.number <= upto)
        for note in notes:
            if note.kind == LOG and note.number > self._sent:
                self._log_size -= len(note.text)
        self._sent = max(self._sent, notes[-1].number if notes else 0)
        return RunNotes(self.grant.id, self.grant.token, self.grant.attempt, notes)

    def wrote(self, written: RunNotes) -> None:
        """Drop the notes that the database has stored. Newer progress may have replaced stored progress in the list."""
        now, upto = time.monotonic(), written.notes[-1].number
        if any(note.kind == PROGRESS for note in written.notes):
            self._progress_at = now
        for note in self.notes:
            if note.number <= upto:
                self._count(note, -1)
        self.notes = [note for note in self.notes if note.number > upto]
        self.taken = max(self.taken, upto)
        self._first_at = now

    def put_off(self) -> None:
        """Delay the next write: the row is locked, and trying again at once would fail too."""
        self._not_before = time.monotonic() + WRITE_EVERY

    def close(self) -> None:
        """Drop everything from now on: the job has ended, or another worker has it."""
        self.closed = True
        self.notes = []

    def _count(self, note: Note, sign: int) -> None:
        if note.kind not in (LOG, PROGRESS):
            self.updates += sign
            self._size += sign * len(note.data or "")

    def _forget_progress(self) -> None:
        """Drop the last progress note: only the newest counts. It is near the end of the list, if it is there."""
        for index in range(len(self.notes) - 1, -1, -1):
            if self.notes[index].kind == PROGRESS:
                del self.notes[index]
                return

    def _cut_log(self) -> None:
        """Drop the oldest lines; the next ones record how much was dropped. Lines being sent are cut in the database:
        cut here too, they would be counted twice."""
        first, *rest = (
            index for index, note in enumerate(self.notes) if note.kind == LOG and note.number > self._sent
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


class Emitter(Protocol):
    """An attempt, as the writer sees it."""

    grant: Grant
    stream: RunStream | None


class StreamWriter(Protocol):
    """Writes what the attempts of a worker report to the database, in batches."""

    def stream_of(self, attempt: Emitter) -> RunStream:
        """Return one stream per attempt, whichever thread reports first: two streams would use the same numbers."""

    def put(
        self, stream: RunStream, kind: str, data: str | None = None, key: str | None = None, text: str = ""
    ) -> bool:
        """Add a note. Callable from any thread. Returns False if too many notes wait."""

    def wait_for_room(self, stream: RunStream, seconds: float) -> None: ...

    def wait_until_taken(self, stream: RunStream, upto: int, seconds: float) -> bool:
        """Return whether the notes were stored in time. Raises LeaseLost if they can never be stored."""

    def write(self, streams: Iterable[RunStream]) -> set[RunStream]:
        """Write what these attempts have reported so far. Returns the streams whose rows are locked: they keep notes.
        Raises StoreError: the notes stay for the next try."""


# -- state -------------------------------------------------------------------------------------------------------------

T = TypeVar("T")


class RunState:
    """The state of one attempt; any thread may request its stop. Values that most attempts never change are class
    attributes: a worker makes thousands of instances a second. For the same reason only `Attempt` has a constructor,
    which sets what this class and `HandlerState` declare."""

    grant: Grant
    writer: StreamWriter | None = None
    """Writes the updates; None outside of a worker, where updates are checked and dropped."""
    stream: RunStream | None = None
    """The notes of the attempt; None until it reports something."""
    reported_at = 0.0
    """The last sign of life on the monotonic clock, for `stall_after`."""
    completed = False
    """The handler has settled its job itself; what it does from then on changes nothing."""
    unwritten = ""
    """Why the folder for results does not take the attempt's result."""
    in_doubt = False
    """The handler has sent its success, and it is unknown whether it arrived."""
    holds_slots = False
    """The attempt has acquired units while it ran: its end may let other jobs start."""
    waits_for: tuple[str, ...] = ()
    """What the attempt is waiting for, in words, for `why`."""
    must_stop = False
    """The attempt should end, for whatever cause: a request, a drain, its time or a lost lease."""
    _event: threading.Event | None = None
    """Wakes a wait; made only then, because most attempts never wait."""

    # -- stop ------------------------------------------------------------------------------------------------------
    def request_stop(self) -> None:
        # Set `must_stop` before looking for an event; `wait` does it the other way round, so neither misses the other.
        self.must_stop = True
        if self._event is not None:
            self._event.set()

    def wait(self, seconds: float) -> bool:
        """Sleep until the attempt must stop, at most this long; returns whether it must."""
        event = self._event
        if event is None:
            event = self._event = threading.Event()
        if self.must_stop:
            event.set()
        return event.wait(seconds)

    def raise_if_stopped(self) -> None:
        if self.must_stop:
            raise StopRequested

    def exited(self, error: BaseException) -> None:
        """End the attempt: a task of its handler has called `sys.exit`, or raised KeyboardInterrupt."""
        self.request_stop()

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        self.waits_for = (*self.waits_for, what)
        try:
            yield
        finally:
            left = list(self.waits_for)  # an async handler may wait for several things
            left.remove(what)
            self.waits_for = tuple(left)

    # -- trouble ---------------------------------------------------------------------------------------------------
    def patiently(self, ask: Callable[[], T]) -> T:
        """Repeat the call while the database is away, until the attempt must stop, as when its lease runs out: a
        computed result must not be lost. Only for calls that may be repeated."""
        pause = 0.1
        while True:
            try:
                return ask()
            except (DatabaseUnreachable, PoolExhausted) as error:
                if self.must_stop:
                    raise StopRequested from error
            self.wait(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, 2.0)

    def refuse_after_completion(self, verb: str) -> None:
        if self.completed:
            raise InvalidInput(
                verb, "comes after ctx.complete", "let ctx.complete be the last thing that the handler does"
            )

    # -- signs of life ---------------------------------------------------------------------------------------------
    def show_life(self) -> None:
        """For `stall_after`: an attempt that goes on to a step, or emits something, is not stalled."""
        self.reported_at = time.monotonic()

    def emit(self, kind: str, data: str | None = None, key: str | None = None, text: str = "") -> bool:
        """Report a note. False: too many notes wait for the database, and this one was dropped."""
        self.show_life()
        if self.writer is None:
            return True
        return self.writer.put(self.stream or self.writer.stream_of(self), kind, data, key, text)

    def log_line(self, line: str, read_to: str | None = None) -> None:
        # A log accepts every line: characters that no store can keep are replaced, not refused.
        clean = line.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
        self.emit(LOG, read_to, text=clean + "\n")


current_run: ContextVar[RunState | None] = ContextVar("leasehold_run", default=None)
"""The attempt that this code belongs to. New tasks and asyncio.to_thread inherit it; threads of a handler do not."""
