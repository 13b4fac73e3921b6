"""What a caller can wait for: a time limit for reads whose caller may have left, and threads that serve many."""

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


_many: ContextVar[bool] = ContextVar("leasehold_serves_many", default=False)


@contextmanager
def serving_many() -> Iterator[None]:
    """Calls in this context, on the jobs of several tenants in turn, do not wait for a tenant that does not answer."""
    token = _many.set(True)
    try:
        yield
    finally:
        _many.reset(token)


def serves_many() -> bool:
    return _many.get()
