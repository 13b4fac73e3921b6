"""The PostgreSQL store: fast paths of enqueue and settle, wake-ups by NOTIFY, migrations under a lock, checks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

import psycopg
from psycopg.errors import DataError, UniqueViolation

from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import PLAIN, AlikeJobs, Enqueued, NewJob
from leasehold.domain.records import Finding, Verdict
from leasehold.stores.caller_transaction import Borrowed, BorrowedSession, Execute, as_dollars
from leasehold.stores.database.database import Clock, Session, beside_transaction
from leasehold.stores.database.statements import missing, read_migrations, tenant_schema
from leasehold.stores.database.wakeups import (
    Hint,
    LocalWakeups,
    Notify,
    NotifyThrottle,
    groups_label,
    ignore,
    notify_here,
    tenants_label,
)
from leasehold.stores.postgres.claim import PostgresClaims
from leasehold.stores.postgres.connections import SESSION, BoundedConnection, is_good, network_options
from leasehold.stores.postgres.database import (
    STATEMENTS,
    PostgresDatabase,
    PostgresSession,
    PostgresWakeups,
    as_array,
    bound,
    qualified,
)
from leasehold.stores.postgres.mirror import PostgresMirrors
from leasehold.stores.results import Ending
from leasehold.stores.verbs.audit import changed
from leasehold.stores.verbs.caller_transaction import another_database, filled_in, insert_parameters
from leasehold.stores.verbs.enqueue import fits_fast_insert, store_full_names
from leasehold.stores.verbs.limits import gate_id
from leasehold.stores.verbs.settle import settled_columns
from leasehold.stores.verbs.writing import Groups, group_records

# -- what can be wrong with a server -----------------------------------------------------------------------------------

_LOSES = "an acknowledged job can be lost in a crash of the server"
_SETTINGS: dict[str, tuple[Verdict, str, str]] = {
    "fsync": ("bad", "off", "a crash of the server can corrupt everything: switch it on"),
    "full_page_writes": ("warn", "off", "a crash can leave torn pages: switch it on"),
    "synchronous_commit": ("warn", "off", f"{_LOSES}: switch it on, at least for this role"),
}
RECEIVED_WITHIN = 2.0


def examine(database: PostgresDatabase, pooler_declared: bool) -> Iterator[Finding]:
    with _connect(database) as one, _connect(database) as other:
        yield Finding("database", "ok", f"PostgreSQL {_query(one, 'SHOW server_version')}")
        if _query(one, "SELECT pg_is_in_recovery()"):
            yield Finding("role", "bad", "the server is a standby: nothing can be written", "use the primary")
        for name, (verdict, wrong, remedy) in _SETTINGS.items():
            found = str(_query(one, "SELECT current_setting(%s)", name))
            bad = found == wrong
            yield Finding(name, verdict if bad else "ok", found, remedy if bad else "")
        pooled = shares_backends(one, other)
        yield _way(one, pooled, pooler_declared)
        if pooled:
            yield _compiling(one)
        yield _wake_ups(one, other, database.channel, pooled)


def _connect(database: PostgresDatabase) -> psycopg.Connection[Any]:
    return BoundedConnection.connect(
        database.url, autocommit=True, prepare_threshold=None, **network_options(database.url)
    )


def _query(connection: psycopg.Connection[Any], text: str, *values: str) -> Any:
    row = connection.execute(text.encode(), values or None).fetchone()
    return None if row is None else row[0]


def shares_backends(one: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> bool:
    """Whether two connections reach the same backend, or one connection reaches two: only a pooler that assigns
    backends by transaction does that."""
    first = _query(one, "SELECT pg_backend_pid()")
    with other.transaction():
        if _query(other, "SELECT pg_backend_pid()") == first:
            return True
        return bool(_query(one, "SELECT pg_backend_pid()") != first)


def _way(connection: psycopg.Connection[Any], pooled: bool, declared: bool) -> Finding:
    if pooled and not declared:
        return Finding(
            "pooler",
            "bad",
            "a transaction-mode pooler is in between, and the URL does not say so",
            "add ?pooler=transaction to the URL: nothing prepared survives there",
        )
    if pooled:
        return Finding("pooler", "ok", "transaction mode, as declared")
    if _query(connection, "SELECT pg_backend_pid()") != connection.info.backend_pid:
        return Finding("pooler", "ok", "something is in between, but each connection keeps its backend")
    return Finding("pooler", "ok", "none")


def _compiling(connection: psycopg.Connection[Any]) -> Finding:
    """Checks JIT behind a pooler; without one our connections switch it off themselves."""
    if _query(connection, "SHOW jit") == "off":
        return Finding("jit", "ok", "off")
    return Finding(
        "jit",
        "warn",
        "on: with many jobs waiting the server compiles each claim for longer than it runs",
        "ALTER ROLE … SET jit = off, for the role behind the pooler",
    )


def _wake_ups(
    one: psycopg.Connection[Any], other: psycopg.Connection[Any], channel: str, pooled: bool
) -> Finding:
    remedy = "give workers a listen_url that leads past the pooler; until then they poll once a second"
    if pooled:
        return Finding("wake-ups", "warn", "LISTEN does not reach through the pooler", remedy)
    one.execute(f'LISTEN "{channel}"'.encode())
    other.execute("SELECT pg_notify(%s, '')", [channel])
    received = any(True for _ in one.notifies(timeout=RECEIVED_WITHIN, stop_after=1))
    return (
        Finding("wake-ups", "ok", "LISTEN works")
        if received
        else Finding("wake-ups", "warn", "unheard", remedy)
    )


# -- in the user's own transaction -------------------------------------------------------------------------------------


_HARM = {
    "array_nulls": "the text 'NULL' would be stored for nothing",
    "datestyle": "psycopg cannot read its times",
}
"""What settings of the caller's connection would do, in the order of `identify`. The others do no harm."""


