"""docs/testing.md: its test passes, with the README's shop.py, in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import write_files


@pytest.mark.timeout(90)
def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    assert write_files("../README.md", tmp_path) == ["shop.py"]
    assert write_files("testing.md", tmp_path) == ["test_shop.py"]
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("LEASEHOLD_", "PYTEST_"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
