"""The audit: what operators have done, and what they were refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from leasehold.domain.checks.texts import checked_actor
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen

KEPT_FOR = "90d"
"""Unless a worker is told otherwise."""
LARGEST_SEQ = 2**63 - 1

Outcome = Literal["done", "refused"]


@frozen
class AuditEntry:
    """One call of a verb, before it is a row. `detail` must not hold arguments, answers, secrets or tokens."""

    verb: str
    """Such as `job.cancel`."""
    target: str | None
    """What it was done to: a job's id, a queue's name …"""
    actor: str | None
    detail: Mapping[str, Any]
    error: str | None = None
    """The class of the error by which it was refused."""


@frozen
class AuditRow:
    """One thing that an operator did, or was refused."""

    seq: int
    at: datetime
    """By the database's clock."""
    actor: str | None
    verb: str
    target: str | None
    detail: dict[str, Any]
    outcome: Outcome
    error: str | None
    """The class of the error by which it was refused."""


@frozen
class AuditPage:
    """One page of the audit log, newest first."""

    entries: list[AuditRow]
    """Newest first."""
    next: str | None
    """`cursor` of the next page. None: there is none."""


def audit_entry(verb: str, target: str | None, actor: object, detail: Mapping[str, Any]) -> AuditEntry:
    """With what was given, and nothing else."""
    given = {name: _plain(value) for name, value in detail.items() if value or type(value) is int}
    return AuditEntry(verb, target, checked_actor(actor), given)


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    return json.loads(json.dumps(value))


def checked_cursor(cursor: object) -> int:
    """The seq that a page ends before. Without a cursor: all of them."""
    if cursor is None:
        return LARGEST_SEQ
    text = str(cursor) if isinstance(cursor, str | int) and not isinstance(cursor, bool) else ""
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST_SEQ):
        raise InvalidInput(
            "cursor", f"{cursor!r} is not a cursor of this list", "give `next` of the previous page"
        )
    return int(text)
