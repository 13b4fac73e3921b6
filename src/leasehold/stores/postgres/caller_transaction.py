"""The user's own transaction on PostgreSQL: beside it we write what all share, and its commit notifies groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from leasehold.domain.job import NewJob
from leasehold.stores.caller_transaction.binders import as_dollars
from leasehold.stores.caller_transaction.borrowed import Borrowed, BorrowedSession, Execute
from leasehold.stores.database.database import Session
from leasehold.stores.database.nested_writes import beside_transaction
from leasehold.stores.postgres.claim import PostgresClaims
from leasehold.stores.postgres.database import STATEMENTS, bound
from leasehold.stores.postgres.dialect import as_array, qualified
from leasehold.stores.verbs.caller_transaction import another_database, filled_in, insert_parameters
from leasehold.stores.verbs.long_names import keep_long_names
from leasehold.stores.verbs.writing import Groups, group_records


class PostgresEnlisting(PostgresClaims):
    _identity: tuple[Any, ...] | None = None

    def _session_over(self, borrowed: Borrowed, execute: Execute) -> Session:
        if borrowed.database != "postgres":
            raise another_database(self.label, "SQLite")
        database = self._postgres

        def named(_: str, text: str, given: Mapping[str, Any]) -> tuple[str, Any]:
            return text, bound(given, database.clock)

        def dollars(_: str, text: str, given: Mapping[str, Any]) -> tuple[str, Any]:
            values = {name: _text(value) for name, value in bound(given, database.clock).items()}
            sql, ordered = as_dollars(text, values)
            return sql, tuple(ordered)

        bind = dollars if borrowed.style == "dollars" else named
        return BorrowedSession(execute, bind, database.statements)

    def _insert_sql(self, job: NewJob) -> str:
        given = {**insert_parameters(job), "channel": self._postgres.channel}
        text = qualified(STATEMENTS["insert_by_hand"], self._postgres.schema)
        return filled_in(text, given, {"id": "$1", "args": "$2"}) + ";"

    def _check_place(self, session: Session) -> None:
        name, started, has_schema = session.tuples("identify")[0]
        if self._identity != (name, started):
            # Not known yet, or the server was started anew.
            mine = self._database.read(lambda own: own.tuples("identify"))[0]
            self._identity = mine[:2]
        if self._identity != (name, started):
            raise another_database(self.label, f"database {name!r} of another server or of another name")
        if not has_schema:
            raise another_database(self.label, f"database {name!r}, where there is no such schema")

    def _prepare(self, session: Session, jobs: Sequence[NewJob]) -> None:
        """Over a connection of ours, committed at once: another producer of the same gate would wait for the user's
        commit. They are true whatever becomes of the transaction."""
        with beside_transaction():
            self._make_gates(jobs)
            if any(job.long_names for job in jobs):
                self._database.transact(lambda own: keep_long_names(own, jobs))

    def _notify_within(
        self, session: Session, changed: Groups, opened: Mapping[str, bool], filed: set[str]
    ) -> None:
        for opens in (True, False):
            some = {name: live for name, live in changed.items() if (name in opened) is opens}
            if some:
                session.run("change_groups_at_commit", groups=group_records(some), opens=opens)

    def _announce(self, session: Session, jobs: Sequence[NewJob]) -> None:
        session.run("notify_at_commit", channel=self._postgres.channel)
        if any(job.group is not None for job in jobs):
            session.run("notify_at_commit", channel=self._postgres.group_channel)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return as_array(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)
