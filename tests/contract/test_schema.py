"""The schema: migrations apply once, a schema that does not fit is refused, and the tables hold the invariants."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from leasehold.domain.errors import SchemaOutdated, SchemaTooNew
from leasehold.domain.job import Job
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.policy import Policy
from leasehold.domain.states import State
from leasehold.stores.database.statements import read_migrations
from leasehold.stores.open import open_store
from tests.backends import Backend, put
from tests.contract.lives import OWNER, claim_one, end, in_state, run

VERSIONS = list(read_migrations("leasehold.stores.sqlite"))


@pytest.fixture(params=["sqlite", "postgres"])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """A database without a schema."""
    if request.param == "sqlite":
        backend = Backend("sqlite", f"sqlite:///{tmp_path}/jobs.db")
    else:
        url, schema = request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_schema")
        backend = Backend("postgres", url, schema)
    yield backend
    backend.close_opened()


# -- migrations --------------------------------------------------------------------------------------------------------


def test_both_stores_have_the_same_migrations():
    assert list(read_migrations("leasehold.stores.postgres")) == VERSIONS


def test_an_upgrade_applies_what_is_missing_and_a_second_one_nothing(bare):
    store = bare.open()
    assert store.upgrade() == VERSIONS
    assert store.upgrade() == []
    assert bare.open().upgrade() == []
    store.check_schema()
    applied = bare.query("SELECT version FROM leasehold.migration ORDER BY version")
    assert applied == [(version,) for version in VERSIONS]


def test_an_upgrade_keeps_the_jobs(bare):
    store = bare.open()
    store.upgrade()
    job = put(store)
    store.upgrade()
    assert store.get(job.id) == job


def test_concurrent_upgrades_apply_every_migration_once(bare):
    count = 6
    stores = [bare.open() for _ in range(count)]
    start = threading.Barrier(count)

    def upgrade(store) -> list[int]:
        start.wait(20)
        return store.upgrade()

    with ThreadPoolExecutor(count) as threads:
        applied = list(threads.map(upgrade, stores))
    assert sorted(applied) == [[]] * (count - 1) + [VERSIONS]
    for store in stores:
        store.check_schema()


def test_a_missing_schema_is_refused_with_the_remedy(bare):
    store = bare.open()
    with pytest.raises(SchemaOutdated, match="has no Leasehold schema") as refusal:
        store.check_schema()
    assert (refusal.value.found, refusal.value.needed) == (0, len(VERSIONS))
    assert "upgrade" in str(refusal.value)
    assert store.label in str(refusal.value)


def test_a_newer_schema_is_refused_and_left_alone(bare):
    store = bare.open()
    store.upgrade()
    newer = VERSIONS[-1] + 1
    stamp = "0" if bare.name == "sqlite" else "now()"
    bare.query(f"INSERT INTO leasehold.migration (version, applied_at) VALUES ({newer}, {stamp})")
    for verb in (store.check_schema, store.upgrade, bare.open().check_schema):
        with pytest.raises(SchemaTooNew) as refusal:
            verb()
        assert (refusal.value.found, refusal.value.known) == (newer, VERSIONS[-1])
        assert "upgrade the leasehold package" in str(refusal.value)
    assert bare.query("SELECT max(version) FROM leasehold.migration") == [(newer,)]


def test_an_older_schema_is_refused_with_the_remedy(bare):
    store = bare.open()
    store.upgrade()
    bare.query(f"DELETE FROM leasehold.migration WHERE version = {VERSIONS[-1]}")
    with pytest.raises(SchemaOutdated) as refusal:
        store.check_schema()
    assert refusal.value.found == VERSIONS[-1] - 1
    assert "upgrade" in str(refusal.value)


def test_two_schemas_of_one_database_do_not_see_each_other(postgres_url, postgres_schema):
    one, two = (Backend("postgres", postgres_url, postgres_schema + end) for end in ("", "_b"))
    try:
        store, other = one.open(), two.open()
        store.upgrade()
        with pytest.raises(SchemaOutdated):
            other.check_schema()
        assert other.upgrade() == VERSIONS
        job = put(store)
        assert other.list_jobs().jobs == []
        assert other.claim("w", ["default"], 100) == []
        assert [grant.id for grant in store.claim("w", ["default"], 100)] == [job.id]
    finally:
        one.close_opened()
        two.close_opened()
        two.query(f'SET client_min_messages = error; DROP SCHEMA IF EXISTS "{two.schema}" CASCADE')


# -- the invariants, behind the store's back ---------------------------------------------------------------------------
#
# A flag, a lease or a hold on a job that cannot have one has no column to stand in; these are the slips that are left.


def _refused(
    backend: Backend, table: str, job: Job, change: str, match: str = r"(?i)constraint|check"
) -> None:
    key = "seq" if table in ("job", "ready", "lane_place") else "job"
    with pytest.raises(Exception, match=match):
        backend.query(f"UPDATE leasehold.{table} SET {change} WHERE {key} = ?", job.seq)


def test_an_unknown_stop_flag_is_refused(store, backend):
    running = store.get(run(store).id)
    for stop in (-1, 4):
        _refused(backend, "lease", running, f"stop = {stop}")


@pytest.mark.parametrize("state", [State.PENDING, State.WAITING, State.PAUSED])
def test_a_stop_flag_on_a_parked_job_that_is_no_orphan_is_refused(store, clock, backend, state):
    job = in_state(store, clock, state)
    for stop in (1, 2, 3):
        _refused(backend, "parked", job, f"stop = {stop}")
    assert store.get(job.id) == job


def test_a_lease_without_an_owner_an_expiry_or_a_token_is_refused(store, backend):
    running = store.get(run(store).id)
    for change in ("worker = NULL", "expires_at = NULL", "token = 0"):
        _refused(backend, "lease", running, change)


def test_an_unknown_state_is_refused(store, clock, backend):
    for state in (0, 5):
        _refused(backend, "parked", in_state(store, clock, State.PAUSED), f"state = {state}")
        _refused(backend, "outcome", in_state(store, clock, State.FAILED), f"state = {state}")


def test_a_priority_out_of_range_is_refused(store, backend):
    job = put(store)
    for priority in (-101, 101):
        _refused(backend, "job", job, f"priority = {priority}")


def test_a_negative_number_of_unmet_parents_is_refused(store, clock, backend):
    _refused(backend, "parked", in_state(store, clock, State.PENDING), "unmet = -1")


@pytest.mark.parametrize("state", [State.WAITING, State.PAUSED])
def test_a_hold_on_a_job_that_is_not_pending_is_refused(store, clock, backend, state):
    _refused(backend, "parked", in_state(store, clock, state), "held = true")


def test_a_queued_job_of_a_lane_without_a_place_in_it_is_refused(store, backend):
    _refused(backend, "lane_place", put(store, lane="l"), "lane_at = NULL")


def test_two_holders_of_one_unique_key_are_refused(store, backend):
    put(store, unique_key="a")
    put(store, unique_key="b")
    with pytest.raises(Exception, match=r"(?i)unique"):
        backend.query("UPDATE leasehold.unique_key SET key = 'a' WHERE key = 'b'")


def test_a_result_or_arguments_that_are_not_json_are_refused(store, backend):
    job = end(store, run(store), Success())
    _refused(backend, "job", job, "args = 'not json'", match=r"(?i)json")
    _refused(backend, "outcome", job, "result = 'not json'", match=r"(?i)json")


def test_a_job_has_one_row(store, backend):
    one, two = put(store), put(store)
    with pytest.raises(Exception, match=r"(?i)unique"):
        backend.query("UPDATE leasehold.job SET id = ? WHERE id = ?", one.id, two.id)


@pytest.mark.parametrize("table", ["ready", "lease", "parked", "outcome"])
def test_a_job_is_in_a_place_once(store, clock, backend, table):
    states = {"ready": State.QUEUED, "lease": State.RUNNING, "parked": State.PAUSED, "outcome": State.FAILED}
    in_state(store, clock, states[table])
    with pytest.raises(Exception, match=r"(?i)unique"):
        backend.query(f"INSERT INTO leasehold.{table} SELECT * FROM leasehold.{table}")


def test_a_move_that_is_not_listed_is_noticed_by_the_guard_of_these_tests(store, backend):
    job = end(store, run(store), Failure("boom", final=True))
    with pytest.raises(Exception, match="TRANSITIONS"):
        backend.query(
            "INSERT INTO leasehold.lease (job, token, expires_at, started_at, attempt, worker, lease_seconds)"
            " SELECT job, token, finished_at, finished_at, attempt, worker, 30 FROM leasehold.outcome WHERE job = ?",
            job.seq,
        )
    claim = put(store)
    assert claim_one(store).id == claim.id


def test_the_public_view_shows_every_job_once(store, clock, backend):
    states = {str(in_state(store, clock, state).id): state.value for state in State}
    rows = backend.query("SELECT id, state FROM leasehold.jobs")
    shown = {str(job_id): state for job_id, state in rows}
    assert len(rows) == len(shown)
    assert shown.items() >= states.items()


def test_the_public_view_tells_how_many_attempts_a_job_has_and_when_the_first_began(store, clock, backend):
    plain = put(store)
    grant = run(store, policy=Policy(max_attempts=7, backoff=0))
    first = store.get(grant.id).started_at
    clock.advance(5)
    end(store, grant, Failure("boom"))
    store.claim_by_id(grant.id, OWNER)
    requested = "SELECT attempt, max_attempts, first_started_at, started_at FROM leasehold.jobs WHERE id = ?"
    ((attempt, most, began, again),) = backend.query(requested, grant.id)
    assert (attempt, most) == (2, 7)
    assert (instant(began), instant(again)) == (first, store.get(grant.id).started_at)
    assert instant(began) < instant(again)
    assert backend.query(requested, plain.id) == [(0, Policy().max_attempts, None, None)]
    spoilt = {"max_attempts": "as often as you like"}
    backend.query("UPDATE leasehold.job SET policy = ? WHERE id = ?", json.dumps(spoilt), plain.id)
    assert backend.query(requested, plain.id) == [(0, Policy().max_attempts, None, None)], (
        "the others are shown"
    )


def instant(reported: datetime | str) -> datetime:
    return reported if isinstance(reported, datetime) else datetime.fromisoformat(reported)


def test_a_file_with_tables_of_the_same_names_keeps_them(tmp_path):
    """We live in the user's own SQLite file."""
    path = tmp_path / "shop.db"
    names = (
        "jobs",
        "job",
        "job_update",
        "tag",
        "step",
        "worker",
        "lease",
        "ready",
        "migration",
        "history",
        "pause",
    )
    with closing(sqlite3.connect(path)) as connection, connection:
        for name in names:
            connection.execute(f"CREATE TABLE {name} (mine TEXT)")
            connection.execute(f"INSERT INTO {name} VALUES (?)", [name])
            connection.execute(f"CREATE INDEX {name}_claim ON {name} (mine)")
    store = open_store(f"sqlite:///{path}")
    store.upgrade()
    end(store, run(store), Success())
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert [connection.execute(f"SELECT mine FROM {name}").fetchall() for name in names] == [
            [(name,)] for name in names
        ]
        ours = connection.execute(
            "SELECT name FROM sqlite_schema WHERE substr(name, 1, 10) <> 'leasehold_' AND name NOT LIKE 'sqlite%'"
        ).fetchall()
        assert {name for (name,) in ours} == {*names, *(f"{name}_claim" for name in names)}
