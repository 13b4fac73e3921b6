"""A watcher in another process is killed and comes back, again and again, while the job's own worker dies too."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.harness import ROOT, Fleet, Place, check, wait_for

ITEMS = 4000
PAUSE = 0.01
"""After every ten items: the job takes four seconds and more."""
WATCHERS_KILLED_AT = (300, 800, 1300, 2100, 2700)
"""Once it has printed this many lines."""
WORKER_KILLED_AT = 1700


class Watcher:
    """The lines of all watcher processes, one after the other, as one reader would have them."""

    def __init__(self, place: Place, job: str) -> None:
        self._place = place
        self._job = job
        self._file = place.folder / "watched"
        self._file.touch()
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        lines = self.lines()
        config = {
            "url": self._place.url,
            "schema": self._place.schema,
            "job": self._job,
            "since": lines[-1]["seq"] if lines else 0,
            "file": str(self._file),
        }
        command = [sys.executable, "-m", "tests.faults.watcher_main", json.dumps(config)]
        self.processes.append(
            subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True)
        )

    def kill(self) -> None:
        process = self.processes[-1]
        assert process.poll() is None, "it was killed too late to show anything"
        self._end(process)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in Path(self._file).read_text().splitlines()]

    def wait_for_lines(self, number: int) -> None:
        wait_for(lambda: len(self.lines()) >= number, f"{number} lines of the watcher")

    def close(self) -> None:
        for process in self.processes:
            self._end(process)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait(30)
        if process.stdin is not None:
            process.stdin.close()


@pytest.fixture
def watchers() -> Iterator[list[Watcher]]:
    made: list[Watcher] = []
    yield made
    for watcher in made:
        watcher.close()


@pytest.mark.timeout(120)
def test_a_watcher_that_reconnects_misses_no_event_and_sees_none_twice(
    place: Place, fleet: Fleet, watchers: list[Watcher]
) -> None:
    job = place.tasks.tell.enqueue(ITEMS, PAUSE)
    watcher = Watcher(place, job.id)
    watchers.append(watcher)
    first = fleet.start()
    watcher.start()
    for number in WATCHERS_KILLED_AT:
        if first.alive and number > WORKER_KILLED_AT:
            watcher.wait_for_lines(WORKER_KILLED_AT)
            first.kill()
            fleet.start()
        watcher.wait_for_lines(number)
        watcher.kill()
        watcher.start()
    assert watcher.processes[-1].wait(60) == 0, "the last one saw the end and stopped by itself"
    lines = watcher.lines()

    items = [line for line in lines if line["kind"] == "item"]
    assert [line["data"] for line in items] == list(range(ITEMS))
    stored = place.query("SELECT seq FROM leasehold.event WHERE kind = 'item' ORDER BY seq")
    assert [line["seq"] for line in items] == [seq for (seq,) in stored]
    told = [line["seq"] for line in lines if line["kind"] != "state"]
    assert all(one < other for one, other in itertools.pairwise(told)), "in order, and none twice"
    assert lines[-1]["kind"] == "state"
    assert lines[-1]["data"] == {"state": "succeeded", "attempt": 2}
    assert any(line["kind"] == "progress" for line in lines)
    assert place.app.get(job.id).progress.done == ITEMS
    check(place, [job.id], fleet)
    assert fleet.unexpected() == []
    print(f"\n{place.store}: {len(lines)} lines of {len(watcher.processes)} watchers", flush=True)
