"""The code of docs/transactions.md, as it stands there."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from uuid import UUID

import pytest

from leasehold.errors import DatabaseUnreachable
from tests.docs.pages import blocks, write_files
from tests.workers import burst


def test_the_code_of_the_page_does_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    code = "\n".join(blocks("transactions.md", "python"))
    exec(compile(code, "transactions.md", "exec", dont_inherit=True), names)
    app, buy = names["app"], names["buy"]
    app.upgrade()
    job = buy(1)
    with pytest.raises(sqlite3.IntegrityError):
        buy(1)
    burst(app)
    assert job.result(timeout=0) == "order 1 is on its way"
    with closing(sqlite3.connect("shop.db")) as connection:
        assert connection.execute("select count(*) from leasehold_job").fetchall() == [(1,)]
    app.close()


@pytest.mark.timeout(90)
def test_the_program_of_the_page_runs_in_an_empty_folder(tmp_path):
    assert write_files("transactions.md", tmp_path) == ["shop.py"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")}
    done = subprocess.run(
        [sys.executable, "shop.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    UUID(done.stdout.strip())


def test_a_first_transaction_in_a_new_file_is_told_who_holds_the_lock(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(blocks("transactions.md", "python")[0], "transactions.md", "exec", dont_inherit=True), names)
    with (
        names["app"],
        pytest.raises(DatabaseUnreachable, match=r"locked; it is open in process \d+ \(this one\)"),
    ):
        names["buy"](1)
