"""The PostgreSQL store: the short ways of enqueue and settle, wake-ups by NOTIFY, migrations under a lock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from psycopg.errors import DataError, UniqueViolation

from leasehold.domain.batch import AlikeJobs
from leasehold.domain.job import PLAIN, NewJob
from leasehold.domain.records import Finding
from leasehold.stores.database.audit import changed
from leasehold.stores.database.database import Clock, Session
from leasehold.stores.database.migrate import missing
from leasehold.stores.database.schema_name import tenant_schema
from leasehold.stores.database.statements import read_migrations
from leasehold.stores.database.wakeups import (
    Hint,
    NearWakeups,
    Notify,
    NotifyThrottle,
    groups_of,
    ignore,
    notify_here,
    tenants_of,
)
from leasehold.stores.postgres.caller_transaction import PostgresEnlisting
from leasehold.stores.postgres.database import PostgresDatabase, PostgresSession
from leasehold.stores.postgres.database_checks import examine
from leasehold.stores.postgres.dialect import qualified
from leasehold.stores.postgres.enqueue import copy_plain, insert_plain
from leasehold.stores.postgres.mirror import PostgresMirrors
from leasehold.stores.postgres.wakeup import PostgresWakeups
from leasehold.stores.results import Ending, Enqueued
from leasehold.stores.verbs.enqueue import is_plain
from leasehold.stores.verbs.settle import settled_columns


class PostgresStore(PostgresEnlisting):
    _migrations = read_migrations("leasehold.stores.postgres")

    def __init__(
        self,
        url: str,
        schema: str = "leasehold",
        clock: Clock | None = None,
        *,
        pooler: bool = False,
        pool_size: int = 8,
        results: str | None = None,
        database: PostgresDatabase | None = None,
        notify: Notify | None = None,
    ) -> None:
        super().__init__(database or PostgresDatabase(url, schema, clock, pooler=pooler, pool_size=pool_size))
        self._pooler = self._postgres.connections.pooler
        self._results_root = None if results is None else os.path.abspath(results)
        self._results_named = results is not None
        self._notify = notify
        self._throttles = {hint: NotifyThrottle(partial(self._postgres.notify, hint)) for hint in Hint}
        self._throttle = self._throttles[Hint.WORK]
        self._group_throttle = NotifyThrottle(self._postgres.notify_watchers)

    def another(self) -> PostgresStore:
        database = self._postgres
        return PostgresStore(
            database.url,
            database.schema,
            database.clock,
            pooler=self._pooler,
            pool_size=1,
            results=self._results_root,
        )

    # -- tenants ---------------------------------------------------------------------------------------------------
    def open_tenant(self, name: str, notify: Notify) -> PostgresStore:
        database = self._database_of(name)
        return PostgresStore(self._postgres.url, database=database, notify=notify, results=self._results_root)

    def notify_tenants(self, names: Sequence[str], hint: Hint) -> None:
        def work(session: PostgresSession) -> None:
            session.run("notify_tenants", names=list(names))
            self._postgres.notify_tenants(session, hint)

        self._postgres.transact(work)
        notify_here(tenants_of(self.label), hint)

    def tenant_wakeups(self, listen_url: str | None = None) -> PostgresWakeups:
        database = self._postgres
        received = {database.channel: self.label, database.tenant_channel: tenants_of(self.label)}
        return PostgresWakeups(listen_url or database.url, received)

    def _database_of(self, name: str) -> PostgresDatabase:
        own = self._postgres
        return PostgresDatabase(own.url, tenant_schema(own.schema, name), own.clock, beside=own)

    def _taken(self, name: str) -> str | None:
        found = self._database_of(name)
        return f"the schema {found.schema!r}" if found.has_schema() else None

    def _make(self, name: str) -> None:
        self.open_tenant(name, ignore).upgrade()

    def _remove(self, name: str) -> None:
        self.open_tenant(name, ignore).drop()

    # -- enqueue ---------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if len(jobs) == 1 and is_plain(jobs[0]):
            return [self._enqueue_plain(jobs[0])]
        made = self._copy(jobs) if isinstance(jobs, AlikeJobs) else None
        if made is None:
            made = super().enqueue(jobs)
        if any(one.created for one in made):
            self.notify_workers()
        return made

    def _enqueue_plain(self, job: NewJob) -> Enqueued:
        self._make_gates([job])
        notify = self._notify is None and self._throttle.due()
        created = False

        def insert(session: PostgresSession) -> bool:
            # In doubt, a row with our id was made by the earlier try.
            return insert_plain(session, job, self._postgres.channel if notify else None) or session.in_doubt

        try:
            created = self._postgres.single(insert, idempotent=True)
        finally:
            # Stored without a notification, or a turn that was taken for nothing.
            if created != notify and self._notify is None:
                self._throttle.defer()
        if created and self._notify is not None:
            self._notify(Hint.WORK)
        elif created:
            notify_here(self.label)
        return Enqueued(job.id, created=created)

    def _copy(self, jobs: AlikeJobs) -> list[Enqueued] | None:
        """None: they are too special, or the database would not take them this way."""
        if self._postgres.clock.now() is not None or not is_plain(jobs.first) or jobs.first.delay:
            return None
        self._make_gates([jobs.first])
        in_doubt = False

        def copy(session: PostgresSession) -> None:
            nonlocal in_doubt
            in_doubt = session.in_doubt
            copy_plain(session, jobs)

        try:
            self._postgres.transact(copy, idempotent=True)
        except (UniqueViolation, DataError) as error:
            # The try before this one has made them all, or a value cannot be stored: the careful way tells which.
            if not (in_doubt and isinstance(error, UniqueViolation)):
                return None
        return [Enqueued(job_id, created=True) for job_id in jobs.ids]

    # -- wake-ups --------------------------------------------------------------------------------------------------
    def _notify_others(self, hint: Hint) -> None:
        self._throttles[hint]()

    def wakeups(self, listen_url: str | None = None) -> PostgresWakeups:
        return PostgresWakeups(listen_url or self._postgres.url, {self._postgres.channel: self.label})

    def notify_watchers(self) -> None:
        notify_here(groups_of(self.label))
        if self._notify is None:
            self._group_throttle()

    def group_wakeups(self, listen_url: str | None = None) -> PostgresWakeups | NearWakeups:
        """Of a tenant without a connection: those would grow with the tenants."""
        database, label = self._postgres, groups_of(self.label)
        if self._notify is not None:
            return NearWakeups(label)
        return PostgresWakeups(listen_url or database.url, {database.group_channel: label})

    def close(self) -> None:
        for throttle in (*self._throttles.values(), self._group_throttle):
            throttle.flush()
        super().close()

    # -- schema ----------------------------------------------------------------------------------------------------
    def upgrade(self) -> list[int]:
        def work(session: PostgresSession) -> list[int]:
            found = self._postgres.prepare_schema(session)
            todo = missing(self.label, found, self._migrations)
            for version, text in todo.items():
                self._postgres.script(text, session)
                session.run("record_migration", version=version)
            if todo:
                self._renew_mirrors(session)
            return changed(list(todo))

        return self._postgres.transact(work)

    def drop(self) -> None:
        self._postgres.transact(self._postgres.drop_schema)

    def upgrade_sql(self, after: int = 0) -> str:
        parts = [
            "BEGIN;",
            "CREATE SCHEMA IF NOT EXISTS leasehold;",
            "CREATE TABLE IF NOT EXISTS leasehold.migration"
            " (version integer PRIMARY KEY, applied_at timestamptz NOT NULL);",
        ]
        for version, text in missing(self.label, after, self._migrations).items():
            parts += [text.strip(), f"INSERT INTO leasehold.migration VALUES ({version}, now());"]
        return qualified("\n".join([*parts, "COMMIT;"]), self._postgres.schema)

    # -- mirrors ---------------------------------------------------------------------------------------------------
    @property
    def _mirrors(self) -> PostgresMirrors:
        return PostgresMirrors(self._postgres.schema)

    def _run_script(self, session: Session, text: str) -> None:
        assert isinstance(session, PostgresSession)
        self._postgres.run_as_it_is(text, session)

    # -- vitals ----------------------------------------------------------------------------------------------------
    def examine(self) -> list[Finding]:
        return list(examine(self._postgres, self._pooler))

    # -- settle ----------------------------------------------------------------------------------------------------
    def _settle_plain(self, endings: Sequence[Ending]) -> tuple[set[int], bool]:
        tied = {ending.seq for ending in endings if ending.seq is not None and ending.special != PLAIN}
        left, _ = self._end("settle_plain", [ending for ending in endings if ending.seq not in tied])
        return left | tied, False

    def _settle_tied(self, endings: Sequence[Ending]) -> tuple[set[int], bool]:
        """Jobs that had ties when they were granted, or have them by now."""
        return self._end("settle_succeeded", endings)

    _ways_to_succeed = (_settle_plain, _settle_tied)

    def _end(self, statement: str, endings: Sequence[Ending]) -> tuple[set[int], bool]:
        if not endings:
            return set(), False
        rows = self._postgres.single(
            lambda session: session.tuples(statement, settled=settled_columns(endings))
        )
        return {seq for seq, _ in rows if seq is not None}, any(slots for _, slots in rows)
