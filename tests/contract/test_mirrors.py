"""A mirror's row is what its job is, in the same transaction, whoever moves the job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from leasehold.domain.errors import InvalidInput, StoreError
from leasehold.domain.job import TIED
from leasehold.domain.mirror import Mirror
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.policy import Policy
from leasehold.domain.states import State
from tests.backends import Backend, new_job, put
from tests.contract.lives import end, in_state, orphan, run

MIRRORED = Policy(mirror=True)
WORDS = {state.value: f"it's {state.value}" for state in State}
COLUMNS = ("requested", "started", "finished", "updated", "result", "result_ref", "exit_code", "error")


def mirror_of(backend: Backend, **changes: Any) -> Mirror:
    table = "leasehold_runs" if backend.name == "sqlite" else f"{backend.schema}.runs"
    given: dict[str, Any] = {
        "task": "work",
        "table": table,
        "key": "run",
        "argument": "run_id",
        "status": "Status",
        "states": WORDS,
        "columns": {name: name for name in COLUMNS},
    }
    return Mirror(**{**given, **changes})


@pytest.fixture
def table(backend: Backend) -> Iterator[Backend]:
    """A table of the user's own, with types of their choice."""
    at, result = ("TEXT", "TEXT") if backend.name == "sqlite" else ("timestamptz", "jsonb")
    backend.query(
        f'CREATE TABLE leasehold.runs (run BIGINT PRIMARY KEY, "Status" TEXT, requested {at}, started {at},'
        f" finished {at}, updated {at}, result {result}, result_ref TEXT, exit_code INTEGER, error TEXT,"
        " CHECK (run < 1000))"
    )
    yield backend
    for row in (store := backend.open()).list_mirrors():
        store.remove_mirror(row.mirror)
    backend.query("DROP TABLE leasehold.runs")


def called(number: object) -> str:
    return json.dumps({"run_id": number})


def rows(backend: Backend, columns: str = 'run, "Status"') -> list[tuple[Any, ...]]:
    return backend.query(f"SELECT {columns} FROM leasehold.runs ORDER BY run")


def test_a_row_of_the_users_own_follows_its_job_through_every_state(store, clock, table):
    store.add_mirror(mirror_of(table))
    for number, state in enumerate(State):
        table.query(f"INSERT INTO leasehold.runs (run) VALUES ({number})")
        in_state(store, clock, state, args=called(number), policy=MIRRORED)
    assert rows(table) == [(number, f"it's {state.value}") for number, state in enumerate(State)]


def test_an_orphan_is_told_as_running(store, clock, table):
    store.add_mirror(mirror_of(table, insert=True))
    orphan(store, clock, args=called(1), policy=MIRRORED)
    assert rows(table) == [(1, "it's running")]


def test_what_an_ending_tells_stands_in_its_columns(store, table):
    store.add_mirror(mirror_of(table, insert=True))
    end(store, run(store, args=called(1), policy=MIRRORED), Success('{"exit_code": 3, "n": "\\u00e9"}'))
    end(store, run(store, args=called(2), policy=MIRRORED), Failure("broken\nhere\nand there", final=True))
    end(store, run(store, args=called(3), policy=MIRRORED), Success('{"exit_code": "none"}'))
    end(store, run(store, args=called(4), policy=MIRRORED), Success("[5]"))
    found = rows(table, "run, exit_code, error, result IS NULL, started IS NULL, finished IS NULL")
    assert found == [
        (1, 3, None, False, False, False),
        (2, None, "broken", True, False, False),
        (3, None, None, False, False, False),
        (4, None, None, False, False, False),
    ]


def test_a_job_without_a_row_is_left_alone_unless_rows_are_inserted(store, table):
    store.add_mirror(mirror_of(table))
    put(store, args=called(1), policy=MIRRORED)
    assert rows(table) == []
    store.add_mirror(mirror_of(table, insert=True))
    put(store, args=called(2), policy=MIRRORED)
    assert rows(table) == [(2, "it's queued")]


def test_a_job_of_another_kind_or_without_the_setting_is_not_seen(store, table):
    store.add_mirror(mirror_of(table, insert=True))
    put(store, args=called(1))
    put(store, args=called(2), task="mail", policy=MIRRORED)
    put(store, args="{}", policy=MIRRORED)
    assert rows(table) == []


def test_a_mirrored_job_is_tied_and_so_is_its_retry(store, table):
    store.add_mirror(mirror_of(table, insert=True))
    job = end(store, run(store, args=called(1), policy=MIRRORED), Failure("broken", final=True))
    assert job.special == TIED
    again = store.retry(job.id, new_job().id)
    assert (again.special, rows(table)) == (TIED, [(1, "it's queued")])


def test_pruning_leaves_the_row(store, clock, table):
    store.add_mirror(mirror_of(table, insert=True))
    end(store, run(store, args=called(1), policy=MIRRORED), Success())
    put(store)  # the newest job stays
    clock.advance(100)
    assert store.prune(10).deleted == 1
    assert rows(table) == [(1, "it's succeeded")]


def test_what_the_table_refuses_is_not_stored_at_all(store, table):
    store.add_mirror(mirror_of(table, insert=True))
    with pytest.raises(Exception, match=r"(?i)check"):
        store.enqueue([new_job(args=called(1)), new_job(args=called(1000), policy=MIRRORED)])
    assert (rows(table), store.list_jobs().jobs) == ([], [])


