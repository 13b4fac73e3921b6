"""What the triggers of a mirror are made of, in any dialect."""

from __future__ import annotations

from typing import Protocol

from leasehold.domain.mirror import Mirror


class MirrorDialect(Protocol):
    """A mirror as the DDL of one dialect."""

    def create(self, mirror: Mirror) -> str:
        """A script that makes it, or makes it anew, and enters it among the mirrors."""

    def remove(self, name: str) -> str:
        """A script that takes it away."""

    def objects(self, mirror: Mirror) -> dict[str, str]:
        """What `list_mirror_objects` tells of it while all is well: names and definitions."""

    def table_of(self, mirror: Mirror) -> str:
        """The user's table as `list_columns` looks it up."""


def quoted(name: str) -> str:
    """An identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