class PostgresCallerTransaction(PostgresClaims):
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

    def _check_same_database(self, session: Session) -> None:
        name, started, has_schema, *found = session.tuples("identify")[0]
        settings = dict(zip(_HARM, found, strict=True))
        if self._identity != (name, started):
            # The identity is not known yet, or the server was restarted.
            mine = self._database.read(lambda own: own.tuples("identify"))[0]
            self._identity = mine[:2]
        if self._identity != (name, started):
            raise another_database(self.label, f"database {name!r} of another server or of another name")
        if not has_schema:
            raise another_database(self.label, f"database {name!r}, where there is no such schema")
        for setting, value in settings.items():
            if not is_good(setting, value):
                raise InvalidInput(
                    "tx",
                    f"{setting} is {value!r} on the connection: {_HARM[setting]}",
                    f"run SET {setting} = '{SESSION[setting]}' on it first",
                )

    def _prepare(self, session: Session, jobs: Sequence[NewJob]) -> None:
        """Commits gates and long names at once, over a connection of ours: otherwise another producer of the same gate
        would wait for the user's commit. They stay valid whatever becomes of the transaction."""
        with beside_transaction():
            self._make_gates(jobs)
            if any(job.full_names for job in jobs):
                self._database.transact(lambda own: store_full_names(own, jobs))

    def _update_groups_at_commit(
        self, session: Session, changed: Groups, opened: Mapping[str, bool], cancelled: set[str]
    ) -> None:
        for opens in (True, False):
            some = {name: live for name, live in changed.items() if (name in opened) is opens}
            if some:
                session.run("change_groups_at_commit", groups=group_records(some), opens=opens)

    def _notify_at_commit(self, session: Session, jobs: Sequence[NewJob]) -> None:
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


# -- store -------------------------------------------------------------------------------------------------------------


