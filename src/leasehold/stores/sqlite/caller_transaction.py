"""The user's own transaction on SQLite: there is one writer, so everything goes through it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from leasehold.domain.job import NewJob
from leasehold.stores.caller_transaction.borrowed import Borrowed, Execute
from leasehold.stores.database.database import Session
from leasehold.stores.sqlite.claim import SqliteClaims
from leasehold.stores.sqlite.database import STATEMENTS
from leasehold.stores.verbs.caller_transaction import another_database, filled_in, insert_parameters
from leasehold.stores.verbs.enqueue import notify_groups
from leasehold.stores.verbs.gates import make_limited_gates
from leasehold.stores.verbs.writing import Groups


class SqliteEnlisting(SqliteClaims):
    def _session_over(self, borrowed: Borrowed, execute: Execute) -> Session:
        if borrowed.database != "sqlite":
            raise another_database(self.label, "PostgreSQL")
        return self._sqlite.session_over(execute)

    def _insert_sql(self, job: NewJob) -> str:
        left = {"id": ":id", "args": ":args"}
        return filled_in(STATEMENTS["insert_by_hand"], insert_parameters(job), left) + ";"

    def _check_place(self, session: Session) -> None:
        ((file,),) = session.tuples("identify")
        if not file:
            raise another_database(self.label, "a database in memory")
        try:
            same = os.path.samefile(file, self._sqlite.path)
        except OSError:
            same = False
        if not same:
            raise another_database(self.label, file)

    def _prepare(self, session: Session, jobs: Sequence[NewJob]) -> None:
        """Our own writer would wait for the user's transaction. Nothing of it is remembered: it may be rolled back."""
        missing = self._unknown_gates(jobs)
        if missing:
            make_limited_gates(session, missing)

    def _notify_within(
        self, session: Session, changed: Groups, opened: Mapping[str, bool], filed: set[str]
    ) -> None:
        """At once: a transaction that ends a job of the group waits for the one writer anyway."""
        notify_groups(session, changed, opened, filed)
