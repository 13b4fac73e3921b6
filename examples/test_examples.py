"""`make examples` in a shorter form: every application end to end, one test each, beside the other tests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.__main__ import NAMES

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "examples", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=280
    )


def test_all_five_are_found() -> None:
    assert NAMES == ["agent_server", "mail_assistant", "model_runs", "research_agent", "tool_runner"]


@pytest.mark.parametrize("name", NAMES)
def test_an_application_runs_end_to_end_and_says_so_in_a_line(name: str) -> None:
    done = run(name)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    assert re.fullmatch(rf"ok +{name} +[\d.]+ s  \S.*", line), line


def test_a_name_that_is_none_of_them_is_refused() -> None:
    done = run("weather_station")
    assert (done.returncode, done.stdout) == (2, "")
    assert "weather_station" in done.stderr
