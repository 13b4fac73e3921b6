"""The code of docs/guides/remote.md, as it stands there, against a server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends import Backend
from tests.docs.pages import blocks, write_files
from tests.launcher import launch

PATIENCE = 100


@pytest.mark.slow(5)
@pytest.mark.one_store("sqlite")
def test_the_code_of_the_page_does_what_the_page_says(backend: Backend, tmp_path: Path):
    assert write_files("guides/remote.md", tmp_path) == ["tasks.py"]
    environment = {**os.environ, "LEASEHOLD_URL": backend.url, "LEASEHOLD_SCHEMA": backend.schema}
    server = launch(
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
        code = "\n".join(
            block for block in blocks("guides/remote.md", "python") if not block.startswith("# ")
        )
        ran = subprocess.run(
            [sys.executable, "-c", code.replace("http://127.0.0.1:8700", found[1])],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert ran.returncode == 0, ran.stderr
        first, *reported, last = ran.stdout.splitlines()
        assert (first, last) == ("3", "3")
        assert reported.count("HELLO") == 1
        assert any(line.startswith("1. it is not due for 59 m, until ") for line in reported)
        assert "succeeded published" in reported
        assert "pause cancelled" in reported
    finally:
        server.kill()
        server.communicate()
