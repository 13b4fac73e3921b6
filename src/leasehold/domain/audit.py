"""Audit log records: every operator verb that was called, with its outcome."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from leasehold.domain.checks.texts import checked_actor
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen

KEPT_FOR = "90d"
"""Default retention of audit rows; a worker's settings may change it."""
LARGEST_SEQ = 2**63 - 1

Outcome = Literal["done", "refused"]


@frozen
class AuditEntry:
    """One call of a verb, before it is stored. `detail` must not hold arguments, answers, secrets or tokens."""

    verb: str
    """The name of the verb, such as `job.cancel`."""
    target: str | None
    """What the verb was applied to: a job's id, a queue's name …"""
    actor: str | None
    detail: Mapping[str, Any]
    error: str | None = None
    """The class of the error, if the call was refused."""


@frozen
class AuditRow:
    """One stored call of an operator verb, done or refused."""

    seq: int
    at: datetime
    """When the call was recorded, by the database's clock."""
    actor: str | None
    verb: str
    target: str | None
    detail: dict[str, Any]
    outcome: Outcome
    error: str | None
    """The class of the error, if the call was refused."""


@frozen
class AuditPage:
    """One page of the audit log, newest first."""

    entries: list[AuditRow]
    """The rows of this page, newest first."""
    next: str | None
    """`cursor` of the next page. None: this is the last page."""


def audit_entry(verb: str, target: str | None, actor: object, detail: Mapping[str, Any]) -> AuditEntry:
    """Build an entry; `detail` keeps only the parameters that were given."""
    given = {name: _plain(value) for name, value in detail.items() if value or type(value) is int}
    return AuditEntry(verb, target, checked_actor(actor), given)


def _plain(value: Any) -> Any:
    """Convert a value to plain JSON types."""
    if isinstance(value, datetime):
        return value.isoformat()
    return json.loads(json.dumps(value))


def checked_cursor(cursor: object) -> int:
    """Return the seq that the page ends before. Without a cursor, the page starts at the newest row."""
    if cursor is None:
        return LARGEST_SEQ
    text = str(cursor) if isinstance(cursor, str | int) and not isinstance(cursor, bool) else ""
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST_SEQ):
        raise InvalidInput(
            "cursor", f"{cursor!r} is not a cursor of this list", "give `next` of the previous page"
        )
    return int(text)
