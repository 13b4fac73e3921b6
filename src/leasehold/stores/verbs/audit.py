"""Audit: operators' changes, written in the transaction of the verb itself, and refused verbs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from leasehold.domain.audit import AuditEntry, AuditPage, AuditRow, checked_cursor
from leasehold.domain.checks.numbers import check_page
from leasehold.domain.errors import LeaseholdError, StoreError
from leasehold.stores.database.database import Session
from leasehold.stores.verbs.writing import Verbs

# -- a verb and its record ---------------------------------------------------------------------------------------------
# The entry waits in the context of the verb's caller. The store's first transaction that changes something
# also stores the entry, so both are committed or neither; a rolled-back try leaves no entry. A caller without
# an entry, as on the hot path, only reads a context variable.

T = TypeVar("T")
Work = Callable[[Any], T]


class Transact(Protocol):
    def __call__(self, work: Work[T], /) -> T: ...


class Waiting:
    """An entry that no transaction has committed yet."""

    def __init__(self, store: str, entry: AuditEntry) -> None:
        self.store = store
        self.entry = entry
        self.waits = True
        self.changed = False
        """Whether the present try of the transaction has changed anything."""

    def go_with(self, transact: Transact, work: Work[T]) -> T:
        """Run `work` in one transaction with the entry. The transaction is not repeated if the reply to its
        commit is lost: the entry may be stored already."""

        def both(session: Session) -> T:
            self.changed = True
            answer = work(session)
            if self.changed:
                insert_entry(session, self.entry)
            return answer

        self.waits = False
        try:
            answer = transact(both)
        except BaseException:
            self.waits = True
            raise
        self.waits = not self.changed
        return answer


_waiting: ContextVar[Waiting | None] = ContextVar("leasehold_audit", default=None)


@contextmanager
def audited(store: str, entry: AuditEntry, write_refusal: Callable[[AuditEntry], None]) -> Iterator[None]:
    """Record one verb of this store. If it is refused before any change, `write_refusal` stores the entry."""
    waiting = Waiting(store, entry)
    try:
        before = _waiting.set(waiting)
        try:
            yield
        finally:
            _waiting.reset(before)
    except StoreError:
        raise  # the database failed; the verb was not refused
    except LeaseholdError as error:
        if waiting.waits:
            write_refusal(replace(entry, error=type(error).__name__))
        raise


def waiting_for(store: str) -> Waiting | None:
    """The entry that the next write to this store must store too, or None."""
    waiting = _waiting.get()
    return waiting if waiting is not None and waiting.waits and waiting.store == store else None


def changed(answer: T) -> T:
    """Return `answer`, the result of a transaction that may find nothing to do: if it is empty, this
    transaction stores no audit entry. A later transaction of the same verb may store it."""
    if not answer and (waiting := _waiting.get()) is not None:
        waiting.changed = False
    return answer


@contextmanager
def unrecorded() -> Iterator[None]:
    """Keep the audit entry out of transactions that only prepare the verb's change."""
    before = _waiting.set(None)
    try:
        yield
    finally:
        _waiting.reset(before)


@contextmanager
def recorded_in(store: str) -> Iterator[None]:
    """Store the audit entry in this store, because the verb makes its change here."""
    waiting = _waiting.get()
    if waiting is None:
        yield
        return
    own, waiting.store = waiting.store, store
    try:
        yield
    finally:
        waiting.store = own


def insert_entry(session: Session, entry: AuditEntry) -> None:
    session.run(
        "insert_audit",
        actor=entry.actor,
        verb=entry.verb,
        target=entry.target,
        detail=json.dumps(entry.detail, sort_keys=True),
        outcome="done" if entry.error is None else "refused",
        error=entry.error,
    )


# -- reads -------------------------------------------------------------------------------------------------------------

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
        # The first filter chooses the index to walk: it usually matches the fewest entries.
        given = {"target": target, "actor": actor, "verb": verb}
        criteria = {name: value for name, value in given.items() if value is not None}
        first, *others = criteria or ["seq"]
        filters = [f"list_audit.where_{name}" for name in others]
        parts = ["list_audit", f"list_audit.by_{first}", *filters, f"list_audit.page_by_{first}"]
        before = checked_cursor(cursor)
        rows = self._database.read(
            lambda session: session.listing(parts, before=before, limit=limit + 1, **criteria)
        )
        entries = [AuditRow(**{**row, "detail": json.loads(row["detail"])}) for row in rows[:limit]]
        return AuditPage(entries, str(entries[-1].seq) if len(rows) > limit else None)

    def prune_audit(self, age: float, limit: int = 1000) -> int:
        """Delete those of the `limit` oldest entries that are older than `age` seconds; the result is their
        number. A separate read finds them first: usually there is nothing to delete."""
        old = self._tuples("find_old_audit", age=age, limit=limit)
        if not old:
            return 0
        seqs = [row[0] for row in old]
        return len(self._database.single(lambda session: session.tuples("prune_audit", seqs=seqs)))
