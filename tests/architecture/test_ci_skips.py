"""Under CI=true a skipped test fails the session; a deselected one does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

pytestmark = pytest.mark.slow

PASSES = "def test_passes(): pass\n"
SKIPS = {
    "by a mark": "import pytest\n@pytest.mark.skip(reason='no server: mark')\ndef test_skips(): pass\n",
    "while running": "import pytest\ndef test_skips(): pytest.skip('no server: run')\n",
    "as a whole file": "import pytest\npytest.skip('no server: file', allow_module_level=True)\n",
}
NO_SKIPS = {
    "deselected": "import pytest\n@pytest.mark.soak\ndef test_soaks(): assert False\n",
    "expected": "import pytest\n@pytest.mark.xfail(reason='known')\ndef test_fails(): assert False\n",
}


@pytest.mark.parametrize("arguments", [[], ["-n", "1"]], ids=["in one process", "under xdist"])
def test_skips_fail_the_session_and_are_listed(tmp_path: Path, arguments: list[str]):
    done = run_session(tmp_path, [PASSES, *SKIPS.values()], ci="true", arguments=arguments)
    assert done.returncode == 1, done.stdout
    _, heading, listed = done.stdout.partition("skipped, which is a failure under CI=true")
    assert heading
    assert [reason for reason in ("mark", "run", "file") if f"no server: {reason}" not in listed] == []


def test_what_was_not_asked_for_or_fails_as_expected_is_no_skip(tmp_path: Path):
    done = run_session(tmp_path, [PASSES, *NO_SKIPS.values()], ci="true")
    assert done.returncode == 0, done.stdout


def test_elsewhere_a_skip_is_a_skip(tmp_path: Path):
    done = run_session(tmp_path, [PASSES, *SKIPS.values()], ci=None)
    assert done.returncode == 0, done.stdout


def run_session(folder: Path, sources: list[str], *, ci: str | None, arguments: list[str] | None = None):
    for number, source in enumerate(sources):
        (folder / f"test_sample{number}.py").write_text(source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CI", "PYTEST"))}
    if ci is not None:
        environment["CI"] = ci
    return subprocess.run(
        [
            sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT),
            "-p", "tests.conftest", "-p", "no:cacheprovider", *(arguments or []), str(folder),
        ],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
