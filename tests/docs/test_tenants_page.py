"""docs/concepts/tenants.md on PostgreSQL, where a tenant is a schema; test_every_page.py walks it on SQLite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends import Backend
from tests.docs.pages import blocks, write_files


@pytest.mark.slow(13)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_the_page_walked_word_by_word(backend: Backend, tmp_path: Path) -> None:
    assert write_files("concepts/tenants.md", tmp_path) == ["tasks.py", "customers.py"]
    tasks, place = tmp_path / "tasks.py", f"{backend.url!r}, schema={backend.schema!r}"
    tasks.write_text(
        tasks.read_text(encoding="utf-8").replace('"sqlite:///tasks.db"', place), encoding="utf-8"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")}
    program, serving = blocks("concepts/tenants.md", "console")
    printed = "".join(f"{line}\n" for line in program.splitlines()[1:])
    export, create, worker, _, everybody = re.findall(r"^\$ (.*?)\s*&?\s*(?:#.*)?$", serving, re.MULTILINE)
    name, _, value = export.removeprefix("export ").partition("=")
    environment[name] = value

    def run(*argv: str) -> str:
        done = subprocess.run(
            [sys.executable, *argv], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def leasehold(line: str) -> str:
        return run("-m", "leasehold", *line.split()[1:])

    try:
        assert run("customers.py") == printed
        leasehold(create)
        leasehold(worker)
        assert leasehold("leasehold jobs --tenant acme").count("succeeded") == 3
        leasehold(f"{everybody} --burst")
        assert leasehold("leasehold jobs --json").strip() == "[]"
    finally:
        for tenant in ("acme", "beta"):
            leasehold(f"leasehold tenants drop {tenant} --yes")
