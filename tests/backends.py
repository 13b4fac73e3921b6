"""A database under test and the stores that are open on it."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from leasehold.domain.checks.ids import make_id
from leasehold.domain.job import Job, NewJob
from leasehold.stores.database.database import Clock
from leasehold.stores.open import open_store
from leasehold.stores.store import JobStore

TABLES = (
    "job",
    "ready",
    "lane_place",
    "lease",
    "parked",
    "outcome",
    "result_piece",
    "failure_state",
    "attempt",
    "unique_key",
    "lane_hold",
    "lane_stop",
    "ticket",
    "pause",
    "slot",
    "lease_slot",
    "slot_hold",
    "rate",
    "running_cap",
    "job_group",
    "member",
    "time_limit",
    "execution",
    "tag",
    "dependency",
    "follow_up",
    "question",
    "step",
    "checkpoint",
    "job_update",
    "stream",
    "log_tail",
    "spending",
    "budget",
    "stop_mark",
    "history",
    "worker",
    "long_name",
    "schedule",
    "schedule_host",
    "mirror",
    "retention",
    "listener",
    "outbox",
    "webhook",
    "tenant",
    "token",
    "idempotency_key",
    "audit",
    "rollup",
)
"""What a test leaves behind. `gate` and `worker_name` stay: stores remember which ones they have made."""


@dataclass
class Backend:
    name: str
    url: str
    schema: str = "leasehold"
    _opened: list[JobStore] = field(default_factory=list)
    keeps_session: bool = False
    """To open a session of PostgreSQL takes longer than most looks at its tables."""
    _kept: tuple[Any, int] | None = None

    def open(self, clock: Clock | None = None, results: str | None = None) -> JobStore:
        """Another store on this database, as another process would have. Without a clock: the database's own."""
        store = open_store(self.url, schema=self.schema, clock=clock, results=results)
        self._opened.append(store)
        return store

    def query(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        """Look at the tables behind the store's back. Names are written as `leasehold.job`; `leasehold.job_row` shows
        whole jobs."""
        if self.name == "sqlite":
            connection = sqlite3.connect(self.url.removeprefix("sqlite:///"))
            try:
                with connection:
                    return connection.execute(text.replace("leasehold.", "leasehold_"), values).fetchall()
            finally:
                connection.close()
        with self._session() as connection:
            cursor = connection.execute(
                text.replace("leasehold.", f'"{self.schema}".').replace("?", "%s").encode(), values or None
            )
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def _session(self) -> Iterator[Any]:
        """A session of PostgreSQL to look with; with `keeps_session` the same one for all looks of the main thread.
        One that the server has ended is replaced."""
        import psycopg

        if not self.keeps_session or threading.current_thread() is not threading.main_thread():
            with psycopg.connect(self.url, autocommit=True) as connection:
                yield connection
            return
        kept, pid = self._kept or (None, 0)
        if kept is None or pid != os.getpid() or select.select([kept], [], [], 0)[0]:
            self.close_session()
            kept = psycopg.connect(self.url, autocommit=True, prepare_threshold=None)
            self._kept = kept, os.getpid()
        yield kept

    def close_session(self) -> None:
        kept, pid = self._kept or (None, 0)
        if kept is not None and pid == os.getpid():
            kept.close()
        self._kept = None

    def empty(self) -> None:
        """On PostgreSQL in one go: a connection for each table would take longer than most tests."""
        deletes = [f"DELETE FROM leasehold.{table}" for table in TABLES]
        for text in deletes if self.name == "sqlite" else ["; ".join(deletes)]:
            self.query(text)

    @contextlib.contextmanager
    def copied(self) -> Iterator[Backend]:
        """A copy of this database, as after a dump and a restore: another file, or another schema."""
        if self.name == "sqlite":
            path = self.url.removeprefix("sqlite:///")
            other = Backend("sqlite", f"sqlite:///{path}.copy")
            with (
                contextlib.closing(sqlite3.connect(path)) as ours,
                contextlib.closing(sqlite3.connect(f"{path}.copy")) as theirs,
            ):
                ours.backup(theirs)
        else:
            other = Backend("postgres", self.url, f"{self.schema}_copy")
            other.open().upgrade()
            for table in (*TABLES, "gate", "worker_name"):
                self.query(f'DELETE FROM "{other.schema}".{table}')
                self.query(
                    f'INSERT INTO "{other.schema}".{table} OVERRIDING SYSTEM VALUE'
                    f" SELECT * FROM leasehold.{table}"
                )
            for table, column in self.query(
                "SELECT table_name, column_name FROM information_schema.columns"
                " WHERE table_schema = ? AND is_identity = 'YES'",
                other.schema,
            ):
                place = f'"{other.schema}".{table}'
                self.query(
                    f"SELECT setval(pg_get_serial_sequence('{place}', '{column}'), coalesce(max({column}), 0) + 1)"
                    f" FROM {place}"
                )
        try:
            yield other
            if self.name == "postgres":
                other.open().drop()
        finally:
            other.close_opened()

    def mislead_planner(self, rows: int) -> None:
        """PostgreSQL believes that the places have so few rows, or so many, on the pages that they have now: it takes
        rows per page from the last vacuum."""
        for table in ("job", "ready", "lane_place", "lease", "parked", "outcome"):
            self.query(
                "UPDATE pg_class SET relpages = 1000 * pg_relation_size(oid) / 8192, reltuples = 1000 * ?"
                f" WHERE oid = 'leasehold.{table}'::regclass",
                rows,
            )

    def close_opened(self) -> None:
        for store in self._opened:
            store.close()
        self._opened.clear()


def new_id() -> str:
    return make_id(time.time_ns() // 1_000_000, secrets.token_bytes(10))


def new_job(**fields: Any) -> NewJob:
    return NewJob(**{"id": new_id(), "task": "work", "args": "{}", **fields})


def put(store: JobStore, **fields: Any) -> Job:
    """Enqueue one job and read it back."""
    (made,) = store.enqueue([new_job(**fields)])
    return store.get(made.id)
