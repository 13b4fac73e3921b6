"""Audit: what operators have done, written with the verb itself."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager

from leasehold.domain.audit import AuditEntry, AuditPage, AuditRow, checked_cursor
from leasehold.domain.checks.numbers import check_page
from leasehold.stores.database.audit import audited, insert_entry
from leasehold.stores.verbs.writing import Verbs

LONGEST_PAGE = 500


class AuditVerbs(Verbs):
    """What operators changed, and what was refused."""

    def audited(self, entry: AuditEntry) -> AbstractContextManager[None]:
        """Wraps one verb: the first transaction in the block that changes something also stores the entry, so both are
        committed or neither. A block that changes nothing stores no entry; a block that is refused stores the entry
        with the error's name in a transaction of its own."""
        return audited(self._database.label, entry, self.write_audit)

    def write_audit(self, entry: AuditEntry) -> None:
        """Store the entry in a transaction of its own."""
        self._database.single(lambda session: insert_entry(session, entry))

    def list_audit(
        self,
        actor: str | None = None,
        verb: str | None = None,
        target: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> AuditPage:
        """Entries, newest first; `cursor` is the last page's `next`."""
        check_page(limit, LONGEST_PAGE)
        # The first one says which index is walked: mostly it leaves the fewest.
        given = {"target": target, "actor": actor, "verb": verb}
        requested = {name: value for name, value in given.items() if value is not None}
        first, *others = requested or ["seq"]
        filters = [f"list_audit.where_{name}" for name in others]
        parts = ["list_audit", f"list_audit.by_{first}", *filters, f"list_audit.page_by_{first}"]
        before = checked_cursor(cursor)
        rows = self._database.read(
            lambda session: session.listing(parts, before=before, limit=limit + 1, **requested)
        )
        entries = [AuditRow(**{**row, "detail": json.loads(row["detail"])}) for row in rows[:limit]]
        return AuditPage(entries, str(entries[-1].seq) if len(rows) > limit else None)

    def prune_audit(self, age: float, limit: int = 1000) -> int:
        """Delete those of the `limit` oldest entries that are older than `age` seconds; the result is their number. The
        look is a read of its own: usually there is nothing to delete."""
        old = self._tuples("find_old_audit", age=age, limit=limit)
        if not old:
            return 0
        seqs = [row[0] for row in old]
        return len(self._database.single(lambda session: session.tuples("prune_audit", seqs=seqs)))
