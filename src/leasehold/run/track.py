"""`ctx.track`: a loop that reports how far it is, and ends when its attempt is stopped."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sized
from typing import Protocol, TypeVar

from leasehold.domain.errors import InvalidInput

T = TypeVar("T")

REPORTED_SINGLY = 100
"""The first items, each of which is reported, so that a loop of a few long items is exact."""
REPORT_EVERY = 0.05
"""Seconds between two reports of the items after them. A report costs more than a cheap item, most of all in its own
process, and the database takes two a second."""


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
