"""docs/concepts/run-now.md: its command prints the result and nothing else."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks, write_files


@pytest.mark.timeout(90)
def test_the_command_of_the_page_prints_the_result_alone(tmp_path: Path) -> None:
    write_files("concepts/run-now.md", tmp_path)
    (console,) = blocks("concepts/run-now.md", "console")
    command, shown = console.splitlines()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")}
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command.removeprefix("$ "))],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == (f"{shown}\n", "")
