"""docs/results.md: its program prints what the page says, and only the one result is a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks, write_files


@pytest.mark.timeout(90)
def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    assert write_files("results.md", tmp_path) == ["reports.py"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")}
    done = subprocess.run(
        [sys.executable, "reports.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout == blocks("results.md", "text")[0]
    assert len(list((tmp_path / "jobs.db.results").rglob("*.json"))) == 1
