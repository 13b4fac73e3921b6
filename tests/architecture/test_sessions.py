"""What a session says at its end: under CI=true a skipped test is a failure, and what has failed can be repeated."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.architecture.sources import ROOT
from tests.lanes import Repeat

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


FAILS = """import pytest
@pytest.mark.xdist_group("one by one")
@pytest.mark.parametrize("word", ["it's so", "fine"])
def test_fails(word): assert word == "fine"
def test_passes(): pass
"""


def test_one_command_repeats_what_has_failed_and_nothing_else(tmp_path: Path):
    done = run_session(tmp_path, [FAILS, PASSES], ci=None, arguments=["-n", "1", "--dist", "loadgroup"])
    assert done.returncode == 1, done.stdout
    _, heading, after = done.stdout.partition("once more, only what has failed")
    assert heading
    command = shlex.split(after.splitlines()[1])
    assert command[1:] == ["-m", "pytest", "test_sample0.py::test_fails[it's so]"]
    command[0] = str(ROOT / command[0])  # it is for the folder that the session was started in
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert again.returncode == 1
    assert "1 failed" in again.stdout, again.stdout
    assert "passed" not in again.stdout


def test_the_command_repeats_what_was_skipped_and_has_the_settings_of_the_run(tmp_path: Path):
    sources = [FAILS, *SKIPS.values(), *NO_SKIPS.values()]
    done = run_session(tmp_path, sources, ci="true", arguments=["-n", "1"], LEASEHOLD_TEST_PG="16")
    command = shlex.split(done.stdout.partition("once more, only what has failed")[2].splitlines()[1])
    assert command[:2] == ["CI=true", "LEASEHOLD_TEST_PG=16"]
    assert command[3:5] == ["-m", "pytest"]
    assert sorted(command[5:]) == [
        "test_sample0.py::test_fails[it's so]",
        "test_sample1.py::test_skips",
        "test_sample2.py::test_skips",
        "test_sample3.py",
    ]


def test_of_very_many_the_files_are_named():
    repeat = Repeat()
    for number in range(Repeat.MOST + 1):
        repeat.pytest_collectreport(SimpleNamespace(failed=True, nodeid=f"tests/test_a.py::test_{number}"))
    assert repeat.command().endswith("-m pytest tests/test_a.py")


def test_a_test_for_one_store_leaves_the_other_to_the_long_runs(tmp_path: Path):
    source = (
        "import pytest\npytestmark = pytest.mark.one_store('sqlite')\n"
        "@pytest.mark.parametrize('store', ['sqlite', 'postgres'])\ndef test_on_both(store): pass\n"
        "@pytest.mark.parametrize('store', ['postgres'])\ndef test_on_the_other_alone(store): pass\n"
    )
    done = run_session(tmp_path, [source], ci="true", arguments=["-v"])
    assert re.findall(r"::(\w+\[\w+\]) PASSED", done.stdout) == [
        "test_on_both[sqlite]",
        "test_on_the_other_alone[postgres]",
    ]
    assert "1 deselected" in done.stdout


def run_session(
    folder: Path, sources: list[str], *, ci: str | None, arguments: list[str] | None = None, **settings: str
):
    for number, source in enumerate(sources):
        (folder / f"test_sample{number}.py").write_text(source)
    inherited = ("CI", "PYTEST", "LEASEHOLD_TEST")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(inherited)}
    environment |= settings
    if ci is not None:
        environment["CI"] = ci
    return subprocess.run(
        [
            sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT),
            "-p", "tests.lanes", "-p", "no:cacheprovider", *(arguments or []), str(folder),
        ],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
