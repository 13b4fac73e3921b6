"""Kinds of executions, as the fault tests see them: what to run, which ever ran, and which are alive.

None of it asks the runner under test. A new kind is a class here and its name in KINDS.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from leasehold.runners.contract import Runner
from leasehold.runners.docker.engine import Engine
from leasehold.runners.docker.runner import SITE, DockerRunner
from leasehold.runners.docker.spec import ContainerSpec, Mount
from leasehold.runners.subprocess import Command, SubprocessRunner
from leasehold.types import Job
from tests.faults.harness import wait_for
from tests.runners.docker.engine import IMAGE, containers, recorded_starts
from tests.runners.docker.lab import HOST


def execution(job: Job[Any], attempt: int = 1) -> str:
    """Its name."""
    operator: Any = job._operator
    return f"app-{operator._find_store().identity(job.id)}-{job.id}-{attempt}"


class Kind(ABC):
    """Of one test, in its folder. Workers make it again from there."""

    many: ClassVar[int]
    """As many as a test has at once."""
    rounds: ClassVar[int]
    """How often a test meets each moment."""

    def __init__(self, folder: Path, site: str = "here") -> None:
        self.folder = folder
        self.site = site

    @property
    def runs(self) -> Path:
        return self.folder / f"runs-{self.site}"

    @abstractmethod
    def runner(self) -> Runner[Any]: ...

    @abstractmethod
    def spec(self, seconds: float, gate: str | None) -> Any:
        """Writes down that it runs, takes its time, waits for the gate, and leaves its own name as its result."""

    def to_spec(self, said: Any) -> Any:
        return said

    def ever_ran(self) -> Counter[str]:
        """How often each execution was begun, by name: whatever became of it."""
        with contextlib.suppress(FileNotFoundError):
            return Counter((self.folder / "ran").read_text().split())
        return Counter()

    @abstractmethod
    def alive(self) -> set[str]:
        """The names of those of which any process lives."""

    def left(self) -> set[str]:
        """The names of those of which more than a tombstone is left."""
        folders = [run for run in self.runs.glob("app-*") if run.is_dir()]
        return {run.name for run in folders if {entry.name for entry in run.iterdir()} != {"tombstone"}}

    @abstractmethod
    def remove_by_hand(self, name: str) -> None:
        """End it, and all that a runner could know of its end, behind the runner's back."""

    @abstractmethod
    def clean_up(self) -> None:
        """End what a failed test has left."""


_SCRIPT = """
echo "$name" >> "$1/ran"
sleep "$2"
while [ -n "$3" ] && [ ! -e "$3" ]; do sleep 0.1; done
echo "\\"$name\\"" > "$LEASEHOLD_RESULT"
"""

_NAME_OF_COMMAND = "name=${LEASEHOLD_RESULT%/*}; name=${name##*/}"
# A container is not told its name; the kernel shows which folder of the machine it has.
_NAME_OF_CONTAINER = r"name=$(sed -n 's,.*/\(app-[^/]*\)/[^ ]* /leasehold .*,\1,p' /proc/self/mountinfo)"


class CommandKind(Kind):
    many = 10
    rounds = 5

    def runner(self) -> SubprocessRunner:
        return SubprocessRunner(self.runs)

    def spec(self, seconds: float, gate: str | None) -> list[str]:
        waits_for = str(self.folder / f"gate-{gate}") if gate else ""
        return ["sh", "-c", _NAME_OF_COMMAND + _SCRIPT, "sh", str(self.folder), str(seconds), waits_for]

    def to_spec(self, said: Any) -> Command:
        return Command.of(said)

    def alive(self) -> set[str]:
        return {name for _, name in self._processes()}

    def remove_by_hand(self, name: str) -> None:
        # The shim first: it would record the end of its command, and make its folder again.
        os.kill(json.loads((self.runs / name / "started").read_text())["shim"], signal.SIGKILL)
        shutil.rmtree(self.runs / name)
        self._kill(name)
        wait_for(lambda: name not in self.alive(), f"{name} to be gone")

    def clean_up(self) -> None:
        for name in self.alive():
            self._kill(name)

    def _kill(self, name: str) -> None:
        for pid, found in self._processes():
            if found == name:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _processes(self) -> list[tuple[int, str]]:
        """By a variable that every process of a run has, and no shim."""
        begins = f"LEASEHOLD_RESULT={self.runs}/".encode()
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                with contextlib.suppress(OSError):  # it has ended
                    for variable in (process / "environ").read_bytes().split(b"\0"):
                        if variable.startswith(begins):
                            found.append((int(process.name), variable.decode().split("/")[-2]))
        return found


class ContainerKind(Kind):
    many = 3
    rounds = 1

    @property
    def engine(self) -> Engine:
        return Engine(os.environ[HOST])

    def runner(self) -> DockerRunner:
        return DockerRunner(self.runs, os.environ[HOST], mounts_allowed=[self.folder])

    def spec(self, seconds: float, gate: str | None) -> ContainerSpec:
        waits_for = f"/test/gate-{gate}" if gate else ""
        return ContainerSpec(
            image=IMAGE,
            argv=["sh", "-c", _NAME_OF_CONTAINER + _SCRIPT, "sh", "/test", str(seconds), waits_for],
            mounts=[Mount(self.folder, "/test", read_only=False)],
        )

    def ever_ran(self) -> Counter[str]:
        """By the engine's own record, which goes back some 250 events, and by what they have written down."""
        counts = super().ever_ran()
        for label in self._labels():
            counts |= recorded_starts(self.engine, label)
        return counts

    def alive(self) -> set[str]:
        """By the folder that all processes of a container see, whatever the engine says."""
        begins = "/".join(self.runs.parts[-4:])
        mount = re.compile(rf"/{re.escape(begins)}/(app-[^/ ]+)/\S* /leasehold ")
        found: set[str] = set()
        for process in Path("/proc").glob("[0-9]*/mountinfo"):
            with contextlib.suppress(OSError):  # it has ended
                found |= set(mount.findall(process.read_text()))
        return found

    def left(self) -> set[str]:
        return super().left() | {name for label in self._labels() for name in containers(self.engine, label)}

    def remove_by_hand(self, name: str) -> None:
        for label in self._labels():
            self._remove(containers(self.engine, label)[name])

    def clean_up(self) -> None:
        for label in self._labels():
            for container in containers(self.engine, label).values():
                self._remove(container)

    def _remove(self, container: str) -> None:
        self.engine.call("DELETE", f"/containers/{container}", {"force": 1, "v": 1}, allow=(404, 409))

    def _labels(self) -> list[str]:
        """Of every site that the test has used."""
        return [f"{SITE}={site.read_text()}" for site in self.folder.glob("runs-*/.site")]


KINDS: dict[str, type[Kind]] = {"command": CommandKind, "container": ContainerKind}
