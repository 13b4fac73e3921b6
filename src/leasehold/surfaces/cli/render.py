"""Values → text. Tables are drawn on a terminal and plain columns elsewhere; JSON is one object a line."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

Row = TypeVar("Row")
Columns = Mapping[str, Callable[[Row], object]]
"""The head of each column, and what stands in it for a row."""
Advance = Callable[[int], None]
"""Moves a progress bar on by so many steps."""

STYLES = {
    "running": "cyan",
    "queued": "blue",
    "waiting": "magenta",
    "paused": "yellow",
    "failed": "red",
    "timed_out": "red",
    "succeeded": "green",
    "ok": "green",
    "warn": "yellow",
    "bad": "red",
}
"""Words that carry a colour wherever they stand in a table."""


def console(stderr: bool = False) -> Console:
    """Honours NO_COLOR by itself. Markup is off: what stands in the database is text, not style."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def note(text: str) -> None:
    """A word to the person at the terminal; programs do not get it."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "none") -> None:
    cells = [[clean(cell) for cell in row] for row in rows]
    if not cells:
        note(empty)
    elif sys.stdout.isatty():
        _draw(columns, cells)
    else:
        _align([list(columns), *cells])


def show(rows: Iterable[Row], columns: Columns[Row], *, as_json: bool = False, empty: str = "none") -> None:
    """A list: as a table, or with --json one object a line."""
    if as_json:
        for row in rows:
            emit(row)
        return
    table(tuple(columns), [[cell(row) for cell in columns.values()] for row in rows], empty=empty)


def fields(values: Mapping[str, object]) -> None:
    """Names and values, one a line; what is None is left out."""
    shown = {name: clean(value) for name, value in values.items() if value is not None}
    width = max(map(len, shown), default=0)
    for name, text in shown.items():
        head, *more = text.splitlines() or [""]
        print(f"{name:<{width}}  {head}".rstrip())
        for line in more:
            print(f"{'':<{width}}  {line}".rstrip())


def emit(value: object) -> None:
    """One JSON value on one line."""
    print(json.dumps(plain(value), ensure_ascii=False, default=str))


def plain(value: Any) -> Any:
    """Dataclasses as objects, times as ISO 8601 in UTC."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value


def clean(value: object) -> str:
    """Text that cannot steer the terminal it is shown on."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    text = str(value)
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def cut(text: str | None, length: int) -> str:
    """The first line, not longer than this."""
    line = (text or "").strip().partition("\n")[0]
    return line if len(line) <= length else line[: length - 1] + "…"


def ago(when: datetime | None) -> str:
    """How long ago, or how long from now."""
    if when is None:
        return ""
    seconds = (datetime.now(UTC) - when).total_seconds()
    return f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:.0f}s" if seconds >= 1 else "0s"


def _draw(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        drawn.add_column(column, no_wrap=column == "id", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    console().print(drawn)


def _align(rows: Sequence[Sequence[str]]) -> None:
    lines = [[cell.replace("\n", " ").replace("\t", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
