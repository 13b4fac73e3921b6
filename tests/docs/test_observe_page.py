"""docs/guides/logs.md: its file, run as it says, prints what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks, write_files


@pytest.mark.timeout(90)
def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    assert write_files("guides/logs.md", tmp_path) == ["shop.py"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")}
    reported = subprocess.run(
        [sys.executable, "shop.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (printed,) = blocks("guides/logs.md", "text")
    # Two threads print: a line of one may come between a line of the other and its end.
    assert [line for line in printed.splitlines() if line not in reported.stdout] == []
    assert len(reported.stdout.strip()) == len(printed.strip())
    assert "(pack): attempt 1 failed: RuntimeError: no box for a piano" in reported.stderr
