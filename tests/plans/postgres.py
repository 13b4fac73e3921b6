"""Plans of PostgreSQL as EXPLAIN ANALYZE tells them: custom ones, made for the values at hand, and generic ones, to
which a prepared statement may turn after five runs. And what is wrong with one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
from psycopg import Connection, sql

from bench.backgrounds import Dialect, Run, load_background, load_work
from leasehold.stores.postgres.database import PostgresDatabase, PostgresSession
from leasehold.stores.postgres.store import PostgresStore
from tests.plans.hot import POSTGRES_INDEXES, ROWS, Call

Mode = Literal["custom", "generic"]
MODES: tuple[Mode, ...] = ("custom", "generic")
LOCK_BY_ID = ("settle_succeeded", "update_jobs")
"""Statements that lock the rows they update as these come: they must come by id, or they deadlock with each other."""

FEW_PAGES = 40
"""A table of so few pages is read whole by right: an index would not be quicker."""
TABLES = ("job", "ticket")

_EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
_PLACEHOLDER = re.compile(r"%\(([\w.]+)\)s")


@dataclass(frozen=True)
class Node:
    fields: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.fields["Node Type"])

    @property
    def table(self) -> str | None:
        return self.fields.get("Relation Name")

    @property
    def index(self) -> str | None:
        return self.fields.get("Index Name")

    @property
    def children(self) -> list[Node]:
        return [Node(fields) for fields in self.fields.get("Plans", [])]

    @property
    def inputs(self) -> list[Node]:
        """The children that rows come from, outer one first; not the CTEs and subplans that hang beside them."""
        return [child for child in self.children if "Subplan Name" not in child.fields]

    @property
    def rows(self) -> float:
        """That came up here in all loops together, kept or not."""
        removed = sum(
            self.fields.get(f"Rows Removed by {by}", 0) for by in ("Filter", "Join Filter", "Index Recheck")
        )
        return float((self.fields["Actual Rows"] + removed) * self.fields["Actual Loops"])

    @property
    def pages(self) -> int:
        """Read or found in the cache, by this node and those below it."""
        return int(self.fields.get("Shared Hit Blocks", 0) + self.fields.get("Shared Read Blocks", 0))

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.walk()

    def __str__(self) -> str:
        shown = ("Subplan Name", "Node Type", "Index Name", "Relation Name", "CTE Name")
        name = " ".join(str(self.fields[field]) for field in shown if field in self.fields)
        return f"{name}: {self.rows:g} rows in {self.fields['Actual Loops']} loops, {self.pages} pages"


@dataclass(frozen=True)
class Plan:
    statement: str
    mode: Mode
    root: Node
    milliseconds: float

    @property
    def nodes(self) -> list[Node]:
        return list(self.root.walk())

    @property
    def pages(self) -> int:
        return self.root.pages

    def whole_tables(self) -> list[str]:
        """Sequential scans of a table that is not small."""
        return [
            f"{self}: {node}"
            for node in self.nodes
            if node.kind == "Seq Scan" and node.table in TABLES and node.fields["Actual Loops"]
            if node.pages > FEW_PAGES
        ]

    def other_indexes(self) -> list[str]:
        """Indexes that this statement was not written for, and intended ones that the plan leaves aside."""
        meant = POSTGRES_INDEXES[self.statement]
        used = {node.index for node in self.nodes if node.index in _INDEXES}
        small = {_INDEXES[name] for name in meant} - {_INDEXES[name] for name in used if name}
        small &= {node.table for node in self.nodes if node.kind == "Seq Scan" and node.pages <= FEW_PAGES}
        missing = {name for name in meant - used if _INDEXES[name] not in small} - _AT_NEED
        return [f"{self}: {name} is not meant" for name in sorted(used - meant)] + [
            f"{self}: {name} is not used" for name in sorted(missing)
        ]

    def too_many_rows(self) -> list[str]:
        return [f"{self}: {node}" for node in self.nodes if node.rows > ROWS]

    def locked(self, table: str) -> float:
        """Rows of the table locked by SELECT … FOR UPDATE."""
        locks = [node for node in self.nodes if node.kind == "LockRows"]
        return sum(lock.rows for lock in locks if any(node.table == table for node in lock.walk()))

    def unordered_locks(self) -> list[str]:
        """What leads the join below an UPDATE of jobs must be in the order of ids."""
        updates = [n for n in self.nodes if n.kind == "ModifyTable" and n.table == "job"]
        return [f"{self}: led by {lead}" for lead in map(lead_of, updates) if not is_by_id(lead)]

    def __str__(self) -> str:
        return f"{self.statement} ({self.mode})"


_AT_NEED = {"job_group_live"}  # read only where a pruned job belongs to a group
_INDEXES = {
    "job_pkey": "job",
    "job_claim": "job",
    "job_lane": "job",
    "job_lane_held": "job",
    "job_lane_halt": "job",
    "job_lease": "job",
    "job_orphan": "job",
    "job_unique": "job",
    "job_limited": "job",
    "job_notable": "job",
    "job_group_live": "job",
    "job_group_member": "job",
    "ticket_claim": "ticket",
}


def lead_of(update: Node) -> Node:
    (node,) = update.inputs
    while node.inputs and node.kind != "Bitmap Heap Scan":
        node = node.inputs[0]
    return node


def is_by_id(node: Node) -> bool:
    # v is sorted by id in the statement itself.
    return node.fields.get("CTE Name") == "v" or (node.kind == "Index Scan" and node.index == "job_pkey")


class Scene:
    """A schema with a background in it, and later with work.

    Unless it is `durable`, it is made for plans: nobody else vacuums or analyses it, and it loads without a log.
    """

    def __init__(self, url: str, schema: str, *, durable: bool = False) -> None:
        self.store = PostgresStore(url, schema)
        self.store.upgrade()
        self.connection = psycopg.connect(url, autocommit=True)
        self.dialect = Dialect("postgres")
        if not durable:
            for table in TABLES:
                self.run(f"ALTER TABLE leasehold.{table} SET (autovacuum_enabled = false)")
                self.run(f"ALTER TABLE leasehold.{table} SET UNLOGGED")

    @property
    def database(self) -> PostgresDatabase:
        return self.store._postgres

    @property
    def run(self) -> Run:
        return self.query

    def query(self, text: str) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(text.replace("leasehold.", f'"{self.database.schema}".').encode())
        return cursor.fetchall() if cursor.description else []

    def load(self, background: str, rows: int) -> None:
        load_background(self.run, self.dialect, background, rows)
        self.analyse()

    def load_work(self) -> None:
        load_work(self.run, self.dialect)

    def vacuum(self) -> None:
        for table in TABLES:
            self.run(f"VACUUM ANALYZE leasehold.{table}")

    def analyse(self) -> None:
        tables = ("job", "ticket", "gate", "pause", "job_group", "slot", "rate", "slot_hold")
        self.run("ANALYZE " + ", ".join(f"leasehold.{table}" for table in tables))

    def explain(self, call: Call, mode: Mode) -> Plan:
        """Run the statement as the store would, and leave no trace but dead rows."""
        text = self.database._statements[call.statement]
        values = self._bound(call)
        with self.connection.transaction(force_rollback=True):
            if mode == "custom":
                answer = self.connection.execute(_EXPLAIN + text, values).fetchone()
            else:
                answer = _explain_generic(self.connection, text, values)
        assert answer is not None
        told = answer[0][0]
        return Plan(call.statement, mode, Node(told["Plan"]), told["Execution Time"])

    def first_column(self, call: Call) -> list[str]:
        """What the statement answers, undone."""
        text = self.database._statements[call.statement]
        with self.connection.transaction(force_rollback=True):
            return [str(row[0]) for row in self.connection.execute(text, self._bound(call)).fetchall()]

    def close(self) -> None:
        self.run(f'DROP SCHEMA "{self.database.schema}" CASCADE')
        self.connection.close()
        self.store.close()

    def _bound(self, call: Call) -> dict[str, Any]:
        session = PostgresSession(self.connection, self.database._statements, self.database.clock)
        return session._bound(call.parameters)


def _explain_generic(connection: Connection[Any], text: str, values: dict[str, Any]) -> Any:
    # A plain EXPLAIN plans for the values it is given; only EXECUTE of a prepared statement shows the generic plan.
    names = list(dict.fromkeys(_PLACEHOLDER.findall(text)))
    numbered = _PLACEHOLDER.sub(lambda match: f"${names.index(match[1]) + 1}", text).replace("%%", "%")
    types = f"({', '.join(_sent_as(values[name]) for name in names)})" if names else ""
    arguments = sql.SQL(", ").join(sql.Literal(values[name]) for name in names)
    connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    connection.execute(f"PREPARE hot {types} AS {numbered}".encode())
    execute = sql.SQL("EXECUTE hot ({})").format(arguments) if names else sql.SQL("EXECUTE hot")
    answer = connection.execute(sql.SQL(_EXPLAIN) + execute).fetchone()
    connection.execute("DEALLOCATE hot")
    return answer


def _sent_as(value: Any) -> str:
    """The type psycopg gives a parameter: integers by their size, texts for the server to infer."""
    match value:
        case bool():
            return "boolean"
        case int():
            return "smallint" if abs(value) < 2**15 else "integer" if abs(value) < 2**31 else "bigint"
        case float():
            return "double precision"
        case _:
            return "unknown"
