"""The tasks of the tests of executions. Those of `struck` strike their own worker, once for each execution."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from leasehold import Leasehold, Retry
from leasehold.runners.contract import Collected, ExecutionState, Phase, Start
from tests.faults.execution_kinds import KINDS, Kind

Moment = Literal["placing", "starting", "started", "running", "exited", "collecting"]
MOMENTS: tuple[Moment, ...] = ("placing", "starting", "started", "running", "exited", "collecting")
"""Before anything is placed; placed, and not started; started, and not marked so; running; exited, and not collected;
collected, and not settled."""


class Strikes:
    """How a worker is struck: killed by its own hand, or held at the spot until the test has frozen and woken it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._how = os.environ.get("LEASEHOLD_TEST_STRIKES", "kill")
        """kill, freeze, both or none."""

    def strike(self, name: str, moment: Moment) -> None:
        """Once for each execution, by whoever comes first."""
        try:
            (self._folder / f"struck-{name}").touch(exist_ok=False)
        except FileExistsError:
            return
        how = random.choice(("kill", "kill", "freeze")) if self._how == "both" else self._how
        if how == "none":
            return
        if how == "freeze":
            self._hold(f"{os.getpid()}-{name}-{moment}")
        elif moment == "running":
            self._die_in(random.uniform(0.0, 0.4))
        elif random.random() < 0.5:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            # It goes on meanwhile, and dies somewhere in the middle of the next thing.
            self._die_in(random.uniform(0.0, 0.08))

    def _die_in(self, seconds: float) -> None:
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()

    def _hold(self, caller: str) -> None:
        """Not by SIGSTOP from here: another thread may be in the middle of a write to a SQLite file."""
        mark = self._folder / f"freeze-{caller}"
        mark.touch()
        while mark.exists():
            time.sleep(0.005)


class StruckRunner:
    """A real runner whose worker is struck at this moment. Writes down what came of its starts."""

    def __init__(self, kind: Kind, moment: Moment | None, strikes: Strikes) -> None:
        self._inner = kind.runner()
        self._starts = kind.folder / "starts"
        self._moment = moment
        self._strikes = strikes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def ensure_started(self, name: str, token: int, spec: Any) -> Start:
        self._at("starting", name)
        start = self._inner.ensure_started(name, token, spec)
        with self._starts.open("a") as file:
            file.write(f"{name} {token} {start.value}\n")
        self._at("started", name)
        self._at("running", name)
        return start

    def probe(self, name: str) -> ExecutionState:
        state = self._inner.probe(name)
        if state.phase is Phase.EXITED:
            self._at("exited", name)
        return state

    def probe_many(self, names: list[str]) -> dict[str, ExecutionState]:
        states = self._inner.probe_many(names)
        for name, state in states.items():
            if state.phase is Phase.EXITED:
                self._at("exited", name)
        return states

    def collect(self, name: str) -> Collected:
        collected = self._inner.collect(name)
        self._at("collecting", name)
        return collected

    def _at(self, moment: Moment, name: str) -> None:
        if moment == self._moment:
            self._strikes.strike(name, moment)


def starts_of(folder: Path, name: str) -> list[tuple[int, str]]:
    """What came of each call to start it, with the token."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / "starts").read_text().splitlines():
            reported, token, start = line.split()
            if reported == name:
                found.append((int(token), start))
    return found


def register(app: Leasehold, folder: Path, lease: float) -> SimpleNamespace:
    name, _, site = os.environ.get("LEASEHOLD_TEST_KIND", "command").partition("@")
    kind = KINDS[name](folder, site or "here")
    strikes = Strikes(folder)

    def struck_at(moment: Moment | None, name: str) -> Any:
        @app.external(
            runner=lambda: StruckRunner(kind, moment, strikes),
            to_spec=kind.to_spec,
            name=name,
            lease=lease,
            retry=Retry(max_crashes=100, backoff=0.1, max_delay=1),
            stop_grace=2.0,
        )
        def run(label: str, seconds: float = 0.0, gate: str | None = None) -> Any:
            if moment == "placing":
                strikes.strike(f"label-{label}", moment)
            return kind.spec(seconds, gate)

        return run

    @app.external(
        runner=kind.runner, to_spec=kind.to_spec, name="capped", lease=lease, queueing=False, max_running=1
    )
    def capped(label: str, gate: str | None = None) -> Any:
        return kind.spec(0.0, gate)

    return SimpleNamespace(
        kind=kind,
        capped=capped,
        plain=struck_at(None, "plain"),
        struck={moment: struck_at(moment, f"struck_{moment}") for moment in MOMENTS},
    )
