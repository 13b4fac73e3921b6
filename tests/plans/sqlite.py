"""Plans of SQLite as EXPLAIN QUERY PLAN tells them, and the steps of its virtual machine that a statement takes: SQLite
has no EXPLAIN ANALYZE, but it can be made to count."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.backgrounds import QUEUE, Dialect, Run, load_background, load_work
from leasehold.stores.database.statements import parameters
from leasehold.stores.sqlite.database import STATEMENTS, SqliteDatabase, SqliteSession, _bound
from leasehold.stores.sqlite.store import SqliteStore
from tests.backends import TABLES
from tests.plans.indexes import READ_WHOLE, SQLITE_INDEXES, STAY_SMALL
from tests.plans.traced import Call

STEPS = 200_000
"""A batch of 500 may take this many: 400 a row."""

_ALIAS = re.compile(rf"\bleasehold_(?:{'|'.join(TABLES)}|gate|worker_name)\s+AS\s+(\w+)")
_VISIT = re.compile(
    r"(SCAN|SEARCH) (\w+)(?: USING (?:COVERING )?(?:INDEX (\w+)|(INTEGER PRIMARY KEY)|(PRIMARY KEY)))?"
)


@dataclass(frozen=True)
class Plan:
    statement: str
    text: str
    lines: list[str]
    steps: int

    def whole_tables(self) -> list[str]:
        """Scans of a table. What was found before and is gone through as a list is not one."""
        by_right = {*STAY_SMALL, *READ_WHOLE.get(self.statement, ())}
        scans = [(line, name) for line, verb, name, _ in self._visits() if verb == "SCAN"]
        return [
            f"{self.statement}: {line}" for line, name in scans if not _tables(self.text, name) & by_right
        ]

    def other_indexes(self) -> list[str]:
        """Indexes that this statement was not written for; it may be able to do without one that was meant."""
        used = {index for _, verb, _, index in self._visits() if verb == "SEARCH"}
        meant = SQLITE_INDEXES.get(self.statement, set())
        return [f"{self.statement}: {name} is not meant" for name in sorted(used - meant - _SMALL)]

    def too_many_steps(self) -> list[str]:
        return [f"{self.statement}: {self.steps} steps"] if self.steps > STEPS else []

    def _visits(self) -> list[tuple[str, str, str, str]]:
        """(line, SCAN or SEARCH, name of the table or its alias, index) of every visit to a table."""
        names = {f"leasehold_{table}" for table in TABLES} | set(_ALIAS.findall(self.text))
        found = []
        for line in self.lines:
            match = _VISIT.match(line)
            if match and match[2] in names and "VIRTUAL TABLE" not in line:
                index = match[3] or ("rowid" if match[4] else "key" if match[5] else "no index")
                found.append((line, match[1], match[2], _shown(index)))
        return found


_SMALL = {"worker_name_key", "pause_key", "slot_key", "running_cap_key", "rate_key"}
"""Of tables that stay small."""


def _shown(index: str) -> str:
    own = re.fullmatch(r"sqlite_autoindex_leasehold_(\w+)_1", index)
    if own is None:
        return index.removeprefix("leasehold_")
    return {"job": "job_id", "ready": "ready_seq"}.get(own[1], f"{own[1]}_key")


def _tables(text: str, name: str) -> set[str]:
    """The tables that go by this name in a statement."""
    if name.startswith("leasehold_"):
        return {name.removeprefix("leasehold_")}
    return {found[1] for found in re.finditer(rf"\bleasehold_(\w+)\s+AS\s+{name}\b", text)}


class Scene:
    """A file with a background in it, and later with work."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(str(path))
        self.store.upgrade()
        self.connection = sqlite3.connect(path, isolation_level=None)
        for pragma in ("synchronous = OFF", "cache_size = -200000", "wal_autocheckpoint = 100000"):
            self.connection.execute(f"PRAGMA {pragma}")
        self.dialect = Dialect("sqlite", self.store.identity(""))
        self._path = path

    @property
    def database(self) -> SqliteDatabase:
        return self.store._sqlite

    @property
    def run(self) -> Run:
        return self.query

    def query(self, text: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(text.replace("leasehold.", "leasehold_")).fetchall()

    def load(self, background: str, rows: int) -> None:
        with _transaction(self.connection, "COMMIT"):
            load_background(self.run, self.dialect, background, rows)

    def load_work(self) -> None:
        with _transaction(self.connection, "COMMIT"):
            load_work(self.run, self.dialect)

    def analyse(self) -> None:
        self.connection.execute("ANALYZE")

    def explain(self, call: Call) -> Plan:
        """Run the statement as the store would, and undo it."""
        text = call.text(STATEMENTS)
        values: dict[str, Any] = dict.fromkeys(parameters(text))
        values |= {name: _bound(value) for name, value in call.parameters.items()}
        if "now" in values:
            values["now"] = time.time_ns() // 1000
        lines = [row[3] for row in self.connection.execute("EXPLAIN QUERY PLAN " + text, values)]
        with _transaction(self.connection, "ROLLBACK"):
            steps = self._steps(lambda: self.connection.execute(text, values).fetchall())
        return Plan(call.statement, text, lines, steps)

    def idle_steps(self) -> int:
        """Of a look at everything, as each claim begins."""
        session = SqliteSession(self.connection, self.database.clock)
        return self._steps(
            lambda: self.store._find_due_groups(session, {"queues": [QUEUE], "tasks": None}, [])
        )

    def close(self) -> None:
        self.connection.close()
        self.store.close()
        self._path.unlink()

    def _steps(self, work: Callable[[], object]) -> int:
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        every = 10
        self.connection.set_progress_handler(count, every)
        try:
            work()
        finally:
            self.connection.set_progress_handler(None, 0)
        return steps * every


class _transaction:
    def __init__(self, connection: sqlite3.Connection, end: str) -> None:
        self._connection, self._end = connection, end

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, error: object, *_: object) -> None:
        self._connection.execute("ROLLBACK" if error else self._end)
