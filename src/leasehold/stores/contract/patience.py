"""How long a read may take, on behalf of somebody who waits for it and may have left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_longest: ContextVar[float | None] = ContextVar("leasehold_longest_read", default=None)


@contextmanager
def reads_within(seconds: float | None) -> Iterator[None]:
    """Reads of this context, and of threads that it is copied to, are given up after so long: ReadTooSlow. None: they
    take as long as the database lets them. Writes are short by themselves, and are left to end."""
    token = _longest.set(seconds)
    try:
        yield
    finally:
        _longest.reset(token)


def longest_read() -> float | None:
    return _longest.get()
