"""`leasehold bench` measures beside the user's jobs and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

from tests.backends import Backend
from tests.surfaces.cli.conftest import Cli


def test_bench_tells_figures_and_removes_what_it_made(cli: Cli, backend: Backend) -> None:
    answer = cli("bench", "--jobs", "300", "--json")
    assert answer.code == 0, answer.err
    reported = answer.json
    assert reported["jobs"] == 300
    assert all(reported[name] > 0 for name in ("enqueue", "bulk", "drain", "pickup_ms"))
    if backend.name == "postgres":
        assert backend.query("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'leasehold_scratch%'") == []
    else:
        assert [path.name for path in Path(cli.folder).rglob("leasehold_scratch*")] == []
    assert cli("jobs", "--json").json == []
