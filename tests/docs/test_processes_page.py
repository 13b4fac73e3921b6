"""The program of docs/processes.md, as it stands there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import blocks, write_files


def test_the_program_of_the_page_prints_what_the_page_says(tmp_path: Path):
    assert write_files("processes.md", tmp_path) == ["crunch.py"]
    done = subprocess.run(
        [sys.executable, "crunch.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == blocks("processes.md", "text")[0], done.stderr
