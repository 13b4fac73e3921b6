"""python -m tests.runners.starter MODULE:LAB PLACE: a process that starts runs on demand, to be frozen or killed.

A line of JSON on stdin, [name, token, script], is answered with a line: what `ensure_started` came to.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.launcher import launch


class Starter:
    def __init__(self, lab: type, place: Path) -> None:
        self.process = launch(
            [sys.executable, "-m", "tests.runners.starter", f"{lab.__module__}:{lab.__name__}", str(place)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, name: str, token: int, script: str) -> None:
        self.process.stdin.write(json.dumps([name, token, script]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        return self.process.stdout.readline().strip()

    def freeze(self) -> list[int]:
        """Stops it and what it is just starting. Gives the processes that `thaw` wakes."""
        frozen = []
        for pid in (self.process.pid, *descendants(self.process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                frozen.append(pid)
        return frozen

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def thaw(frozen: list[int]) -> None:
    for pid in frozen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def descendants(pid: int) -> list[int]:
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def main(lab_name: str, place: str) -> None:
    module, _, name = lab_name.partition(":")
    lab = getattr(importlib.import_module(module), name)(Path(place))
    runner = lab.runner()
    print("ready", flush=True)
    for line in sys.stdin:
        run, token, script = json.loads(line)
        print(runner.ensure_started(run, token, lab.spec(script)).value, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
