"""What can be wrong with a PostgreSQL server and the way to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from leasehold.domain.records import Finding, Verdict
from leasehold.stores.postgres.connections import CONNECT_SECONDS
from leasehold.stores.postgres.database import PostgresDatabase

_LOSES = "an acknowledged job can be lost in a crash of the server"
_SETTINGS: dict[str, tuple[Verdict, str, str]] = {
    "fsync": ("bad", "off", "a crash of the server can corrupt everything: switch it on"),
    "full_page_writes": ("warn", "off", "a crash can leave torn pages: switch it on"),
    "synchronous_commit": ("warn", "off", f"{_LOSES}: switch it on, at least for this role"),
}
RECEIVED_WITHIN = 2.0


def examine(database: PostgresDatabase, pooler_declared: bool) -> Iterator[Finding]:
    with _connect(database) as one, _connect(database) as other:
        yield Finding("database", "ok", f"PostgreSQL {_ask(one, 'SHOW server_version')}")
        if _ask(one, "SELECT pg_is_in_recovery()"):
            yield Finding("role", "bad", "the server is a standby: nothing can be written", "use the primary")
        for name, (verdict, wrong, remedy) in _SETTINGS.items():
            found = str(_ask(one, "SELECT current_setting(%s)", name))
            bad = found == wrong
            yield Finding(name, verdict if bad else "ok", found, remedy if bad else "")
        pooled = shares_backends(one, other)
        yield _way(one, pooled, pooler_declared)
        if pooled:
            yield _compiling(one)
        yield _wake_ups(one, other, database.channel, pooled)


def _connect(database: PostgresDatabase) -> psycopg.Connection[Any]:
    return psycopg.connect(
        database.url, autocommit=True, connect_timeout=CONNECT_SECONDS, prepare_threshold=None
    )


def _ask(connection: psycopg.Connection[Any], text: str, *values: str) -> Any:
    row = connection.execute(text.encode(), values or None).fetchone()
    return None if row is None else row[0]


def shares_backends(one: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> bool:
    """Whether two connections can meet the same backend, or one of them two: only through a pooler that hands out
    backends by the transaction."""
    first = _ask(one, "SELECT pg_backend_pid()")
    with other.transaction():
        if _ask(other, "SELECT pg_backend_pid()") == first:
            return True
        return bool(_ask(one, "SELECT pg_backend_pid()") != first)


def _way(connection: psycopg.Connection[Any], pooled: bool, declared: bool) -> Finding:
    if pooled and not declared:
        return Finding(
            "pooler",
            "bad",
            "a transaction-mode pooler is in between, and Leasehold was not told",
            "add ?pooler=transaction to the URL: nothing prepared survives there",
        )
    if pooled:
        return Finding("pooler", "ok", "transaction mode, as told")
    if _ask(connection, "SELECT pg_backend_pid()") != connection.info.backend_pid:
        return Finding("pooler", "ok", "something is in between, but each connection keeps its backend")
    return Finding("pooler", "ok", "none")


def _compiling(connection: psycopg.Connection[Any]) -> Finding:
    """Elsewhere our connections switch it off by themselves."""
    if _ask(connection, "SHOW jit") == "off":
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
