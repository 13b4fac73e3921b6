"""Names that end up inside statements."""

from __future__ import annotations

import re

from leasehold.domain.errors import InvalidInput

_SCHEMA = re.compile(r"[a-z][a-z0-9_]{0,47}")


def checked_schema(name: str) -> str:
    """A schema name ends up inside statements, so it is a plain lower-case word or it is refused."""
    if not _SCHEMA.fullmatch(name) or name.startswith("pg_") or name == "information_schema":
        raise InvalidInput(
            "schema",
            f"{name!r} is not a usable schema name",
            "use lower-case letters, digits and _, starting with a letter, at most 48 characters",
        )
    return name
