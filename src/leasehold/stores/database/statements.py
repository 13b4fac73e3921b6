"""Named statements from .sql files, checks of names inside SQL text, and numbered migrations.

A file holds `-- name: word` headers, each followed by comments that say why and by one statement with `:name`
parameters. Most statements have the same name and parameters in both dialects; DIALECT_ONLY in
tests/architecture/test_layout.py lists the others. Text that several
statements share is written once, under a header `-- part: word`; a line `-- include: word` inserts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

from leasehold.domain.errors import InvalidInput, SchemaOutdated, SchemaTooNew

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
    """Replace each include line by its part, which may include other parts."""

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


# -- names inside statements -------------------------------------------------------------------------------------------

_SCHEMA = re.compile(r"[a-z][a-z0-9_]{0,47}")


def checked_schema(name: str) -> str:
    """Return the schema name. It goes into SQL text, so InvalidInput unless it is a plain lower-case word."""
    if not _SCHEMA.fullmatch(name) or name.startswith("pg_") or name == "information_schema":
        raise InvalidInput(
            "schema",
            f"{name!r} is not a usable schema name",
            "use lower-case letters, digits and _, starting with a letter, at most 48 characters",
        )
    return name


LONGEST_IDENTIFIER = 63
"""Bytes of a name that PostgreSQL keeps; it cuts off the rest without an error."""


def tenant_schema(schema: str, tenant: str) -> str:
    name = f"{schema}_{tenant}"
    if len(name) > LONGEST_IDENTIFIER:
        raise InvalidInput(
            "tenant",
            f"{tenant!r} together with the schema {schema!r} has {len(name)} characters",
            f"use at most {LONGEST_IDENTIFIER - 1 - len(schema)} for it",
        )
    return name


# -- migrations --------------------------------------------------------------------------------------------------------


def check_version(label: str, found: int, known: int) -> None:
    """Raise unless the schema is the one this code was written for."""
    if found > known:
        raise SchemaTooNew(label, found, known)
    if found < known:
        raise SchemaOutdated(label, found, known)


def missing(label: str, found: int, migrations: dict[int, str]) -> dict[int, str]:
    """The migrations to apply, in order."""
    if found > len(migrations):
        raise SchemaTooNew(label, found, len(migrations))
    return {version: text for version, text in migrations.items() if version > found}
