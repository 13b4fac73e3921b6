"""Formats times, actors and reasons for the text of a hold."""

from __future__ import annotations

from datetime import datetime, timedelta


def instant(when: datetime) -> str:
    return when.isoformat(timespec="seconds")


def span(length: timedelta) -> str:
    seconds = max(0.0, length.total_seconds())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def by(actor: str | None) -> str:
    return f" by {actor}" if actor else ""


def why(reason: str | None) -> str:
    return f": {first_line(reason)}" if reason else ""
