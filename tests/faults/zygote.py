"""Workers by the dozen, made by forking one process that has everything imported."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.harness import ROOT, Place
from tests.launcher import launch


class Zygote:
    """Starts workers by forking, kills them, and sees them gone."""

    def __init__(self, place: Place, tasks: str, **settings: Any) -> None:
        """`tasks` is a module with `register`."""
        self.place = place
        config = {
            "tasks": tasks,
            "url": place.url,
            "schema": place.schema,
            "folder": str(place.folder),
            "lease": place.lease,
            "settings": {"sweep": 0.2, "poll": 0.1, **settings},
        }
        self._log = (place.folder / "zygote.log").open("wb")
        self._process = launch(
            [sys.executable, "-m", "tests.faults.zygote_main", json.dumps(config)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        self.alive: set[int] = set()
        self.deaths = 0

    def start(self) -> int:
        pid = self._ask("start")
        self.alive.add(pid)
        return pid

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.reap(pid)

    def reap(self, pid: int) -> None:
        """Returns when the process is gone."""
        self._ask(f"reap {pid}")
        self.alive.discard(pid)
        self.deaths += 1

    def reap_dead(self) -> None:
        """Those who have killed themselves."""
        for pid in list(self.alive):
            with contextlib.suppress(FileNotFoundError):
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    self.reap(pid)

    def _ask(self, line: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, (self.place.folder / "zygote.log").read_text()
        return int(answer)

    def close(self) -> None:
        for pid in list(self.alive):
            self.kill(pid)
        self._process.communicate(timeout=30)
        self._log.close()


@contextlib.contextmanager
def zygote(place: Place, tasks: str, **settings: Any) -> Iterator[Zygote]:
    with contextlib.closing(Zygote(place, tasks, **settings)) as found:
        yield found
