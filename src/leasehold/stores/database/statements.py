"""Named statements, read from .sql files.

A file holds `-- name: word` headers, each followed by comments that say why and by one statement with `:name`
parameters. The same names and parameters stand in both dialects; tests/architecture checks it. What several statements
share stands once, under a header `-- part: word`, and is put in where a line says `-- include: word`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

_HEADER = re.compile(r"^-- (name|part): ([a-z_.]+)\s*$", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*-- include: ([a-z_]+)[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b(\.[a-z_]+)?")
"""`:name` or `:name.column`, but not a `::cast`."""


def read_statements(package: str) -> dict[str, str]:
    """All statements of a dialect, by name."""
    found: dict[str, dict[str, str]] = {"name": {}, "part": {}}
    for file_name, text in _sql_files(package, "sql"):
        pieces = _HEADER.split(text)
        for what, name, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
            if name in found[what]:
                raise ValueError(f"{file_name}: {name!r} is defined twice")
            found[what][name] = body
    parts = found["part"]
    return {
        name: _COMMENT.sub("", _included(body, parts, name)).strip().rstrip(";")
        for name, body in found["name"].items()
    }


def _included(body: str, parts: dict[str, str], name: str) -> str:
    """A part may include others."""

    def part(match: re.Match[str]) -> str:
        if match[1] not in parts:
            raise ValueError(f"statement {name!r} includes {match[1]!r}, which does not exist")
        return _included(parts[match[1]].strip(), parts, name)

    return _INCLUDE.sub(part, body)


def read_migrations(package: str) -> dict[int, str]:
    """The numbered migrations of a dialect, in order."""
    found = {int(name.split("_", 1)[0]): text for name, text in _sql_files(package, "migrations")}
    if sorted(found) != list(range(1, len(found) + 1)):
        raise ValueError(f"{package}: migrations are not numbered 1, 2, 3 …: {sorted(found)}")
    return dict(sorted(found.items()))


def parameters(statement: str) -> set[str]:
    return {name for name, _ in PARAMETER.findall(statement)}


def _sql_files(package: str, folder: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(files(package).joinpath(folder).iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".sql"):
            yield entry.name, entry.read_text(encoding="utf-8")
