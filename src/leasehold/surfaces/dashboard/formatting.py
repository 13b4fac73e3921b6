"""Formats values for people: durations, times, numbers, states. Pure."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain import job as domain
from leasehold.domain.frozen import frozen
from leasehold.domain.records import COUNT_CAP, Summary
from leasehold.domain.states import State

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_CONTROLS = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {0x7F: 0x2421}
_CONTROLS |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def plain(text: str) -> str:
    """The text with control characters replaced: escapes of terminals, bells, NULs."""
    return text.translate(_CONTROLS) if not text.isprintable() else text


def span(seconds: float | None) -> str:
    """`850 ms`, `4.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d`: two units at most."""
    if seconds is None:
        return "–"
    if seconds < 0:
        return f"−{span(-seconds)}"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    left = round(seconds)
    words: list[str] = []
    for unit, size in _UNITS:
        number, left = divmod(left, size)
        if number or words:
            words.append(f"{number} {unit}" if number else "")
        if len(words) == 2:
            break
    return " ".join(word for word in words if word)


def about(seconds: float | None) -> str:
    """A duration in one unit, for a large figure."""
    if seconds is None or seconds < 60:
        return span(seconds)
    unit, size = next((unit, size) for unit, size in _UNITS if seconds >= size * (2 if unit == "d" else 1))
    return f"{seconds // size:,.0f} {unit}"


def ago(then: datetime | None, now: datetime) -> str:
    """The distance from now in one unit, such as `5 min ago`; the exact time is in the title of the element."""
    if then is None:
        return "–"
    seconds = (now - then).total_seconds()
    away = abs(int(seconds))
    if not away:
        return "now"
    unit, size = next((unit, size) for unit, size in _UNITS if away >= size * (2 if unit == "d" else 1))
    distance = f"{away // size:,} {unit}"
    return f"{distance} ago" if seconds > 0 else f"in {distance}"


def clock(then: datetime | None) -> str:
    return "–" if then is None else f"{then:%Y-%m-%d %H:%M:%S}"


def number(value: float) -> str:
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.2f}"


def capped(count: int, cap: int = COUNT_CAP) -> str:
    """A count that stops at a cap."""
    return f"{count:,}" if count < cap else f"{cap:,}+"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def first_line(text: str | None, length: int = 160) -> str:
    line = (text or "").strip().partition("\n")[0]
    return line if len(line) <= length else line[: length - 1] + "…"


def clip(text: str | None, length: int) -> str:
    text = text or ""
    return text if len(text) <= length else text[: length - 1] + "…"


def short(job_id: str) -> str:
    """An id for a list. Ids of the same time begin alike, so it keeps the end, too."""
    return f"{job_id[:8]}…{job_id[-4:]}"


@frozen
class Badge:
    """A state for people: an icon with its colour, and a word. The colour alone never carries the meaning."""

    look: str
    """The name of the icon and the colour."""
    word: str
    note: str = ""


LOOKS: dict[State, Badge] = {state: Badge(state.value, state.value.replace("_", " ")) for state in State}


def badge(job: Summary | domain.Job, now: datetime) -> Badge:
    """The badge of a job, finer than its state: also retrying, scheduled, blocked, adopting, stopping."""
    match job.state:
        case State.RUNNING if job.worker is None:
            return Badge(
                "adopting",
                "adopting",
                "still running, without a lease holder; a worker at its site will adopt it",
            )
        case State.RUNNING if job.stop_requested is not None:
            return Badge("stopping", "stopping", f"{job.stop_requested} requested")
        case State.QUEUED if job.attempt and job.available_at > now:
            return Badge("retrying", "retrying", f"next attempt {ago(job.available_at, now)}")
        case State.QUEUED if job.failures or job.crashes:
            return Badge("retrying", "retrying", "ready, not claimed yet")
        case State.QUEUED if job.available_at > now:
            return Badge("scheduled", "scheduled", ago(job.available_at, now))
        case State.PENDING if getattr(job, "held", False):
            return Badge("pending", "on hold", "until it is released")
        case State.PENDING:
            return Badge("blocked", "blocked", "by a hold, or by jobs it depends on")
    return LOOKS[job.state]
