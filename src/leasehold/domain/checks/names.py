"""Checks names that people give: of queues, tasks, lanes, keys, groups, tags and tenants."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from leasehold.domain.checks.payload import check_text
from leasehold.domain.errors import InvalidInput

LONGEST_NAME = 200


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")


_TENANT = re.compile(r"[a-z][a-z0-9_]{0,47}")
EVERY_TENANT = "all"
"""Stands for all tenants, so no tenant may have this name."""


Names = str | Iterable[str] | None

_BEGINNING, _DIGITS = 160, 24
SHORTENED = re.compile(f".{{{_BEGINNING}}}…[0-9a-f]{{{_DIGITS}}}", re.DOTALL)
"""Matches a long name in the form that stores keep; it may be part of a longer text."""


def checked_name(name: object, field: str) -> str:
    """Return the name of a queue, task, lane, key, group or tag: short text that every store can keep."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(field, f"{name!r} is not a name", "give a text that is not empty")
    if len(name) > LONGEST_NAME:
        raise InvalidInput(field, f"has {len(name)} characters", f"use at most {LONGEST_NAME}")
    check_text(name, field)
    if field in ("task", "queue") and not _NAME.fullmatch(name):
        raise InvalidInput(field, f"{name!r} is not a {field} name", "use letters, digits and _ . : -")
    return name


def checked_tenant(name: object) -> str:
    """Return the tenant's name. It becomes part of a schema's name or of a file's name."""
    if not isinstance(name, str) or not _TENANT.fullmatch(name) or name == EVERY_TENANT:
        raise InvalidInput(
            "tenant",
            f"{name!r} is not a tenant's name",
            "use lower-case letters, digits and _, starting with a letter, at most 48 characters, and not 'all'",
        )
    return name


def storable_name(name: object, field: str) -> str:
    """Return a lane, key, tag, slot or rate of any length in the form that stores keep: a long name becomes its
    beginning and a hash of the whole. The same name always gives the same text."""
    if not isinstance(name, str) or len(name) <= LONGEST_NAME:
        return checked_name(name, field)
    check_text(name, field)
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGITS // 2).hexdigest()
    return f"{name[:_BEGINNING]}…{digest}"


def checked_names(names: Names, field: str) -> tuple[str, ...] | None:
    """Return one or several names, each once and sorted, so that equal filters compare equal."""
    if names is None:
        return None
    listed = [names] if isinstance(names, str) else list(names)
    return tuple(sorted({storable_name(name, field) for name in listed}))
