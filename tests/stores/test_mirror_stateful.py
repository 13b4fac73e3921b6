"""The rows of a mirror equal their jobs after every one of many random verbs, on both stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from leasehold.domain.job import NewJob
from leasehold.domain.mirror import Mirror
from leasehold.domain.states import State
from tests.backends import Backend
from tests.stores.machine import StoreMachine
from tests.stores.model_job import EPOCH
from tests.stores.trio import Side, Trio

VERBS = 1000
MIRRORED = "work"
_FACTS = ("requested", "started", "finished", "updated", "result", "result_ref", "error")
_SEEN = f"SELECT run, state, {', '.join(_FACTS)} FROM leasehold.seen"
_JOBS = """SELECT seq, id, args, token, attempt, state, created_at, first_started_at, finished_at, updated_at, result,
    result_ref, error FROM (SELECT *, lease_token AS token FROM leasehold.job_row) AS j WHERE task = 'work'"""

Record = tuple[Any, ...]


def mirror_of(backend: Backend) -> Mirror:
    return Mirror(
        task=MIRRORED,
        table="leasehold_seen" if backend.name == "sqlite" else f"{backend.schema}.seen",
        key="run",
        argument="run",
        status="state",
        states={state.value: f"is {state.value}" for state in State},
        columns={fact: fact for fact in _FACTS},
        insert=True,
    )


class MirroredMachine(StoreMachine):
    """Jobs of one kind are mirrored, by an argument. A retry has the arguments of its original: its row tells of the
    one that was moved last."""

    def __init__(self) -> None:
        super().__init__()
        self.moved: list[dict[int, Record]] = [{}, {}]
        for side in self.trio.sides:
            side.query("DELETE FROM leasehold.seen")

    def do(self, verb: str, *args: Any, **named: Any) -> Any:
        if verb == "enqueue":
            args = ([_mirrored(job) for job in args[0]],)
        return super().do(verb, *args, **named)

    @invariant()
    def rows_equal_their_jobs(self) -> None:
        for number, side in enumerate(self.trio.sides):
            before, now = self.moved[number], {}
            by_key: dict[str, list[int]] = {}
            for seq, _, args, *reported in side.query(_JOBS):
                now[seq] = tuple(reported)
                key = json.loads(args)["run"]
                by_key.setdefault(key, []).append(seq)
            seen = {row[0]: tuple(row[1:]) for row in side.query(_SEEN)}
            for key, seqs in by_key.items():
                # Of several with one key, those that this verb has moved; if none, whatever it was before.
                touched = seqs if len(seqs) == 1 else [seq for seq in seqs if now[seq] != before.get(seq)]
                if touched:
                    wanted = [_row(now[seq], side) for seq in touched]
                    assert _instants(seen[key], side) in wanted, (side.name, key, seen[key], wanted)
            self.moved[number] = now


def _mirrored(job: NewJob) -> NewJob:
    return replace(
        job, args=json.dumps({"run": job.id}), policy=replace(job.policy, mirror=job.task == MIRRORED)
    )


def _row(reported: Record, side: Side) -> Record:
    """What a job's row of the mirror has to be."""
    _, _, state, *rest = reported
    times, (result, ref, error) = rest[:4], rest[4:]
    if side.name == "sqlite":
        times = [None if at is None else EPOCH + timedelta(microseconds=at) for at in times]
    return (f"is {state}", *times, result, ref, error and error.partition("\n")[0])


def _instants(row: Record, side: Side) -> Record:
    state, *rest = row
    times = rest[:4]
    if side.name == "sqlite":
        times = [None if at is None else datetime.fromisoformat(at) for at in times]
    return (state, *times, *rest[4:])


@pytest.fixture
def machine(tmp_path: Path, _postgres_backend: Backend) -> Iterator[type[MirroredMachine]]:
    sqlite = Backend("sqlite", f"sqlite:///{tmp_path}/jobs.db")
    sqlite.open().upgrade()
    for backend in (sqlite, _postgres_backend):
        at = "TEXT" if backend.name == "sqlite" else "timestamptz"
        backend.query(
            f"CREATE TABLE leasehold.seen (run TEXT PRIMARY KEY, state TEXT NOT NULL, requested {at} NOT NULL,"
            f" started {at}, finished {at}, updated {at}, result {'TEXT' if at == 'TEXT' else 'json'},"
            " result_ref TEXT, error TEXT)"
        )
        backend.open().add_mirror(mirror_of(backend))
    MirroredMachine.trio = Trio(sqlite, _postgres_backend)
    MirroredMachine.tally.clear()
    yield MirroredMachine
    MirroredMachine.trio.close()
    _postgres_backend.open().remove_mirror(mirror_of(_postgres_backend))
    for backend in (sqlite, _postgres_backend):
        backend.close_opened()
    _postgres_backend.query("DROP TABLE leasehold.seen")


@pytest.mark.slow(8)
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("stateful")
def test_a_mirrors_rows_equal_their_jobs_after_a_thousand_random_verbs(
    machine: type[MirroredMachine],
) -> None:
    seed = 0
    while machine.tally["steps"] < VERBS:
        machine.seed = seed
        chosen = settings(
            max_examples=2,
            stateful_step_count=50,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=chosen)
        seed += 1
