"""The requests of docs/guides/http.md, as they stand there, against a server on each store."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends import Backend
from tests.docs.pages import blocks, write_files
from tests.launcher import launch

PATIENCE = 120


@pytest.mark.slow(5)
@pytest.mark.one_store("sqlite")
def test_the_requests_of_the_page_do_what_the_page_says(backend: Backend, tmp_path: Path):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl on this machine")
    assert write_files("guides/http.md", tmp_path) == ["tasks.py"]
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
        # The last one is about a second server, with tokens.
        script = "\n".join(block for block in blocks("guides/http.md", "sh") if "8701" not in block)
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            env={**environment, "API": found[1]},
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
