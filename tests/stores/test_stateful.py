"""Random verbs on the model, SQLite and PostgreSQL: the same answers and the same rows after every step.

A failure tells the shortest sequence of calls that was found for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.backends import Backend
from tests.servers import PostgresServer
from tests.stores.machine import VERBS, StoreMachine
from tests.stores.soak import ROOT, Progress, Stopwatch, report
from tests.stores.trio import Trio

SEQUENCES, STEPS, CHUNK = 2000, 60, 50
PER_SEED = 2
"""More of one run of Hypothesis would be much the same."""


@pytest.fixture
def machine(tmp_path: Path, _postgres_backend: Backend) -> Iterator[type[StoreMachine]]:
    """Opened once, emptied before each sequence."""
    sqlite = Backend("sqlite", f"sqlite:///{tmp_path}/jobs.db")
    sqlite.open().upgrade()
    StoreMachine.trio = Trio(sqlite, _postgres_backend)
    StoreMachine.tally.clear()
    yield StoreMachine
    StoreMachine.trio.close()
    sqlite.close_opened()
    _postgres_backend.close_opened()


def run(machine: type[StoreMachine], seed: int, steps: int) -> None:
    chosen = settings(
        max_examples=PER_SEED,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    machine.seed = seed
    try:
        run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=chosen)
    except Exception as error:
        trace = list(machine.trace)
        if machine.trio.replay(trace) is None:
            raise
        trace = machine.trio.shorten(trace)
        calls = "\n".join(f"  {verb} {args} {named or ''}" for verb, args, named in trace)
        pytest.fail(
            f"seed {seed}: {machine.trio.replay(trace)}\n{calls}\nfirst seen as: {error}", pytrace=False
        )


def never_called(tally: dict[str, int]) -> list[str]:
    return [verb for verb in VERBS if not tally.get(verb)]


@pytest.mark.slow(24)
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("stateful")
def test_both_stores_behave_as_the_model(machine: type[StoreMachine]) -> None:
    for seed in range(40):
        run(machine, seed, 40)
    assert not never_called(machine.tally)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_both_stores_behave_as_the_model_for_long(
    machine: type[StoreMachine], postgres_server: PostgresServer
) -> None:
    path = ROOT / "build" / "soak" / f"stateful-pg{postgres_server.version}.json"
    progress = Progress.load(path)
    while progress.sequences < SEQUENCES:
        machine.tally.clear()
        print(f"seed {progress.next_seed}: {progress.sequences} of {SEQUENCES} sequences done", flush=True)
        with Stopwatch() as watch:
            for seed in range(progress.next_seed, progress.next_seed + CHUNK // PER_SEED):
                run(machine, seed, STEPS)
        progress.add(machine.tally, CHUNK // PER_SEED, watch.seconds)
        progress.save(path)
    assert not never_called(progress.tally)
    page = ROOT / "docs" / "measured" / "stateful.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(report(progress, VERBS, str(postgres_server.version)))
