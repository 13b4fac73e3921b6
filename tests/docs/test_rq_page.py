"""docs/guides/rq.md: its program, a real RQ worker and a real Valkey print what the page says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contrib.test_rq import valkey
from tests.docs.pages import blocks, write_files
from tests.ports import claim_port


@pytest.mark.slow
def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    assert write_files("guides/rq.md", tmp_path) == ["runs.py", "deliver.py"]
    (console,) = blocks("guides/rq.md", "console")
    program, worker, *reported = console.splitlines()
    assert program == "$ python runs.py"
    assert worker.startswith("$ rq worker ")
    with valkey(tmp_path, claim_port()) as url:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")}
        environment["REDIS_URL"] = url
        printed = ""
        for command in (["runs.py"], ["-m", "rq.cli", *worker.removeprefix("$ rq ").split()]):
            done = subprocess.run(
                [sys.executable, *command],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=True,
            )
            printed += done.stdout
        assert printed.splitlines() == reported
