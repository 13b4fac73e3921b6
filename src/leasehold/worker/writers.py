"""Background writers: one stores what attempts report, the other stores batches of steps that are overdue.

A handler's report only appends to a list in memory. The list is written every quarter of a second, at once when it is
long, and before the job's ending: a reader who sees a job at rest sees all its reports. Notes that could not be written
stay in the list, in order, for the next try; each note's place shows the store what it already has.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from leasehold.domain.errors import LeaseLost, StoreError
from leasehold.domain.stream import LOG, PROGRESS, STALLED, RunNotes
from leasehold.run.journal import Batching
from leasehold.run.state import NOTES_AT_ONCE, Emitter, RunStream
from leasehold.run.steps import NEVER
from leasehold.stores.database.read_timeout import serving_many
from leasehold.worker.service import Service

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

logger = logging.getLogger("leasehold.worker")

REPORTS_IDLE = 60.0


class UpdateWriter(Service):
    def __init__(self, store: JobStore) -> None:
        super().__init__("update writer", self._beat, first=REPORTS_IDLE, slowest=1.0)
        self._store = store
        self._changed = threading.Condition()
        """Guards all streams; notified when the database has stored something."""
        self._writing = threading.Lock()
        """One batch at a time, so that an attempt's notes arrive in order."""
        self._open: dict[RunStream, None] = {}
        self._awake = False
        self._in_trouble = False
        self.commits = 0
        """Batches that the database has stored."""

    def stop(self) -> None:
        super().stop()
        # Notes of handlers left behind; those of ended ones were written before their endings.
        if self._open:
            with contextlib.suppress(StoreError):
                self.write(list(self._open))

    # -- from the handlers -----------------------------------------------------------------------------------------
    def stream_of(self, attempt: Emitter) -> RunStream:
        """Return one stream per attempt, whichever thread reports first: two streams would use the same places."""
        with self._changed:
            if attempt.stream is None:
                attempt.stream = RunStream(attempt.grant)
            return attempt.stream

    def put(
        self, stream: RunStream, kind: str, data: str | None = None, key: str | None = None, text: str = ""
    ) -> bool:
        """Add a note. Callable from any thread. Returns False if too many notes wait."""
        with self._changed:
            if stream.closed:
                return True
            if stream.full and kind not in (PROGRESS, LOG, STALLED):
                return False
            stream.add(kind, data, key, text)
            self._open[stream] = None
            asleep, self._awake = not self._awake, True
            many = len(stream.notes) == NOTES_AT_ONCE
        # After trouble the service itself knows when to try again.
        if asleep or (many and not self._in_trouble):
            self.nudge()
        return True

    def wait_for_room(self, stream: RunStream, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: stream.closed or not stream.full, seconds)

    def wait_until_taken(self, stream: RunStream, upto: int, seconds: float) -> bool:
        """Return whether the notes were stored in time. Raises LeaseLost if they can never be stored."""
        with self._changed:
            done = self._changed.wait_for(lambda: stream.closed or stream.taken >= upto, seconds)
            if stream.taken < upto and stream.closed:
                raise LeaseLost(stream.grant.id, stream.grant.token)
            return done

    # -- to the database -------------------------------------------------------------------------------------------
    def write(self, streams: Iterable[RunStream]) -> set[RunStream]:
        """Write what these attempts have reported so far. Returns the streams whose rows are locked: they keep notes,
        and the others do not wait for them. Raises StoreError: the notes stay for the next try."""
        locked: set[RunStream] = set()
        with self._writing:
            targets = [(stream, stream.number) for stream in streams]
            while batch := self._next_batch(targets):
                if met := self._write(batch):
                    locked |= met
                    targets = [target for target in targets if target[0] not in locked]
        return locked

    def finish(self, streams: Sequence[RunStream]) -> set[RunStream]:
        """Write everything that these attempts reported, before they are settled, and accept no more. Returns the
        streams that are not written yet. Raises StoreError."""
        locked = self.write(streams)
        with self._changed:
            for stream in streams:
                if stream not in locked:
                    stream.close()
                    self._open.pop(stream, None)
        return locked

    def _next_batch(self, targets: Sequence[tuple[RunStream, int]]) -> list[tuple[RunStream, RunNotes]]:
        batch: list[tuple[RunStream, RunNotes]] = []
        room = NOTES_AT_ONCE
        with self._changed:
            for stream, upto in targets:
                notes = stream.take(upto, room)
                if notes.notes:
                    batch.append((stream, notes))
                    room -= len(notes.notes)
                if room <= 0:
                    break
        return batch

    def _write(self, batch: list[tuple[RunStream, RunNotes]]) -> set[RunStream]:
        """Return the streams whose rows are locked."""
        try:
            written = self._store.write_updates([notes for _, notes in batch])
        except StoreError:
            self._in_trouble = True
            raise
        except Exception as error:
            return self._write_singly(batch, error)
        self._in_trouble = False
        self.commits += 1
        locked = {stream for stream, notes in batch if (notes.id, notes.token) in written.locked}
        with self._changed:
            for stream, notes in batch:
                if (notes.id, notes.token) in written.lost:
                    stream.close()
                elif stream in locked:
                    stream.put_off()
                else:
                    stream.wrote(notes)
                if not stream.notes:
                    self._open.pop(stream, None)
            self._changed.notify_all()
        return locked

    def _write_singly(self, batch: list[tuple[RunStream, RunNotes]], error: Exception) -> set[RunStream]:
        """Write the notes one by one: the database is up but refused one, which must not hold up the rest."""
        pieces = [
            (stream, RunNotes(notes.id, notes.token, notes.attempt, (note,)))
            for stream, notes in batch
            for note in notes.notes
        ]
        if len(pieces) > 1:
            locked: set[RunStream] = set()
            for stream, notes in pieces:
                if stream not in locked:  # the rest of its notes waits, so that their order is kept
                    locked |= self._write([(stream, notes)])
            return locked
        stream, notes = pieces[0]
        logger.error("job %s: dropped its %r update: %s", notes.id, notes.notes[0].kind, error)
        with self._changed:
            stream.wrote(notes)
            if not stream.notes:
                self._open.pop(stream, None)
            self._changed.notify_all()
        return set()

    def _beat(self) -> float:
        with self._changed:
            now = time.monotonic()
            due = [stream for stream in self._open if stream.due_at <= now]
        if due:
            self.write(due)
        with self._changed:
            if not self._open:
                self._awake = False
                return REPORTS_IDLE
            return max(0.01, min(stream.due_at for stream in self._open) - time.monotonic())