def test_a_row_is_found_by_a_unique_key_however_long(store, backend):
    backend.query("CREATE TABLE leasehold.runs (run TEXT PRIMARY KEY, state TEXT)")
    mirror = mirror_of(backend, argument=None, status="state", columns={}, insert=True)
    try:
        store.add_mirror(mirror)
        put(store, unique_key="short", policy=MIRRORED)
        put(store, unique_key="kept", full_names=(("kept", "long" * 100),), policy=MIRRORED)
        assert {row[0] for row in rows(backend, "run")} == {"short", "long" * 100}
    finally:
        store.remove_mirror(mirror)
        backend.query("DROP TABLE leasehold.runs")


def test_words_and_names_are_quoted_as_they_are(store, backend):
    word, task = "leasehold.x'); DROP TABLE runs; -- $mirror$", "it's \\ odd; leasehold.job"
    words = WORDS | {"queued": word}
    backend.query('CREATE TABLE leasehold.runs (run TEXT PRIMARY KEY, "select" TEXT)')
    mirror = mirror_of(backend, task=task, status="select", states=words, columns={}, insert=True)
    try:
        store.add_mirror(mirror)
        put(store, task=task, args=called("a"), policy=MIRRORED)
        assert rows(backend, 'run, "select"') == [("a", word)]
        assert [row.problems for row in store.list_mirrors()] == [()]
        assert [row.mirror for row in store.list_mirrors()] == [mirror]
    finally:
        store.remove_mirror(mirror)
        backend.query("DROP TABLE leasehold.runs")
    assert store.list_mirrors() == []


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "1a", "a;b", "x" * 64, "a.b.c"])
def test_a_name_that_is_no_identifier_is_refused(name):
    good = mirror_of(Backend("sqlite", ""))
    for changes in ({"table": name}, {"key": name}, {"status": name}, {"columns": {"error": name}}):
        with pytest.raises(InvalidInput):
            replace(good, **changes)


@pytest.mark.parametrize("state", list(State))
def test_a_state_without_a_word_is_refused_by_its_name(state):
    words = {name: word for name, word in WORDS.items() if name != state.value}
    with pytest.raises(InvalidInput, match=f"no word for {state.value}"):
        mirror_of(Backend("sqlite", ""), states=words)


def test_a_table_or_a_column_that_is_not_there_is_refused(store, table):
    with pytest.raises(InvalidInput, match="no column 'nothing'"):
        store.add_mirror(mirror_of(table, status="nothing"))
    with pytest.raises(InvalidInput, match="no table"):
        store.add_mirror(mirror_of(table, table="nowhere"))
    assert store.list_mirrors() == []


def _drop_one(backend: Backend, mirror: Mirror) -> str:
    if backend.name == "sqlite":
        return f"DROP TRIGGER leasehold_{mirror.name}_lease"
    return f"DROP TRIGGER {mirror.name} ON leasehold.lease"


def test_what_is_missing_or_stale_or_stray_is_told(store, table):
    mirror = mirror_of(table)
    store.add_mirror(mirror)
    assert ([row.problems for row in store.list_mirrors()], store.stray_mirrors()) == ([()], [])
    table.query(_drop_one(table, mirror))
    ((problem,),) = [row.problems for row in store.list_mirrors()]
    assert "lease" in problem
    assert "missing" in problem
    store.add_mirror(mirror)
    changed = replace(mirror, insert=True).dump().replace("'", "''")
    table.query(f"UPDATE leasehold.mirror SET spec = '{changed}'")
    assert all("not as the mirror says" in problem for problem in store.list_mirrors()[0].problems)
    assert store.list_mirrors()[0].problems
    table.query("DELETE FROM leasehold.mirror")
    assert store.stray_mirrors()
    store.remove_mirror(mirror)
    assert store.stray_mirrors() == []


def test_a_migration_leaves_the_triggers_in_place(store, table, monkeypatch):
    """Whatever it has done to the places: they are made again from what was entered."""
    mirror = mirror_of(table, insert=True)
    store.add_mirror(mirror)
    migrations = type(store)._migrations
    version = len(migrations) + 1
    monkeypatch.setattr(type(store), "_migrations", {**migrations, version: _drop_one(table, mirror) + ";"})
    try:
        assert table.open().upgrade() == [version]
    finally:
        table.query(f"DELETE FROM leasehold.migration WHERE version = {version}")
    assert [row.problems for row in store.list_mirrors()] == [()]
    run(store, args=called(1), policy=MIRRORED)
    assert rows(table) == [(1, "it's running")]


def test_a_table_that_was_dropped_is_told_by_whoever_needs_it(store, backend):
    backend.query("CREATE TABLE leasehold.runs (run TEXT, state TEXT)")
    mirror = mirror_of(backend, status="state", columns={})
    store.add_mirror(mirror)
    backend.query("DROP TABLE leasehold.runs")
    try:
        with pytest.raises(Exception, match="runs") as refused:
            put(store, args=called("a"), policy=MIRRORED)
        assert isinstance(refused.value, StoreError) or backend.name == "postgres"
        assert "no table" in store.list_mirrors()[0].problems[0]
    finally:
        store.remove_mirror(mirror)
    assert put(store, args=called("a"), policy=MIRRORED).state is State.QUEUED
