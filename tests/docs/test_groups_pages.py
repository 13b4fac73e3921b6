"""docs/groups.md and docs/stop.md: their programs print what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks, write_files


@pytest.mark.timeout(90)
@pytest.mark.parametrize(("page", "program"), [("groups.md", "pages.py"), ("stop.md", "targets.py")])
def test_the_page_prints_what_it_says(tmp_path: Path, page: str, program: str) -> None:
    assert write_files(page, tmp_path) == [program]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")}
    told = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # What goes wrong is logged, where nobody has set up logging on stderr: in groups.md one page is missing.
    failed = [line for line in told.stderr.splitlines() if line.startswith("job ")]
    assert len(failed) == (page == "groups.md")
    assert "Traceback" not in told.stderr
    assert told.stdout == blocks(page, "text")[0]
