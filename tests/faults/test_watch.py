"""A watcher in another process is killed and comes back, again and again, while the job's own worker dies too."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.faults.conftest import MakePlace
from tests.faults.harness import ROOT, Fleet, Place, check, wait_for
from tests.launcher import launch
from tests.servers import PostgresServer

ITEMS = 2200
PAUSE = 0.01
"""After every ten items: the job takes two seconds and more."""
WATCHERS_KILLED_AT = (200, 500, 800, 1200, 1500)
"""Once it has printed this many lines. The job does not get more than AHEAD items further before that is done, so that
a slow machine kills no watcher that has seen the end."""
AHEAD = 300
WORKER_KILLED_AT = 1000


class Watcher:
    """The lines of all watcher processes, one after the other, as one reader would have them."""

    def __init__(self, place: Place, job: str) -> None:
        self._place = place
        self._job = job
        self._file = place.folder / "watched"
        self._file.touch()
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """After the last one: what it printed in full counts as seen."""
        self._file.write_bytes(self._with_full_names())
        lines = self.lines()
        config = {
            "url": self._place.url,
            "schema": self._place.schema,
            "job": self._job,
            "since": lines[-1]["seq"] if lines else 0,
            "file": str(self._file),
        }
        command = [sys.executable, "-m", "tests.faults.watcher_main", json.dumps(config)]
        self.processes.append(launch(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True))

    def kill(self) -> None:
        process = self.processes[-1]
        assert process.poll() is None, "it was killed too late to show anything"
        self._end(process)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._with_full_names().splitlines()]

    def _with_full_names(self) -> bytes:
        """Without the line that is just being written: a write that crosses a page is seen, or killed, half done."""
        text = self._file.read_bytes()
        return text[: text.rfind(b"\n") + 1]

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


@pytest.mark.slow(7)
@pytest.mark.timeout(120)
@pytest.mark.parametrize("lease", [2.5])
def test_a_watcher_that_reconnects_misses_no_event_and_sees_none_twice(
    place: Place, fleet: Fleet, watchers: list[Watcher], lease: float
) -> None:
    job = place.tasks.notify.enqueue(ITEMS, PAUSE, [number + AHEAD for number in WATCHERS_KILLED_AT])
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
        place.open_gate(f"item-{number + AHEAD}")
        watcher.start()
    assert watcher.processes[-1].wait(60) == 0, "the last one saw the end and stopped by itself"
    lines = watcher.lines()

    items = [line for line in lines if line["task"] == "item"]
    assert [line["data"] for line in items] == list(range(ITEMS))
    stored = place.query("SELECT seq FROM leasehold.job_update WHERE kind = 'item' ORDER BY seq")
    assert [line["seq"] for line in items] == [seq for (seq,) in stored]
    reported = [line["seq"] for line in lines if line["task"] != "state"]
    assert all(one < other for one, other in itertools.pairwise(reported)), "in order, and none twice"
    assert lines[-1]["task"] == "state"
    assert lines[-1]["data"] == {"state": "succeeded", "attempt": 2}
    assert any(line["task"] == "progress" for line in lines)
    assert place.app.get(job.id).progress().done == ITEMS
    check(place, [job.id], fleet)
    assert fleet.unexpected() == []
    print(f"\n{place.store}: {len(lines)} lines of {len(watcher.processes)} watchers", flush=True)


@pytest.mark.slow(8)
@pytest.mark.timeout(120)
def test_what_is_told_while_the_database_is_away_is_stored_in_order_when_it_is_back(
    make_place: MakePlace, start_postgres: Callable[..., PostgresServer]
) -> None:
    server = start_postgres(fsync=True)
    place = make_place("postgres", lease=30.0, url=server.create_database("jobs"))
    with contextlib.closing(Fleet(place)) as fleet:
        fleet.start()
        job = place.tasks.notify.enqueue(1500, 0.02, [500, 1000, 1400], False)
        for mode, here, there in (("immediate", 500, 1000), ("fast", 1000, 1400)):
            wait_for(place.tasks.gate(f"reached-{here}").exists, f"item {here}")
            server.stop(mode)
            place.open_gate(f"item-{here}")
            wait_for(place.tasks.gate(f"reached-{there}").exists, f"item {there}")
            server.start()
        place.open_gate("item-1400")
        done = place.wait_for_state(job.id, "succeeded")
        assert done.attempt == 1
        events = [event for event in place.app.get(job.id).watch(timeout=0) if event.kind == "item"]
        assert [event.data for event in events] == list(range(1500))
        check(place, [job.id], fleet)
        assert fleet.unexpected() == []
