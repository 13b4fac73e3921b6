"""Names that people give: of queues, tasks, lanes, keys, groups and tags."""

from __future__ import annotations

import re
from collections.abc import Iterable

from leasehold.domain.checks.payload import check_text
from leasehold.domain.errors import InvalidInput

LONGEST_NAME = 200


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")


Names = str | Iterable[str] | None


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


def checked_names(names: Names, field: str) -> tuple[str, ...] | None:
    """One name or several, each once, in order: so that the same question is recognised as the same."""
    if names is None:
        return None
    listed = [names] if isinstance(names, str) else list(names)
    return tuple(sorted({checked_name(name, field) for name in listed}))
