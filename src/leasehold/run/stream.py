"""Reports of a running handler: `ctx.progress`, `ctx.emit`, `ctx.log`, `ctx.track`.

None of them touches the database.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sized
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from pydantic_core import PydanticSerializationError, to_jsonable_python

from leasehold.domain.checks.payload import check_text, encode
from leasehold.domain.errors import InvalidInput, NotSerializable, StreamFull
from leasehold.domain.stream import PROGRESS, RESERVED
from leasehold.run.state import MOST_UPDATES, RunState
from leasehold.threads import to_thread

LONGEST_KIND = 200
LONGEST_KEY = 1000
CHECK_STOP_EVERY = 0.1


class Reports:
    """The part of a context that reports."""

    _attempt: RunState

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report how far the job is, such as `ctx.progress(3, 10, "page 3")`. Call it as often as you like: the newest
        is stored, at most twice a second."""
        data = {
            "done": _number(done, "done"),
            "total": None if total is None else _number(total, "total"),
            "note": check_text(str(note), "note"),
        }
        self._attempt.emit(PROGRESS, encode(data, "progress"))

    def emit(self, kind: str, data: Any = None, key: str | None = None) -> None:
        """Send a partial result to all watchers of the job; stored within half a second, in order. With `key` it is
        stored once per job, however often it is emitted, also after a crash and a retry."""
        name = _text(kind, "kind", LONGEST_KIND)
        if name in RESERVED:
            raise InvalidInput("kind", f"{name!r} is Leasehold's own", "choose another name")
        once = None if key is None else _text(key, "key", LONGEST_KEY)
        encoded = _encoded(data, f"update {name!r}")
        while not self._attempt.emit(name, encoded, once):
            self._make_room()

    def log(self, text: str) -> None:
        """Add a line to the log tail of this attempt."""
        now = datetime.now(UTC).isoformat(sep=" ", timespec="milliseconds")
        self._attempt.log_line(f"{now} {text}")

    def _make_room(self) -> None:
        raise StreamFull(self._attempt.grant.id, MOST_UPDATES)


class AsyncReports(Reports):
    """An async handler must not block its loop: if too much is waiting, `emit` raises StreamFull."""

    async def flush(self) -> None:
        """Wait until everything reported so far is stored. Raises LeaseLost if it never will be."""
        writer, stream = self._attempt.writer, self._attempt.stream
        if writer is not None and stream is not None:
            upto = stream.number
            while not await to_thread(writer.wait_until_taken, stream, upto, CHECK_STOP_EVERY):
                self._attempt.raise_if_stopped()


class SyncReports(Reports):
    """A plain handler has its own thread: if too much is waiting, `emit` waits too."""

    def flush(self) -> None:
        """Wait until everything reported so far is stored. Raises LeaseLost if it never will be."""
        writer, stream = self._attempt.writer, self._attempt.stream
        if writer is not None and stream is not None:
            upto = stream.number
            while not writer.wait_until_taken(stream, upto, CHECK_STOP_EVERY):
                self._attempt.raise_if_stopped()

    def _make_room(self) -> None:
        writer, stream = self._attempt.writer, self._attempt.stream
        if writer is not None and stream is not None:
            writer.wait_for_room(stream, CHECK_STOP_EVERY)
        self._attempt.raise_if_stopped()


def _text(value: object, field: str, longest: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= longest:
        raise InvalidInput(
            field, f"{value!r:.100} cannot be used", f"give a text of 1 to {longest:,} characters"
        )
    return check_text(value, field)


def _number(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidInput(field, f"{value!r} is not a number", "give a finite number")
    return value


def _encoded(data: Any, field: str) -> str:
    """Encode plain JSON as it is; models, dataclasses, times and the like as pydantic writes them."""
    try:
        return encode(data, field)
    except NotSerializable as refusal:
        try:
            return encode(to_jsonable_python(data), field)
        except (NotSerializable, PydanticSerializationError, ValueError, TypeError):
            raise refusal from None


# -- `ctx.track` -------------------------------------------------------------------------------------------------------

T = TypeVar("T")

REPORTED_SINGLY = 100
"""The first items, each of which is reported, so that a loop of a few long items is exact."""
REPORT_EVERY = 0.05
"""Seconds between two reports of later items. A report costs more than a cheap item, most of all in its own process,
and the database takes two a second."""


class Reporting(Protocol):
    """The part of a context that a loop needs."""

    def progress(self, done: float, total: float | None = None, note: str = "") -> None: ...

    def raise_if_stopped(self) -> None: ...


class Counter:
    def __init__(
        self, ctx: Reporting, items: object, total: float | None, description: str, start: int
    ) -> None:
        if total is None and isinstance(items, Sized):
            total = start + len(items)
        self._ctx = ctx
        self._total = total
        self._description = description
        self._done = self._reported = start
        self._each_until = start + REPORTED_SINGLY
        self._next_at = 0.0
        ctx.progress(start, total, description)

    def count(self) -> None:
        self._done += 1
        now = time.monotonic()
        if self._done <= self._each_until or now >= self._next_at:
            self._next_at = now + REPORT_EVERY
            self.report()

    def report(self) -> None:
        if self._reported != self._done:
            self._reported = self._done
            self._ctx.progress(self._done, self._total, self._description)


def track(
    ctx: Reporting, items: Iterable[T], total: float | None, description: str, start: int
) -> Iterator[T]:
    """Check the arguments at the call, not at the first item."""
    if not isinstance(items, Iterable):
        raise InvalidInput("items", f"{items!r:.100} cannot be looped over", "give a list or an iterator")
    return _plain(ctx, items, Counter(ctx, items, total, description, start))


def track_async(
    ctx: Reporting, items: AsyncIterable[T], total: float | None, description: str, start: int
) -> AsyncIterator[T]:
    return _async(ctx, items, Counter(ctx, items, total, description, start))


def _plain(ctx: Reporting, items: Iterable[T], counter: Counter) -> Iterator[T]:
    try:
        for item in items:
            # Not after the last one: that loop is done, and the job may be too.
            ctx.raise_if_stopped()
            yield item
            counter.count()
    finally:
        counter.report()


async def _async(ctx: Reporting, items: AsyncIterable[T], counter: Counter) -> AsyncIterator[T]:
    try:
        async for item in items:
            ctx.raise_if_stopped()
            yield item
            counter.count()
    finally:
        counter.report()
