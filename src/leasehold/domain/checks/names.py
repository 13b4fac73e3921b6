"""Names that people give: of queues, tasks, lanes, keys, groups and tags."""

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
"""No tenant may be called so."""


Names = str | Iterable[str] | None

_BEGINNING, _DIGITS = 160, 24
SHORTENED = re.compile(f".{{{_BEGINNING}}}…[0-9a-f]{{{_DIGITS}}}", re.DOTALL)
"""A long name as stores keep it: it may stand inside a longer text."""


def checked_name(name: object, field: str) -> str:
    """Queues, tasks, lanes, keys, groups and tags: short text that every store can keep."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(field, f"{name!r} is not a name", "give a text that is not empty")
    if len(name) > LONGEST_NAME:
        raise InvalidInput(field, f"has {len(name)} characters", f"use at most {LONGEST_NAME}")
    check_text(name, field)
    if field in ("task", "queue") and not _NAME.fullmatch(name):
        raise InvalidInput(field, f"{name!r} is not a {field} name", "use letters, digits and _ . : -")
    return name


def checked_tenant(name: object) -> str:
    """It becomes a part of a schema's name, or of a file's."""
    if not isinstance(name, str) or not _TENANT.fullmatch(name) or name == EVERY_TENANT:
        raise InvalidInput(
            "tenant",
            f"{name!r} is not a tenant's name",
            "use lower-case letters, digits and _, starting with a letter, at most 48 characters, and not 'all'",
        )
    return name


def kept_name(name: object, field: str) -> str:
    """A lane, key, tag, slot or rate, of any length, as stores keep it: a long one by its beginning and a hash of the
    whole. The same for the same name, whoever asks."""
    if not isinstance(name, str) or len(name) <= LONGEST_NAME:
        return checked_name(name, field)
    check_text(name, field)
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGITS // 2).hexdigest()
    return f"{name[:_BEGINNING]}…{digest}"


def checked_names(names: Names, field: str) -> tuple[str, ...] | None:
    """One name or several, each once, in order: so that the same question is recognised as the same."""
    if names is None:
        return None
    listed = [names] if isinstance(names, str) else list(names)
    return tuple(sorted({kept_name(name, field) for name in listed}))
