"""Tables for a terminal: they fit its width, and break no word."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

GAP = "  "
NARROWEST = 8
"""The least width to which a column is cut."""
RULE = "─"
WHOLE = frozenset({"id", "state"})
"""Columns that are never cut: part of an id may find no job."""

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
"""Colours of words, in any column."""

Cells = Sequence[str]


def draw(columns: Cells, rows: Sequence[Cells], width: int, prose: Sequence[str] = ()) -> RenderableType:
    """A table. Columns in `prose` are wrapped between words; others are cut if the table is too wide. Empty columns are
    left out."""
    from rich.console import Group
    from rich.text import Text

    used = [n for n in range(len(columns)) if any(row[n] for row in rows)]
    heads = [columns[n] for n in used]
    cells = [[" ".join(row[n].split()) for n in used] for row in rows]
    widths = fit(heads, cells, width, prose)
    lines = [_line([Text(head, style="bold") for head in heads], widths)]
    lines.append(Text(RULE * min(width, sum(widths) + len(GAP) * (len(widths) - 1)), style="dim"))
    for row in cells:
        for parts in _wrapped(heads, row, widths, prose):
            texts = [Text(part, style=STYLES.get(part, "")) for part in parts]
            lines.append(_line(texts, widths))
    return Group(*lines)


def fit(heads: Cells, rows: Sequence[Cells], width: int, prose: Sequence[str] = ()) -> list[int]:
    """The width of each column: that of its widest cell, but the widest columns shrink until the line fits."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(heads, *rows, strict=True)]
    room = width - len(GAP) * (len(widths) - 1)
    # Prose keeps its longest word, unless that is too long for the line: then it is cut as other cells are.
    for keeps_words in (True, False):
        least = [
            wanted
            if head in WHOLE
            else min(wanted, _least(head, [row[n] for row in rows], keeps_words and head in prose))
            for n, (head, wanted) in enumerate(zip(heads, widths, strict=True))
        ]
        while sum(widths) > room:
            n = max(range(len(widths)), key=lambda n: (widths[n] > least[n], widths[n]))
            if widths[n] <= least[n]:
                break  # the terminal is too narrow even for this, and wraps the lines itself
            widths[n] -= 1
    return widths


def _least(head: str, cells: Sequence[str], keeps_words: bool) -> int:
    from rich.cells import cell_len

    longest_word = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
    return max(len(head), longest_word if keeps_words else NARROWEST)


def _wrapped(heads: Cells, row: Cells, widths: Sequence[int], prose: Sequence[str]) -> Iterator[list[str]]:
    parts = [
        textwrap.wrap(cell, size, break_long_words=False, break_on_hyphens=False) or [""]
        if head in prose
        else [cell]
        for head, cell, size in zip(heads, row, widths, strict=True)
    ]
    for n in range(max(map(len, parts))):
        yield [part[n] if n < len(part) else "" for part in parts]


def _line(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    from rich.text import Text

    line = Text(no_wrap=True, overflow="ignore", end="")
    for n, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        last = n == len(widths) - 1
        cell.truncate(width, overflow="ellipsis", pad=not last)
        line.append_text(cell)
        line.append("" if last else GAP)
    line.rstrip()
    line.end = "\n"
    return line


@contextlib.contextmanager
def live(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Gives a function that replaces the picture on the terminal; the last one stays."""
    from rich.live import Live

    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as screen:
        yield lambda picture: screen.update(picture, refresh=True)
