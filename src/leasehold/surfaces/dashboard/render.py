"""Templates, and the values that they show: durations, numbers, states, JSON as a tree, marks of names.

Every value is escaped; none is trusted.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import jinja2

from leasehold.domain import job as domain
from leasehold.domain.frozen import frozen
from leasehold.domain.records import COUNT_CAP, Summary
from leasehold.domain.sensitive import HIDDEN
from leasehold.domain.states import State
from leasehold.surfaces.dashboard import page_request

HOME = Path(__file__).parent
STATIC = HOME / "static"


def _shown(value: Any) -> Any:
    """The value of an expression in a template, with control characters replaced. Safe markup is left as it is."""
    return plain(value) if type(value) is str else value


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HOME / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    for show in (
        span,
        about,
        ago,
        clock,
        number,
        capped,
        plural,
        first_line,
        clip,
        short,
    ):
        made.filters[show.__name__] = show
    made.globals |= {
        "badge": badge,
        "badges": BADGES,
        "stamp": stamp,
        "carried": page_request.carried,
    }
    return made


_TOGETHER = {"live.js": ("vendor/htmx-4.0.0.min.js", "vendor/hx-sse-4.0.0.min.js")}
"""Files that are sent as one. htmx scans the page once, soon after it loads: an extension that loads later is ignored,
and the page would never be updated."""
_MEDIA = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def static_file(name: str) -> tuple[bytes, str] | None:
    """The content and the media type of a static file. None: no file has this name."""
    parts = [_files().get(part) for part in _TOGETHER.get(name, (name,))]
    found = [part for part in parts if part is not None]
    return (b"\n".join(part.read_bytes() for part in found), _MEDIA[found[0].suffix]) if found else None


@functools.cache
def _files() -> dict[str, Path]:
    """The files that may be sent, by their names. A requested name is looked up here, never on the disk."""
    files = (path for path in STATIC.rglob("*") if path.suffix in _MEDIA)
    return {path.relative_to(STATIC).as_posix(): path for path in files}


@functools.cache
def stamp(name: str) -> str:
    """A digest of a file's content. With it in the address, a browser may keep the file for ever."""
    found = static_file(name)
    assert found is not None, name
    return hashlib.sha256(found[0]).hexdigest()[:12]


def page(template: str, values: Mapping[str, Any]) -> str:
    return _environment().get_template(template).render(values)


def main_part(template: str, values: Mapping[str, Any]) -> str:
    """The block `main` alone, for the stream of a page."""
    found = _environment().get_template(template)
    context = found.new_context(dict(values))
    return "".join(found.blocks["main"](context))


# -- values for people -------------------------------------------------------------------------------------------------
# Pure.

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
    """A count that stops at `cap`, as text."""
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
    """An id for a list. Ids of the same time begin alike, so the end is kept, too."""
    return f"{job_id[:8]}…{job_id[-4:]}"


@frozen
class Badge:
    """A state for people: an icon with its colour, and a word. The colour alone never carries the meaning."""

    look: str
    """The name of the icon and the colour."""
    word: str
    note: str = ""


_WORDS = {State.WAITING: "waiting for an answer"}
BADGES: dict[State, Badge] = {
    state: Badge(state.value, _WORDS.get(state, state.value.replace("_", " "))) for state in State
}


def badge(job: Summary | domain.Job, now: datetime) -> Badge:
    """The badge of a job, finer than its state: also retrying, scheduled, on hold, waiting for jobs, stopping."""
    match job.state:
        case State.RUNNING if job.worker is None:
            return Badge(
                "adopting",
                "running, no worker",
                "a worker at its site will adopt its command or container",
            )
        case State.RUNNING if job.stop_requested is not None:
            return Badge("stopping", "stopping", f"{job.stop_requested} requested")
        case State.QUEUED if job.attempt and job.available_at > now:
            return Badge("retrying", "retrying", f"next attempt {ago(job.available_at, now)}")
        case State.QUEUED if job.failures or job.crashes:
            return Badge("retrying", "retrying", "ready, not claimed yet")
        case State.QUEUED if job.available_at > now:
            return Badge("scheduled", "scheduled", ago(job.available_at, now))
        case State.PENDING:
            return _badge_of_pending(job)
    return BADGES[job.state]


def _badge_of_pending(job: Summary | domain.Job) -> Badge:
    if isinstance(job, Summary):
        return Badge("pending", "pending", "on hold, or waiting for other jobs")
    if job.held:
        return Badge("pending", "on hold", "until it is released")
    return Badge("blocked", "waiting for jobs", "it depends on them")


# -- JSON as a tree ----------------------------------------------------------------------------------------------------
# Pure.

MOST_NODES = 1000
DEEPEST = 24
LONGEST_TEXT = 4000

NodeKind = Literal["object", "array", "text", "value", "secret", "cut"]


@frozen
class Node:
    kind: NodeKind
    key: str | None
    text: str
    """The text to show; for an object or array, the number of its items."""
    children: tuple[Node, ...] = ()
    depth: int = 0


def tree_of(value: Any) -> Node:
    return _Tree().node(value, None, 0)


def tree_of_text(text: str | None) -> Node:
    """The tree of encoded JSON. Text that is not JSON is shown as it is."""
    if text is None:
        return Node("value", None, "null")
    try:
        return tree_of(json.loads(text))
    except (ValueError, RecursionError):
        return Node("text", None, _cut(text))


class _Tree:
    def __init__(self) -> None:
        self._left = MOST_NODES

    def node(self, value: Any, key: str | None, depth: int) -> Node:
        self._left -= 1
        match value:
            case dict():
                items = [(str(name), item) for name, item in value.items()]
                return self._inner("object", key, items, depth, _many(len(items), "field"))
            case list():
                items = [(str(place), item) for place, item in enumerate(value)]
                return self._inner("array", key, items, depth, _many(len(items), "item"))
            case str() if value == HIDDEN:
                return Node("secret", key, "hidden", depth=depth)
            case str():
                return Node("text", key, _cut(value), depth=depth)
            case _:
                return Node("value", key, _cut(json.dumps(value)), depth=depth)

    def _inner(
        self, kind: NodeKind, key: str | None, items: list[tuple[str, Any]], depth: int, text: str
    ) -> Node:
        children: list[Node] = []
        for name, item in items:
            if self._left <= 0 or depth >= DEEPEST:
                children.append(
                    Node("cut", None, f"{_many(len(items) - len(children), 'more')}", depth=depth + 1)
                )
                break
            children.append(self.node(item, name[:200], depth + 1))
        return Node(kind, key, text, tuple(children), depth)


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 or word == "more" else f"{count:,} {word}s"


def _cut(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}… and {len(text) - LONGEST_TEXT:,} characters more"


# -- marks -------------------------------------------------------------------------------------------------------------


def mark(*names: object) -> str:
    text = "\0".join(map(str, names))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
