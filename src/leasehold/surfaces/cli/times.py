"""Times as people give them: so long ago, or an instant."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypedDict

from leasehold.domain.checks.durations import seconds
from leasehold.domain.errors import InvalidInput


class Between(TypedDict):
    since: datetime | None
    until: datetime | None


def between_times(since: str | None, until: str | None, now: Callable[[], datetime]) -> Between:
    """`now` is asked only for what counts from it."""
    return {"since": _instant(since, "since", now), "until": _instant(until, "until", now)}


def _instant(text: str | None, field: str, now: Callable[[], datetime]) -> datetime | None:
    """Without a time zone it is the time here, as our lists show it."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        pass
    try:
        return now() - timedelta(seconds=seconds(text, field))
    except (InvalidInput, OverflowError):
        raise InvalidInput(
            field, f"{text!r} is not a time", "say how long ago, such as 2h, or when: 2026-10-12T08:00"
        ) from None
