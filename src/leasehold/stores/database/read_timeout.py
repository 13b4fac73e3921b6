"""A time limit for reads whose caller waits and may have left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_longest: ContextVar[float | None] = ContextVar("leasehold_longest_read", default=None)


@contextmanager
def reads_within(seconds: float | None) -> Iterator[None]:
    """Reads in this context, and in threads that copy it, raise ReadTooSlow after `seconds`. None: the
    database sets the only limit. Writes are short, and always run to their end."""
    token = _longest.set(seconds)
    try:
        yield
    finally:
        _longest.reset(token)


def longest_read() -> float | None:
    """The limit of `reads_within` in this context, in seconds."""
    return _longest.get()
