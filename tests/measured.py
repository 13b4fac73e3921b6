"""Pages of docs/measured that long runs write by themselves: a table with a line for each run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "measured"


@dataclass(frozen=True)
class Page:
    name: str
    title: str
    about: str
    columns: tuple[str, ...]
    named_by: int = 1
    """So many columns name a run; the others are figures."""

    def put(self, *cells: object) -> None:
        """A later run of the same name takes the line of the one before."""
        path = FOLDER / self.name
        rows = _rows(path.read_text(encoding="utf-8")) if path.exists() else []
        new = [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells]
        names = [row[: self.named_by] for row in rows]
        if new[: self.named_by] in names:
            rows[names.index(new[: self.named_by])] = new
        else:
            rows.append(new)
        rule = ["---"] * self.named_by + ["--:"] * (len(self.columns) - self.named_by)
        table = [_line(self.columns), f"|{'|'.join(rule)}|", *map(_line, rows)]
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        draft.write_text("\n".join([f"# {self.title}", "", self.about, "", *table]) + "\n", encoding="utf-8")
        draft.replace(path)


def _rows(text: str) -> list[list[str]]:
    table = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"
