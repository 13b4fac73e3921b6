"""The contract suite on the older PostgreSQL versions that we support."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.measured import Page
from tests.servers import PostgresServer, why_unavailable

ROOT = Path(__file__).resolve().parents[2]
PAGE = Page(
    "older-postgres.md",
    "The contract suite on older PostgreSQL",
    "Written by `make soak`.",
    ("PostgreSQL", "tests passed", "seconds"),
)
RESULT = re.compile(r"(\d+) passed.* in ([\d.]+)s")


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", [15, 16])
def test_the_contract_holds_on_postgres(version):
    if (reason := why_unavailable(version)) is not None:
        pytest.skip(reason)
    reported = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/contract", "-q", "-k", "postgres", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "LEASEHOLD_TEST_PG": str(version)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert reported.returncode == 0, reported.stdout[-5000:]
    passed, seconds = RESULT.search(reported.stdout).groups()
    with PostgresServer(version) as server, psycopg.connect(server.url()) as connection:
        full = connection.execute("SHOW server_version").fetchone()[0].split()[0]
    PAGE.put(full, int(passed), round(float(seconds)))
