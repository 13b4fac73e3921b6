"""docs/streaming.md: its files, run as it says, print what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks, write_files


@pytest.mark.timeout(90)
def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    assert write_files("streaming.md", tmp_path) == ["crawl.py", "follow.py"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), environment.get("PYTHONPATH", "")])
    run = {"cwd": tmp_path, "env": environment}
    worker = subprocess.Popen([sys.executable, "-m", "leasehold", "worker", "crawl:app"], **run)
    try:
        told = subprocess.run(
            [sys.executable, "follow.py"], **run, capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        worker.terminate()
        worker.wait(30)
    assert told.stderr == ""
    assert told.stdout == blocks("streaming.md", "text")[0]
