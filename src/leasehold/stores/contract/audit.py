"""What operators have done."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from leasehold.domain.audit import AuditEntry, AuditPage


class Audit(Protocol):
    """Who has changed what, and who was refused."""

    def audited(self, entry: AuditEntry) -> AbstractContextManager[None]:
        """Around one verb: the first transaction in the block that changes something carries the entry, so both are
        committed or neither. A block that changes nothing leaves none; one that is refused leaves the entry with the
        error's name, in a transaction of its own."""
        ...

    def write_audit(self, entry: AuditEntry) -> None:
        """By itself."""
        ...

    def list_audit(
        self,
        actor: str | None = None,
        verb: str | None = None,
        target: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> AuditPage:
        """Newest first; `cursor` is the last page's `next`."""
        ...

    def prune_audit(self, age: float, limit: int = 1000) -> int:
        """Of the `limit` oldest, delete those older than `age` seconds; how many."""
        ...
