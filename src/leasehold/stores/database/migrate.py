"""Numbered migrations: what is missing is applied in order; what is newer than this code is refused."""

from __future__ import annotations

from leasehold.domain.errors import SchemaOutdated, SchemaTooNew


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
