"""The demo keeps its word, and leaves neither a process nor a file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.surfaces.cli.conftest import PATIENCE, Cli, read_until
from tests.workers import wait_for

BROKEN = """
import os, sys
from leasehold.demo import stage
from leasehold.surfaces.cli.main import run
stage.TASKS = "no.such:app"
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


@pytest.mark.slow(14)
def test_the_demo_runs_to_its_end_and_leaves_nothing_behind(demo: Cli, tmp_path: Path):
    answer = demo("demo", MAKELEVEL="")
    assert answer.code == 0, answer.out + answer.err
    assert "✗" not in answer.out
    assert answer.out.count("✓") >= 9
    assert not any(map(is_alive, pids(answer.out)))
    assert list(tmp_path.iterdir()) == []
    assert "leasehold demo --dashboard" in answer.out
    assert "leasehold[server]" in answer.out


@pytest.mark.slow(5)
def test_an_interrupted_demo_leaves_nothing_behind(demo: Cli, tmp_path: Path):
    process = demo.start("demo", PYTHONUNBUFFERED="1")
    started = pids(read_until(process, "stdout", "two workers are up"))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    wait_for(lambda: not any(map(is_alive, started)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow(5)
def test_a_killed_demo_takes_its_workers_with_it(demo: Cli):
    process = demo.start("demo", PYTHONUNBUFFERED="1")
    started = pids(read_until(process, "stdout", "two workers are up"))
    process.kill()
    process.communicate()
    wait_for(lambda: not any(map(is_alive, started)))


@pytest.mark.slow(5)
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


# -- with a dashboard -------------------------------------------------------------------------------------------------
class Shown:
    """What `leasehold demo --dashboard` shows."""

    def __init__(self, demo: Cli) -> None:
        self.process = demo.start("demo", "--dashboard", "--port", "0")
        found = re.search(r"(http://\S+)/dashboard/", read_until(self.process, "stdout", "http://"))
        assert found
        self.url = found[1]

    def get(self, path: str, **params: str) -> Any:
        return httpx2.get(f"{self.url}{path}", params=params, timeout=PATIENCE).raise_for_status()

    def workers(self) -> list[int]:
        return [int(card["name"].split(":")[1]) for card in self.get("/v1/workers").json()]

    def is_up(self) -> bool:
        try:
            return self.get("/livez").status_code == 200
        except httpx2.TransportError:
            return False


@pytest.mark.slow(9)
def test_the_dashboard_of_the_demo_has_something_of_everything_and_ends_cleanly(demo: Cli, tmp_path: Path):
    shown = Shown(demo)
    for state in ("queued", "pending", "running", "waiting", "succeeded", "failed"):
        wait_for(lambda state=state: shown.get("/v1/jobs", state=state).json()["jobs"])
    requested = {question["task"]: question for question in shown.get("/v1/questions").json()}
    assert requested["refund"]["schema"]["required"] == ["approve"]
    assert requested["log_in"]["secret"]
    wait_for(lambda: len(shown.get("/v1/schedules").json()) == 3)
    wait_for(lambda: shown.get("/v1/executions").json())
    wait_for(lambda: shown.get("/v1/lanes").json())
    wait_for(lambda: shown.get("/v1/budgets").json()["budgets"])
    assert [group["name"] for group in shown.get("/v1/groups").json()["groups"]] == ["research-42"]
    assert [pause["name"] for pause in shown.get("/v1/pauses").json()] == ["mail"]
    assert "Leasehold" in shown.get("/dashboard/").text
    workers = wait_for(lambda: found if len(found := shown.workers()) >= 2 else None)
    shown.process.send_signal(signal.SIGINT)
    _, err = shown.process.communicate(timeout=PATIENCE)
    assert shown.process.returncode == 0, err
    assert not any(map(is_alive, workers))
    assert not shown.is_up()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow(7)
def test_a_killed_demo_takes_server_and_workers_with_it(demo: Cli):
    shown = Shown(demo)
    workers = wait_for(lambda: found if len(found := shown.workers()) >= 2 else None)
    shown.process.kill()
    shown.process.communicate()
    wait_for(lambda: not any(map(is_alive, workers)))
    wait_for(lambda: not shown.is_up())


def test_a_port_needs_the_dashboard(demo: Cli):
    answer = demo("demo", "--port", "8700")
    assert answer.code == 2
    assert "--dashboard" in answer.err
