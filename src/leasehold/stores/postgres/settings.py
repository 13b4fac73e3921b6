"""What a session must be set to: values are sent and read as text, and each statement is a transaction of its own.

Set when a connection is opened, and looked at once. A pooler takes no start-up options: there the role must have them.
"""

from __future__ import annotations

from typing import Any

import psycopg

from leasehold.domain.errors import DatabaseTooOld, DatabaseUnfit

OLDEST = 150000
STATEMENT_SECONDS = 30

_SET = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "client_encoding": "UTF8",
    "array_nulls": "on",
    "default_transaction_isolation": "read committed",
}
_ALSO_GOOD = {"timezone": {"ETC/UTC", "UCT", "ETC/UCT", "GMT", "ETC/GMT", "ZULU"}}


def options(pooler: bool) -> dict[str, str]:
    """No statement of ours takes long; one that does is stuck. The server judges by an estimate whether to compile
    one: with many rows waiting that is far off, and a claim of 5 ms was compiled for 80."""
    if pooler:
        return {"client_encoding": "UTF8"}
    wanted = {"statement_timeout": f"{STATEMENT_SECONDS}s", "jit": "off", **_SET}
    words = [f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in wanted.items()]
    return {"options": " ".join(words), "client_encoding": "UTF8"}


def check(connection: psycopg.Connection[Any], label: str) -> None:
    """Raises unless the server and the session are fit."""
    if connection.info.server_version < OLDEST:
        raise DatabaseTooOld("PostgreSQL", str(connection.info.server_version // 10000), "15")
    names = ["server_encoding", *_SET]
    requested = "SELECT " + ", ".join(f"current_setting('{name}')" for name in names)
    with connection.cursor() as cursor:
        row = cursor.execute(requested.encode()).fetchone() or ()
    found = dict(zip(names, row, strict=True))
    encoding = found.pop("server_encoding")
    if encoding != "UTF8":
        raise DatabaseUnfit(
            label,
            f"its encoding is {encoding}, which cannot keep every text",
            "make the database with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )
    for name, value in found.items():
        if not _is_good(name, value):
            raise DatabaseUnfit(
                label,
                f"{name} is {value!r} on its connections",
                f"run: ALTER ROLE {connection.info.user} SET {name} = '{_SET[name]}'; and let the pooler reconnect",
            )


def _is_good(name: str, value: str) -> bool:
    if name == "datestyle":
        return value.startswith("ISO")
    return value.upper() in {_SET[name].upper(), *_ALSO_GOOD.get(name, ())}
