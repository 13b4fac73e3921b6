"""The commands of docs/http.md, as they stand there, against a server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from tests.backends import Backend
from tests.docs.pages import blocks, write_files

PATIENCE = 60


def test_the_commands_of_the_page_do_what_the_page_says(backend: Backend, tmp_path: Path):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl on this machine")
    assert write_files("http.md", tmp_path) == ["tasks.py"]
    environment = {**os.environ, "LEASEHOLD_URL": backend.url, "LEASEHOLD_SCHEMA": backend.schema}
    server = subprocess.Popen(
        [sys.executable, "-m", "leasehold", "serve", "tasks:app", "--with-worker", "--port", "0"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        found = next(
            match for line in server.stderr if (match := re.search(r"listening on (http://\S+)", line))
        )
        script = "\n".join(blocks("http.md", "sh")).replace("http://127.0.0.1:8700", found[1])
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert ran.returncode == 0, ran.stderr
        assert "urn:leasehold:problem" not in ran.stdout
        assert '"result":3' in ran.stdout
        assert ran.stdout.count("event: draft") == 1
        assert '"HELLO"' in ran.stdout
        assert '"state":"cancelled"' in ran.stdout
        server.terminate()
        server.communicate(timeout=PATIENCE)
        assert server.returncode == 0
    finally:
        server.kill()
        server.communicate()


def test_the_router_goes_into_the_readers_own_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_files("http.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tasks", raising=False)
    names: dict[str, Any] = {}
    (code,) = [block for block in blocks("http.md", "python") if not block.startswith("# ")]
    exec(compile(code, "http.md", "exec", dont_inherit=True), names)
    monkeypatch.delitem(sys.modules, "tasks", raising=False)
    assert isinstance(names["api"], FastAPI)
    assert "/jobs/v1/jobs" in names["api"].openapi()["paths"]
