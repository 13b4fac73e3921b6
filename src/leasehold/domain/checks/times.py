"""Checks times: a duration is a number of seconds or text such as "10m" and "1h30m"; an instant has a zone."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from leasehold.domain.errors import InvalidInput

Duration = float | int | str | timedelta

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
LONGEST_DURATION = 100 * 365 * 86_400.0


def seconds(value: Duration, field: str, *, positive: bool = False) -> float:
    """Return the duration in seconds. Raises if it is negative, not finite, or not a duration."""
    found = _parse(value)
    if found is None:
        raise InvalidInput(
            field, f"{value!r} is not a duration", 'use seconds, or text such as "10m" or "1h30m"'
        )
    if not math.isfinite(found) or found < 0 or found > LONGEST_DURATION or (positive and found == 0):
        least = "more than 0" if positive else "0 or more"
        raise InvalidInput(field, f"{value!r} is out of range", f"give {least} seconds, at most 100 years")
    return found


def duration_text(value: float) -> str:
    """Format seconds as the shortest text that means the same: "90m", "2d", "1.5s"."""
    for unit in ("d", "h", "m"):
        if value and value % _SECONDS[unit] == 0:
            return f"{value / _SECONDS[unit]:.0f}{unit}"
    return f"{value:.6f}".rstrip("0").rstrip(".") + "s"


def _parse(value: Duration) -> float | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        text = value.strip().lower()
        if re.fullmatch(r"[+-]?\d+(\.\d+)?", text):
            return float(text)
        parts = _PART.findall(text)
        if parts and "".join(number + unit for number, unit in parts) == text:
            return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    return None


# -- instants ----------------------------------------------------------------------------------------------------------

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST = datetime(1, 1, 3, tzinfo=UTC)
LATEST = datetime(9999, 12, 29, tzinfo=UTC)
"""Python's calendar ends shortly after this, and not every time zone can express an instant near its end."""


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
    if found is None or not EPOCH <= found <= LATEST:
        raise InvalidInput(
            field,
            f"{instant.isoformat()} is out of range",
            "give a time from 1970 to the end of 9999 (UTC); to keep a job until you release it, use hold=True",
        )
    return found