# -- batches of steps --------------------------------------------------------------------------------------------------

BATCHES_IDLE = 3600.0


class BatchWriter:
    """Writes overdue batches of steps. The first batch starts its thread: most workers never have one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batching: set[Batching] = set()
        self._service: Service | None = None

    def expect(self, steps: Batching) -> None:
        with self._lock:
            self._batching.add(steps)
            if self._service is None:
                service = Service("step batches", self._write_due, slowest=1.0)
                with contextlib.suppress(
                    RuntimeError
                ):  # the interpreter is ending: the attempt writes its batch
                    service.start()
                    self._service = service
        if self._service is not None:
            self._service.nudge()

    def stop(self) -> None:
        if self._service is not None:
            self._service.stop()

    def _write_due(self) -> float:
        with self._lock:
            batching = list(self._batching)
        trouble: StoreError | None = None
        with serving_many():
            for steps in batching:
                if steps.due_at <= time.monotonic():
                    try:
                        steps.flush_late()
                    except StoreError as error:  # one tenant's must not keep the others' from being written
                        trouble = error
        if trouble is not None:
            raise trouble
        with self._lock:
            # Due times are set before `expect` is called, so nothing needed is dropped here.
            self._batching = {steps for steps in self._batching if steps.due_at != NEVER}
            due = min((steps.due_at for steps in self._batching), default=NEVER)
        return min(BATCHES_IDLE, max(0.01, due - time.monotonic()))
