"""docs/run-now.md: its program prints what the page says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks, write_files


@pytest.mark.timeout(90)
def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    assert write_files("run-now.md", tmp_path) == ["render.py"]
    assert run(tmp_path, "render.py") == blocks("run-now.md", "text")[0]


@pytest.mark.timeout(90)
def test_the_command_of_the_page_prints_the_result_alone(tmp_path: Path) -> None:
    write_files("run-now.md", tmp_path)
    (command,) = blocks("run-now.md", "console")
    assert run(tmp_path, "-m", *shlex.split(command)) == '"alpha.mp4"\n'


def run(folder: Path, *argv: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")}
    done = subprocess.run(
        [sys.executable, *argv], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout
