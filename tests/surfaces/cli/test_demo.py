"""The demo keeps its word, and leaves neither a process nor a file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surfaces.cli.conftest import Cli, eventually, read_until

BROKEN = """
import os, sys
from leasehold.surfaces.cli import demo_stage
from leasehold.surfaces.cli.main import run
demo_stage.TASKS = "no.such:app"
sys.exit(run(["demo"]))
"""


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = Cli(tmp_path, {"TMPDIR": str(tmp_path)})
    monkeypatch.delenv("LEASEHOLD_URL", raising=False)
    yield made
    made.end()


def pids(text: str) -> list[int]:
    found = re.search(r"processes (\d+) and (\d+)", text)
    assert found, text
    return [int(pid) for pid in found.groups()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_demo_runs_to_its_end_and_leaves_nothing_behind(demo: Cli, tmp_path: Path):
    answer = demo("demo")
    assert answer.code == 0, answer.out + answer.err
    assert "✗" not in answer.out
    assert answer.out.count("✓") >= 9
    assert not any(map(is_alive, pids(answer.out)))
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_demo_leaves_nothing_behind(demo: Cli, tmp_path: Path):
    process = demo.start("demo", PYTHONUNBUFFERED="1")
    started = pids(read_until(process, "stdout", "two workers are up"))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    eventually(lambda: not any(map(is_alive, started)))
    assert list(tmp_path.iterdir()) == []


def test_a_killed_demo_takes_its_workers_with_it(demo: Cli):
    process = demo.start("demo", PYTHONUNBUFFERED="1")
    started = pids(read_until(process, "stdout", "two workers are up"))
    process.kill()
    process.communicate()
    eventually(lambda: not any(map(is_alive, started)))


def test_a_demo_that_does_not_go_as_told_says_so_and_fails(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", BROKEN],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path), "LEASEHOLD_URL": f"sqlite:///{tmp_path}/x.db"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "✗ this did not happen" in done.stdout
