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
from leasehold.stores.postgres.database import PostgresDatabase, bound
from leasehold.stores.postgres.store import PostgresStore
from tests.backends import TABLES, Backend
from tests.plans.hot import ROWS
from tests.plans.indexes import POSTGRES_INDEXES, READ_WHOLE
from tests.plans.traced import Call

Mode = Literal["custom", "generic"]
MODES: tuple[Mode, ...] = ("custom", "generic")
LOCK_BY_SEQ = ("lock_anchors", "probe_ready", "probe_lane_places", "probe_leases", "lock_descendants")
"""Those that wait for locks must come to them by seq, or they deadlock with each other."""
WAIT_FOR_NOBODY = (
    "claim_idle",
    "claim_plain",
    "claim_shares",
    "claim_lanes",
    "renew",
    "settle_plain",
    "settle_succeeded",
)
"""They write what they have locked, and lock what is free."""
PLACES = ("ready", "lane_place", "lease", "parked", "outcome")

FEW_ROWS, TINY = 5_000, 200
"""A table of so few rows is read whole by right: an index would not be quicker. A tiny one however often."""

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
    sizes: dict[str, int]
    """Rows of the tables."""

    @property
    def nodes(self) -> list[Node]:
        return list(self.root.walk())

    @property
    def pages(self) -> int:
        return self.root.pages

    def whole_tables(self) -> list[str]:
        """Sequential scans of a table that is not small."""
        by_right = READ_WHOLE.get(self.statement, ())
        return [
            f"{self}: {node}"
            for node in self.nodes
            if node.kind == "Seq Scan" and node.table not in by_right and node.fields["Actual Loops"]
            if self.sizes[node.table] > FEW_ROWS
        ]

    def other_indexes(self) -> list[str]:
        """Indexes that this statement was not written for, and tables that it looks into by none that was meant."""
        meant = {name for name in POSTGRES_INDEXES.get(self.statement, set()) if self.is_large(name)}
        used = {node.index for node in self.nodes if node.index is not None and self.is_large(node.index)}
        served = {self._table_of(name) for name in used}
        return [f"{self}: {name} is not meant" for name in sorted(used - meant)] + [
            f"{self}: {name} is not used" for name in sorted(meant) if self._table_of(name) not in served
        ]

    def is_large(self, index: str) -> bool:
        return self.sizes[self._table_of(index)] > FEW_ROWS

    def _table_of(self, index: str) -> str:
        """Indexes are called after their tables."""
        return max((table for table in self.sizes if index.startswith(f"{table}_")), key=len)

    def too_many_rows(self, most: float = ROWS) -> list[str]:
        return [f"{self}: {n}" for n in self.nodes if n.rows > most and not self._reads_a_small_table(n)]

    def _reads_a_small_table(self, node: Node) -> bool:
        """No index is quicker: once, or however often if it is tiny."""
        if node.kind != "Seq Scan" or node.table is None:
            return False
        return self.sizes[node.table] <= (FEW_ROWS if node.fields["Actual Loops"] == 1 else TINY)

    def locked(self, table: str) -> float:
        """Rows of the table locked by SELECT … FOR UPDATE."""
        locks = [node for node in self.nodes if node.kind == "LockRows"]
        return sum(lock.rows for lock in locks if any(node.table == table for node in lock.walk()))

    def unordered_locks(self) -> list[str]:
        """What comes to be locked must come by seq."""
        return [f"{self}: {lead}" for lead in _leads_to_locks(self.root) if not is_by_seq(lead)]

    def unlocked_writes(self) -> list[str]:
        """Rows of places and tickets that are deleted or updated without having been locked before: by ctid only."""
        writes = [n for n in self.nodes if n.fields.get("Operation") in ("Update", "Delete")]
        moving = [n for n in writes if n.table in (*PLACES, "ticket")]
        return [
            f"{self}: {write}"
            for write in moving
            if not any(n.kind == "Tid Scan" and n.table == write.table for n in write.walk())
        ]

    def __str__(self) -> str:
        return f"{self.statement} ({self.mode})"


def _leads_to_locks(node: Node) -> Iterator[Node]:
    """What brings rows to be locked, one after the other: the outer side of a loop that locks, or what is locked."""
    if (
        node.kind == "Nested Loop" and any(below.kind == "LockRows" for below in node.inputs[1].walk())
    ) or node.kind == "LockRows":
        yield node.inputs[0]
    else:
        for child in node.children:
            yield from _leads_to_locks(child)


def is_by_seq(node: Node) -> bool:
    """In the order of the primary key, which is seq, or sorted by it."""
    keys = [key.rpartition(".")[2] for key in node.fields.get("Sort Key", [])]
    if node.kind == "Sort":
        return keys in (["seq"], ["job"])
    if node.kind in ("Nested Loop", "Subquery Scan"):
        return is_by_seq(node.inputs[0])
    if node.fields.get("CTE Name") == "found":
        return True  # sorted in the statement itself
    return node.kind == "Index Scan" and node.index in ("job_pkey", "ready_pkey", "lease_pkey")


class Scene:
    """A schema with a background in it, and later with work.

    Unless it is `durable`, it is made for plans: nobody else vacuums or analyses it.
    """

    def __init__(self, url: str, schema: str, *, durable: bool = False) -> None:
        self.store = PostgresStore(url, schema)
        self.store.upgrade()
        self.connection = psycopg.connect(url, autocommit=True, **self.store._postgres.connections.options())
        self.dialect = Dialect("postgres", self.store.identity(""))
        self._counted: dict[str, int] = {}
        if not durable:
            for table in TABLES:
                self.run(f"ALTER TABLE leasehold.{table} SET (autovacuum_enabled = false)")
                self.run(f"VACUUM leasehold.{table}")  # as it would be by itself a minute later

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
        self._counted.clear()
        self.analyse()

    def load_work(self) -> None:
        load_work(self.run, self.dialect)
        self._counted.clear()

    def vacuum(self) -> None:
        for table in TABLES:
            self.run(f"VACUUM ANALYZE leasehold.{table}")

    def analyse(self) -> None:
        self.run("ANALYZE " + ", ".join(f"leasehold.{table}" for table in (*TABLES, "gate", "worker_name")))

    def mislead(self, rows: int) -> None:
        """The planner believes that the places have so many rows, on the pages that they have now."""
        Backend("postgres", self.database.url, self.database.schema).mislead_planner(rows)

    def explain(self, call: Call, mode: Mode) -> Plan:
        """Run the statement as the store would, and leave no trace but dead rows."""
        text = call.text(self.database.statements)
        values = bound(call.parameters, self.database.clock)
        with self.connection.transaction(force_rollback=True):
            if mode == "custom":
                answer = self.connection.execute(_EXPLAIN + text, values).fetchone()
            else:
                answer = _explain_generic(self.connection, text, values)
        assert answer is not None
        reported = answer[0][0]
        return Plan(call.statement, mode, Node(reported["Plan"]), reported["Execution Time"], self._sizes())

    def close(self) -> None:
        self.run(f'DROP SCHEMA "{self.database.schema}" CASCADE')
        self.connection.close()
        self.store.close()

    def _sizes(self) -> dict[str, int]:
        """Counted once after each load: what is explained is undone."""
        if not self._counted:
            for (table,) in self.query(f"SELECT relname FROM pg_class WHERE relkind = 'r' AND {self._here}"):
                self._counted[table] = self.query(f"SELECT count(*) FROM leasehold.{table}")[0][0]
        return self._counted

    @property
    def _here(self) -> str:
        return f"relnamespace = '\"{self.database.schema}\"'::regnamespace"


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
