"""Output of commands: values as text or JSON, and tables that fit the terminal."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from leasehold.domain.records import Finding

Row = TypeVar("Row")
Columns = Mapping[str, str | Callable[[Row], object]]
"""The columns of a table by heading. A cell is a field of the row by name, or a function of the row."""
Advance = Callable[[int], None]
"""Advances a progress bar by this many steps."""

Shorten = Callable[[Sequence[str]], Mapping[str, str]]
"""Returns the shortest unique beginning of each id."""

STAND_INS = {"…": ".", "─": "-", "→": ">", "·": "."}
"""Replacements for terminals without Unicode, one character for one, so that columns stay aligned."""


def survive_any_terminal() -> None:
    """Replace characters that the terminal cannot show, instead of failing."""
    codecs.register_error("leasehold", _stand_in)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a test or a host program has replaced the stream
            stream.reconfigure(errors="leasehold")  # type: ignore[union-attr] # a text stream


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(STAND_INS.get(c, "?") for c in error.object[error.start : error.end]), error.end


def console(stderr: bool = False) -> Console:
    """A rich console, which obeys NO_COLOR. Markup is off: text from the database must not set styles."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def note(text: str) -> None:
    """Print a note on stderr, on a terminal only."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    empty: str = "none",
    prose: Sequence[str] = (),
) -> None:
    """Print a table. Columns in `prose` are wrapped if the terminal is too narrow; others are cut."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if not cells:
        note(empty)
    elif sys.stdout.isatty():
        screen = console()
        screen.print(draw(columns, cells, screen.width, prose), soft_wrap=True)
    else:
        _align([list(columns), *cells])


def show(
    rows: Iterable[Row],
    columns: Columns[Row],
    *,
    as_json: bool = False,
    empty: str = "none",
    prose: Sequence[str] = (),
    ids: Shorten | None = None,
) -> None:
    """Print a list: as a table, or with --json as an array. On a terminal `ids` shortens the ids."""
    if as_json:
        with json_array() as add:
            for row in rows:
                add(row)
        return
    table(tuple(columns), cells_of(list(rows), columns, ids), empty=empty, prose=prose)


def show_findings(findings: Iterable[Finding], as_json: bool = False) -> None:
    columns: Columns[Finding] = {
        "check": lambda found: found.check,
        "verdict": lambda found: found.verdict,
        "found": lambda found: found.detail,
        "remedy": lambda found: found.remedy,
    }
    show(findings, columns, as_json=as_json, prose=("found", "remedy"))


def cells_of(rows: Sequence[Row], columns: Columns[Row], ids: Shorten | None = None) -> list[list[object]]:
    cells = [
        [getattr(row, cell) if isinstance(cell, str) else cell(row) for cell in columns.values()]
        for row in rows
    ]
    if cells and ids is not None and "id" in columns and sys.stdout.isatty():
        at = list(columns).index("id")
        short = ids([str(row[at]) for row in cells])
        # One length for all: it looks better, and the ids stay unique for longer.
        longest = max(map(len, short.values()), default=0)
        for row in cells:
            row[at] = str(row[at])[:longest] if row[at] in short else row[at]
    return cells


def fields(values: Mapping[str, object]) -> None:
    """Print names and values, one per line, without values that are None."""
    for line in field_lines(values):
        print(line)


def field_lines(values: Mapping[str, object]) -> Iterator[str]:
    shown = {name: clean(value) for name, value in values.items() if value is not None}
    width = max(map(len, shown), default=0)
    for name, text in shown.items():
        head, *more = wrapped(text, width + len(COLUMN_GAP)) or [""]
        yield f"{name:<{width}}  {head}".rstrip()
        for line in more:
            yield f"{'':<{width}}  {line}".rstrip()


def wrapped(text: str, indent: int = 0) -> list[str]:
    """The lines of a text. On a terminal they are broken between words, to fit beside the indentation."""
    lines = text.splitlines()
    if not sys.stdout.isatty():
        return lines
    room = max(NARROWEST, console().width - indent)
    return [part for line in lines for part in _wrap(line, room)]


def _wrap(line: str, room: int) -> list[str]:
    if len(line) <= room:
        return [line]
    margin = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(line, room, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False)


def emit(value: object) -> None:
    """Print one JSON value on one line."""
    print(json_text(value), flush=True)


@contextlib.contextmanager
def json_array() -> Iterator[Callable[[object], None]]:
    """Print a JSON array, one value per line, as the values come."""
    begin = "["

    def add(value: object) -> None:
        nonlocal begin
        print(begin + json_text(value), end="")
        begin = ",\n "

    yield add
    print("[]" if begin == "[" else "]")


def json_text(value: object) -> str:
    """JSON that any terminal can show, without control characters."""
    unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    return safe_json(json.dumps(plain(value), ensure_ascii=not unicode, default=str))


def safe_json(text: str) -> str:
    """The same JSON with unprintable characters (C1 controls, changes of direction) escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def plain(value: Any) -> Any:
    """The value as JSON types: records in the same form as over HTTP, times as ISO 8601 in UTC."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        from leasehold.operations.json_records import to_json

        return to_json(type(value), value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value


def clean(value: object) -> str:
    """The value as text, with control characters replaced: text of a job must not control the terminal."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    text = str(value)
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def cut(text: str | None, length: int) -> str:
    """The first line, cut to this length."""
    line = (text or "").strip().partition("\n")[0]
    return line if len(line) <= length else line[: length - 1] + "…"


def moment(when: datetime | None) -> str:
    """A time: short on a terminal, complete elsewhere."""
    if when is None or not sys.stdout.isatty():
        return clean(when)
    here, today = when.astimezone(), datetime.now().astimezone()
    if here.date() == today.date():
        return f"{here:%H:%M:%S}"
    return f"{here:%d %b %H:%M}" if here.year == today.year else f"{here:%Y-%m-%d}"


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


def _align(rows: Sequence[Sequence[str]]) -> None:
    lines = [[cell.replace("\n", " ").replace("\t", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


# -- tables ------------------------------------------------------------------------------------------------------------

COLUMN_GAP = "  "
NARROWEST = 7
"""The smallest width to which a column is cut."""
RULE = "─"
WHOLE = frozenset({"id", "state"})
"""Columns that are never cut: a cut id may find no job."""

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
    lines.append(Text(RULE * min(width, sum(widths) + len(COLUMN_GAP) * (len(widths) - 1)), style="dim"))
    for row in cells:
        for parts in _wrapped(heads, row, widths, prose):
            texts = [Text(part, style=STYLES.get(part, "")) for part in parts]
            lines.append(_line(texts, widths))
    return Group(*lines)


def fit(heads: Cells, rows: Sequence[Cells], width: int, prose: Sequence[str] = ()) -> list[int]:
    """The width of each column: that of its widest cell, but the widest columns shrink until the line fits."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(heads, *rows, strict=True)]
    room = width - len(COLUMN_GAP) * (len(widths) - 1)
    # A prose column keeps its longest word; if that does not fit the line, it is cut like other columns.
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
        line.append("" if last else COLUMN_GAP)
    line.rstrip()
    line.end = "\n"
    return line


@contextlib.contextmanager
def live(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Yield a function that replaces the picture on the terminal. The last picture stays."""
    from rich.live import Live

    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as screen:
        yield lambda picture: screen.update(picture, refresh=True)