class PostgresStore(PostgresCallerTransaction):
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
        self._forward_hint = notify
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
        notify_here(tenants_label(self.label), hint)

    def tenant_wakeups(self, listen_url: str | None = None) -> PostgresWakeups:
        database = self._postgres
        received = {database.channel: self.label, database.tenant_channel: tenants_label(self.label)}
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
        if len(jobs) == 1 and fits_fast_insert(jobs[0]):
            return [self._enqueue_plain(jobs[0])]
        made = self._copy(jobs) if isinstance(jobs, AlikeJobs) else None
        if made is None:
            made = super().enqueue(jobs)
        if any(one.created for one in made):
            self.notify_workers()
        return made

    def _enqueue_plain(self, job: NewJob) -> Enqueued:
        self._make_gates([job])
        notify = self._forward_hint is None and self._throttle.take_turn()
        created = False

        def insert(session: PostgresSession) -> bool:
            # In doubt, a row with our id was made by the earlier try.
            return insert_plain(session, job, self._postgres.channel if notify else None) or session.in_doubt

        try:
            created = self._postgres.single(insert, idempotent=True)
        finally:
            # The job was stored without a notification, or the turn to notify was not used.
            if created != notify and self._forward_hint is None:
                self._throttle.defer()
        if created and self._forward_hint is not None:
            self._forward_hint(Hint.WORK)
        elif created:
            notify_here(self.label)
        return Enqueued(job.id, created=created)

    def _copy(self, jobs: AlikeJobs) -> list[Enqueued] | None:
        """Store plain jobs by COPY. None: COPY does not fit these jobs, or the database refused them."""
        if self._postgres.clock.now() is not None or not fits_fast_insert(jobs.first) or jobs.first.delay:
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
            # In doubt, the try before this one stored them all. Otherwise the careful way finds the refused job.
            if not (in_doubt and isinstance(error, UniqueViolation)):
                return None
        return [Enqueued(job_id, created=True) for job_id in jobs.ids]

    # -- wake-ups --------------------------------------------------------------------------------------------------
    def _notify_others(self, hint: Hint) -> None:
        self._throttles[hint]()

    def wakeups(self, listen_url: str | None = None) -> PostgresWakeups:
        return PostgresWakeups(listen_url or self._postgres.url, {self._postgres.channel: self.label})

    def notify_watchers(self) -> None:
        notify_here(groups_label(self.label))
        if self._forward_hint is None:
            self._group_throttle()

    def group_wakeups(self, listen_url: str | None = None) -> PostgresWakeups | LocalWakeups:
        """A tenant's wake-ups use no connection: the number of connections would grow with the tenants."""
        database, label = self._postgres, groups_label(self.label)
        if self._forward_hint is not None:
            return LocalWakeups(label)
        return PostgresWakeups(listen_url or database.url, {database.group_channel: label})

    def close(self) -> None:
        for throttle in (*self._throttles.values(), self._group_throttle):
            throttle.flush()
        super().close()

    # -- schema ----------------------------------------------------------------------------------------------------
    def upgrade(self) -> list[int]:
        def work(session: PostgresSession) -> list[int]:
            with session.connection.answering_within(None):
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
        """Settle jobs that had ties when they were granted, or have them by now."""
        return self._end("settle_succeeded", endings)

    _ways_to_succeed = (_settle_plain, _settle_tied)

    def _end(self, statement: str, endings: Sequence[Ending]) -> tuple[set[int], bool]:
        if not endings:
            return set(), False
        rows = self._postgres.single(
            lambda session: session.tuples(statement, settled=settled_columns(endings))
        )
        return {seq for seq, _ in rows if seq is not None}, any(slots for _, slots in rows)


# -- plain jobs: one in one statement, many by COPY --------------------------------------------------------------------

ROWS_A_PIECE = 100
"""Rows sent to a COPY at a time: the server works on them while the next are prepared."""
MOST_ENCODING_SECONDS = 1.0
"""Seconds that encoding may take while the COPY is open, estimated from the first piece. Checks are the user's code and
may be slow, and the server ends a statement that hangs for long."""


def insert_plain(session: PostgresSession, job: NewJob, channel: str | None) -> bool:
    """Insert one plain job; whether it was made. With a channel, the same commit notifies its listeners."""
    common = _common(job.task, job.queue, job.priority, job.policy.dump(), job.delay, job.lease_seconds)
    notify = "false" if channel is None else "true"
    made = session.quick(
        "insert_plain", id=job.id, args=job.args, notify=notify, channel=channel or "", **common
    )
    return bool(made)


@lru_cache(maxsize=256, typed=True)
def _common(
    task: str, queue: str, priority: int, policy: str | None, delay: float, lease_seconds: float
) -> dict[str, str | None]:
    """The parameters that jobs of one task share, as text, made once."""
    return {
        "task": task,
        "queue": queue,
        "gate": str(gate_id(queue, task)),
        "priority": str(priority),
        "policy": policy,
        "delay": str(delay) if delay else None,
        "lease_seconds": str(lease_seconds),
    }


def copy_plain(session: PostgresSession, jobs: AlikeJobs) -> None:
    """Store plain jobs that are due now: all of them or, if one cannot be stored, none."""
    began = time.monotonic()
    jobs.encode(ROWS_A_PIECE)
    if (time.monotonic() - began) * len(jobs) / ROWS_A_PIECE > MOST_ENCODING_SECONDS:
        jobs.encode(len(jobs))
    job = jobs.first
    gate = gate_id(job.queue, job.task)
    alike_in_place = {"gate": gate, "priority": job.priority, "lease_seconds": job.lease_seconds}
    now, seqs = session.tuples("ready_many", count=len(jobs), **alike_in_place)[0]
    common = (
        str(gate),
        now,
        str(job.lease_seconds),
        str(job.priority),
        job.task,
        job.queue,
        job.policy.dump(),
    )
    alike = "\t".join(map(_field, common))
    numbers = iter(seqs.split(","))
    pieces = (zip(ids, args, numbers, strict=False) for ids, args in jobs.pieces(ROWS_A_PIECE))
    session.copy(
        "copy_plain",
        (
            "".join([f"{n}\t{job_id}\t{alike}\t{_field(args)}\n" for job_id, args, n in piece])
            for piece in pieces
        ),
    )


def _field(text: str | None) -> str:
    """A column in the text format of COPY."""
    if text is None:
        return "\\N"
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if "\n" in text or "\t" in text or "\r" in text:
        text = text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return text
