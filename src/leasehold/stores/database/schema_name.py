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


LONGEST = 63
"""Bytes of a name that PostgreSQL keeps; it cuts off the rest without a word."""


def tenant_schema(schema: str, tenant: str) -> str:
    name = f"{schema}_{tenant}"
    if len(name) > LONGEST:
        raise InvalidInput(
            "tenant",
            f"{tenant!r} together with the schema {schema!r} has {len(name)} characters",
            f"use at most {LONGEST - 1 - len(schema)} for it",
        )
    return name
