"""Checks instants that users give."""

from __future__ import annotations

from datetime import UTC, datetime

from leasehold.domain.errors import InvalidInput

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST = datetime(1, 1, 3, tzinfo=UTC)
LATEST = datetime(9999, 12, 29, tzinfo=UTC)
"""Python's calendar ends shortly after, and an instant near its end cannot be expressed in every time zone."""


def checked_instant(instant: object, field: str) -> datetime:
    """Return the instant in UTC. Raises if it has no time zone, or is outside the years that every store supports."""
    if not isinstance(instant, datetime):
        raise InvalidInput(field, f"{instant!r} is not a time", "give an aware datetime")
    if instant.tzinfo is None:
        raise InvalidInput(field, f"{instant!r} has no time zone", "give an aware datetime")
    try:
        found = instant.astimezone(UTC)
    except OverflowError:
        found = None
    if found is None or not FIRST <= found <= LATEST:
        raise InvalidInput(
            field,
            f"{instant.isoformat()} is out of range",
            "give a time from 1970 to the end of 9999 (UTC); to keep a job until you release it, use hold=True",
        )
    return found
