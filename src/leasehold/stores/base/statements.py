"""Named statements, read from .sql files.

A file holds `-- name: word` headers, each followed by comments that say why and by one statement with `:name`
parameters. The same names and parameters stand in both dialects; tests/architecture checks it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

_HEADER = re.compile(r"^-- name: ([a-z_.]+)\s*$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b(\.[a-z_]+)?")
"""`:name` or `:name.column`, but not a `::cast`."""


def read_statements(package: str) -> dict[str, str]:
    """All statements of a dialect, by name."""
    found: dict[str, str] = {}
    for file_name, text in _sql_files(package, "sql"):
        parts = _HEADER.split(text)
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise ValueError(f"{file_name}: statement {name!r} is defined twice")
            found[name] = _COMMENT.sub("", body).strip().rstrip(";")
    return found


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
