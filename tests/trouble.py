"""What is done to one tenant's database behind the store's back: damaged, locked, or without its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.backends import Backend

KINDS = ("damaged", "locked", "missing")
TABLES = ("lease", "ready", "outbox", "schedule", "time_limit")


class Trouble:
    def __init__(self, backend: Backend, tenant: str, kind: str) -> None:
        self._backend = backend
        self._tenant = tenant
        self._kind = kind
        self._file = Path(f"{backend.url.removeprefix('sqlite:///')}.tenants") / f"{tenant}.db"
        self._locks: Any = None

    def begin(self) -> None:
        getattr(self, f"_{self._backend.name}_{self._kind}")()

    def end(self) -> None:
        """Mend it, so that nothing that was stored before is lost."""
        getattr(self, f"_mend_{self._backend.name}_{self._kind}")()

    # -- SQLite ----------------------------------------------------------------------------------------------------
    def _sqlite_damaged(self) -> None:
        with closing(sqlite3.connect(self._file)) as whole, closing(sqlite3.connect(self._copy)) as copy:
            whole.backup(copy)
        for part in (
            "",
            "-wal",
            "-shm",
        ):  # with its index of the log: what connections have read is read again
            path = Path(f"{self._file}{part}")
            with path.open("r+b") as file:
                file.write(b"garbage!" * (max(path.stat().st_size, 4096) // 8))

    def _mend_sqlite_damaged(self) -> None:
        """As an operator restores a backup."""
        for part in ("-wal", "-shm"):
            Path(f"{self._file}{part}").unlink(missing_ok=True)
        self._copy.replace(self._file)

    @property
    def _copy(self) -> Path:
        return self._file.with_suffix(".copy")

    def _sqlite_locked(self) -> None:
        self._locks = sqlite3.connect(self._file, isolation_level=None, check_same_thread=False, timeout=60)
        self._locks.execute("BEGIN EXCLUSIVE")

    def _mend_sqlite_locked(self) -> None:
        self._locks.close()

    def _sqlite_missing(self, before: str = "leasehold_", after: str = "away_") -> None:
        with closing(sqlite3.connect(self._file, isolation_level=None, timeout=60)) as connection:
            connection.execute("PRAGMA legacy_alter_table = ON")  # views and triggers keep the old name
            for table in TABLES:
                connection.execute(f"ALTER TABLE {before}{table} RENAME TO {after}{table}")

    def _mend_sqlite_missing(self) -> None:
        self._sqlite_missing("away_", "leasehold_")

    # -- PostgreSQL ------------------------------------------------------------------------------------------------
    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self._backend.url, autocommit=True) as connection:
            connection.execute("SELECT set_config('search_path', %s, false)", [self._schema])
            yield connection

    @property
    def _schema(self) -> str:
        return f"{self._backend.schema}_{self._tenant}"

    def _postgres_damaged(self) -> None:
        """Every write meets the error with which the server reports a damaged page."""
        with self._connected() as connection:
            connection.execute(
                "CREATE FUNCTION damage() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                " RAISE EXCEPTION 'invalid page in block 7' USING ERRCODE = 'XX001'; END $$"
            )
            for table in TABLES:
                event = "BEFORE INSERT OR UPDATE OR DELETE"
                connection.execute(
                    f"CREATE TRIGGER damage {event} ON {table} EXECUTE FUNCTION damage()".encode()
                )

    def _mend_postgres_damaged(self) -> None:
        with self._connected() as connection:
            connection.execute("DROP FUNCTION damage() CASCADE")

    def _postgres_locked(self) -> None:
        self._locks = psycopg.connect(self._backend.url)
        self._locks.execute("SELECT set_config('search_path', %s, false)", [self._schema])
        # If it comes to a deadlock, the worker's statement has to give way.
        self._locks.execute("SET deadlock_timeout = '1min'")
        self._locks.execute(f"LOCK TABLE {', '.join(TABLES)}".encode())

    def _mend_postgres_locked(self) -> None:
        self._locks.close()

    def _postgres_missing(self) -> None:
        with self._connected() as connection:
            for table in TABLES:
                connection.execute(f"ALTER TABLE {table} RENAME TO away_{table}".encode())

    def _mend_postgres_missing(self) -> None:
        with self._connected() as connection:
            for table in TABLES:
                connection.execute(f"ALTER TABLE away_{table} RENAME TO {table}".encode())
