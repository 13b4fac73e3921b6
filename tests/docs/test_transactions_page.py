"""What docs/concepts/transactions.md says of a new SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import DatabaseUnreachable
from tests.docs.pages import blocks


def test_a_first_transaction_in_a_new_file_is_told_who_holds_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    code = blocks("concepts/transactions.md", "python")[0]
    exec(compile(code, "concepts/transactions.md", "exec", dont_inherit=True), names)
    with names["app"], closing(sqlite3.connect("shop.db")) as connection:
        connection.execute("create table orders (id integer primary key)")
        connection.execute("insert into orders values (1)")
        with pytest.raises(DatabaseUnreachable, match=r"locked; it is open in process \d+ \(this one\)"):
            names["ship"].using(tx=connection).enqueue(1)
