"""The schema: migrations apply once, a schema that does not fit is refused, and the tables hold the invariants."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leasehold.domain.errors import SchemaOutdated, SchemaTooNew
from leasehold.domain.outcome import Failure
from leasehold.domain.states import State
from leasehold.stores.base.statements import read_migrations
from tests.backends import Backend, put
from tests.contract.lives import claim_one, end, in_state, orphan, run

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


def _refused(backend: Backend, job_id: str, change: str) -> None:
    with pytest.raises(Exception, match=r"(?i)constraint|check"):
        backend.query(f"UPDATE leasehold.job SET {change} WHERE id = ?", job_id)


@pytest.mark.parametrize("state", [state for state in State if state is not State.RUNNING])
def test_a_stop_flag_on_a_row_that_does_not_run_is_refused(store, clock, backend, state):
    job = in_state(store, clock, state)
    for flag in ("finish", "pause", "cancel"):
        _refused(backend, job.id, f"stop_requested = '{flag}'")
    assert store.get(job.id) == job


@pytest.mark.parametrize("state", [state for state in State if state is not State.RUNNING])
def test_a_lease_on_a_row_that_does_not_run_is_refused(store, clock, backend, state):
    job = in_state(store, clock, state)
    _refused(backend, job.id, "lease_owner = 'w', lease_expires_at = created_at")
    assert store.get(job.id) == job


def test_an_unknown_stop_flag_is_refused(store, backend):
    _refused(backend, run(store).id, "stop_requested = 'perhaps'")


def test_an_owner_without_an_expiry_and_an_expiry_without_an_owner_are_refused(store, clock, backend):
    held, left = run(store), orphan(store, clock)
    _refused(backend, held.id, "lease_owner = NULL")
    _refused(backend, held.id, "lease_expires_at = NULL")
    _refused(backend, left.id, "lease_owner = 'w'")
    _refused(backend, left.id, "lease_expires_at = created_at")


def test_an_unknown_state_is_refused(store, backend):
    job = put(store)
    with pytest.raises(Exception, match=r"(?i)constraint|check|TRANSITIONS"):
        backend.query("UPDATE leasehold.job SET state = 'gone' WHERE id = ?", job.id)


def test_a_priority_out_of_range_is_refused(store, backend):
    job = put(store)
    for priority in (-101, 101):
        _refused(backend, job.id, f"priority = {priority}")


def test_negative_counters_are_refused(store, backend):
    job = put(store)
    for column in ("lease_token", "attempt", "unmet"):
        _refused(backend, job.id, f"{column} = -1")


def test_a_hold_on_a_row_that_is_not_pending_is_refused(store, backend):
    _refused(backend, put(store).id, "held = true")


def test_a_halt_on_a_row_that_has_not_failed_or_has_no_lane_is_refused(store, clock, backend):
    _refused(backend, put(store, lane="l").id, "halts_lane = true")
    _refused(backend, in_state(store, clock, State.FAILED).id, "halts_lane = true")


def test_a_lane_without_a_place_and_a_place_without_a_lane_are_refused(store, backend):
    _refused(backend, put(store, lane="l").id, "lane_at = NULL")
    _refused(backend, put(store).id, "lane_at = created_at")


def test_an_unknown_span_of_uniqueness_is_refused(store, backend):
    _refused(backend, put(store).id, "unique_for = 'today'")


def test_two_holders_of_one_unique_key_are_refused(store, backend):
    put(store, unique_key="a")
    other = put(store, unique_key="b")
    with pytest.raises(Exception, match=r"(?i)unique"):
        backend.query("UPDATE leasehold.job SET unique_key = 'a' WHERE id = ?", other.id)


def test_a_result_or_arguments_that_are_not_json_are_refused(store, backend):
    job = put(store)
    for column in ("args", "result"):
        with pytest.raises(Exception, match=r"(?i)json"):
            backend.query(f"UPDATE leasehold.job SET {column} = 'not json' WHERE id = ?", job.id)


def test_a_job_has_one_row(store, backend):
    one, two = put(store), put(store)
    with pytest.raises(Exception, match=r"(?i)unique"):
        backend.query("UPDATE leasehold.job SET id = ? WHERE id = ?", one.id, two.id)


def test_a_move_that_is_not_listed_is_noticed_by_the_guard_of_these_tests(store, backend):
    job = end(store, run(store), Failure("boom", final=True))
    with pytest.raises(Exception, match="TRANSITIONS"):
        backend.query("UPDATE leasehold.job SET state = 'succeeded' WHERE id = ?", job.id)
    claim = put(store)
    assert claim_one(store).id == claim.id
