"""The folder of executions is full or deleted when a command ends: its end counts, and the command never runs again."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from leasehold import Leasehold, State
from tests.disks import fill, small_disk
from tests.workers import wait_for, working


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "1m") as disk:
        if disk is None:
            pytest.skip("only root may mount a small file system")
        yield disk


@pytest.fixture
def app_settings(disk: Path) -> dict[str, Any]:
    return {"executions": disk / "runs"}


@pytest.mark.parametrize("trouble", ["full", "deleted"])
@pytest.mark.parametrize("adopted", [False, True], ids=["watched", "adopted"])
def test_a_command_that_ends_while_its_folder_is_full_or_deleted_is_not_repeated(
    app: Leasehold, disk: Path, tmp_path: Path, adopted: bool, trouble: str
):
    begun, gate = tmp_path / "begun", tmp_path / "gate"

    @app.command(exit_codes={3: "success"})
    def work() -> list[str]:
        script = 'echo $$ >> "$1"; while [ ! -e "$2" ]; do sleep 0.02; done; exit 3'
        return ["sh", "-c", script, "sh", str(begun), str(gate)]

    def break_and_end() -> None:
        (folder,) = (disk / "runs").glob("*-1")
        shim = json.loads((folder / "started").read_text())["shim"]
        if trouble == "full":
            fill(disk)
        else:
            shutil.rmtree(disk / "runs")
        gate.touch()
        wait_for(lambda: not is_alive(shim), "the command and its shim to end")

    job = work.enqueue()
    try:
        with working(app):
            wait_for(begun.exists, "the command to begin")
            wait_for(lambda: app.executions()[0].started_at is not None)
            if not adopted:
                break_and_end()
                (disk / "ballast").unlink(missing_ok=True)
                wait_for(lambda: job.refresh().state is not State.RUNNING)
        if adopted:
            break_and_end()
            assert job.refresh().state is State.RUNNING
            with working(app):
                (disk / "ballast").unlink(missing_ok=True)
                wait_for(lambda: job.refresh().state is not State.RUNNING)
        assert (job.state, job.attempt, job.__row__.failures) == (State.SUCCEEDED, 1, 0)
        assert len(begun.read_text().split()) == 1
    finally:
        for pid in begun.read_text().split() if begun.exists() else ():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
