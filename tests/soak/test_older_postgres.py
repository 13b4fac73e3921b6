"""The contract suite on the older PostgreSQL versions that we support."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import PostgresServer, why_unavailable

ROOT = Path(__file__).resolve().parents[2]
HEAD = """# The contract suite on older PostgreSQL

Written by `make soak`.

| PostgreSQL | tests passed | seconds |
|---|--:|--:|
"""
RESULT = re.compile(r"(\d+) passed.* in ([\d.]+)s")


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", [15, 16])
def test_the_contract_holds_on_postgres(version):
    if (reason := why_unavailable(version)) is not None:
        pytest.skip(reason)
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/contract", "-q", "-k", "postgres", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "LEASEHOLD_TEST_PG": str(version)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout[-5000:]
    passed, seconds = RESULT.search(told.stdout).groups()
    _write(version, int(passed), float(seconds))


def _write(version: int, passed: int, seconds: float) -> None:
    """One line per version; a later run replaces it."""
    file = ROOT / "docs" / "measured" / "older-postgres.md"
    rows = dict.fromkeys([15, 16], "")
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            if match := re.match(r"\| (\d+)\.", line):
                rows[int(match[1])] = line
    with PostgresServer(version) as server:
        import psycopg

        with psycopg.connect(server.url()) as connection:
            full = connection.execute("SHOW server_version").fetchone()[0].split()[0]
    rows[version] = f"| {full} | {passed} | {seconds:.0f} |"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(HEAD + "\n".join(filter(None, rows.values())) + "\n", encoding="utf-8")
