"""The command of docs/concepts/mirror.md, as it stands there, on both stores."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from leasehold.operations import mirrors
from leasehold.surfaces.cli.main import run
from tests.backends import Backend
from tests.docs.pages import blocks
from tests.workers import burst


def test_the_command_of_the_page_does_what_the_page_says(backend: Backend, monkeypatch: pytest.MonkeyPatch):
    sqlite = backend.name == "sqlite"
    table, tables = (
        "tool_runs" if sqlite else f"{backend.schema}.tool_runs",
        blocks("concepts/mirror.md", "sql"),
    )
    prefix = "" if sqlite else f'SET search_path = "{backend.schema}"; '
    backend.query(prefix + tables[0 if sqlite else 1])
    names: dict[str, Any] = {}
    code = blocks("concepts/mirror.md", "python")[0].replace(
        '"sqlite:///shop.db"', f"{backend.url!r}, schema={backend.schema!r}"
    )
    exec(compile(code, "concepts/mirror.md", "exec", dont_inherit=True), names)
    (console,) = blocks("concepts/mirror.md", "console")
    command = next(
        shlex.split(line)
        for line in console.replace("\\\n", " ").split("$ leasehold ")
        if line.startswith("db mirror ")
    )
    command[command.index("tool_runs")] = table
    monkeypatch.setenv("LEASEHOLD_URL", backend.url)
    monkeypatch.setenv("LEASEHOLD_SCHEMA", backend.schema)
    with names["app"] as app:
        assert run(command) == 0
        try:
            names["run_tool"].enqueue(1, "make")
            where = "tool_runs" if sqlite else f'"{backend.schema}".tool_runs'
            assert backend.query(f"SELECT run_id, status FROM {where}") == [(1, "waiting")]
            burst(app)
            reported = f"SELECT run_id, status, exit_code, error, started_at IS NULL, finished_at IS NULL FROM {where}"
            assert backend.query(reported) == [(1, "ok", 0, None, False, False)]
        finally:
            for row in app.__internals__.operations.call(mirrors.list_mirrors):
                app.__internals__.operations.call(mirrors.remove_mirror, row.mirror.task, row.mirror)
            backend.query(
                f"DROP TABLE {where}" + ("" if sqlite else f'; DROP TYPE "{backend.schema}".run_status')
            )
