"""One thing that holds a job, and the words to tell it in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

Cause = Literal[
    "resting",
    "budget",
    "group_held",
    "running",
    "orphan",
    "no_site",
    "pending",
    "parent",
    "waiting",
    "not_due",
    "queue_paused",
    "kind_paused",
    "lane_blocked",
    "lane_order",
    "slot_full",
    "rate_closed",
    "rate_spent",
    "no_worker",
    "no_handler",
    "busy",
    "position",
    "nothing",
]


@dataclass(frozen=True, slots=True)
class Hold:
    """One thing that holds a job. `cause` is for programs, `detail` and `remedy` are for people."""

    cause: Cause
    detail: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.detail}; {self.remedy}" if self.remedy else self.detail


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
