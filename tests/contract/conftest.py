"""Every test of the contract runs under a guard in the database itself: a job may change its state only as TRANSITIONS
says, and whoever commits leaves it in exactly one place."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leasehold.domain.states import TRANSITIONS
from tests.backends import TABLES, Backend

_LISTED = sorted({(state.value, to.value) for (state, _), ends in TRANSITIONS.items() for to in ends})
_MOVES = ", ".join(f"('{before}', '{after}')" for before, after in _LISTED)

_PARKED = "CASE NEW.state WHEN 1 THEN 'pending' WHEN 2 THEN 'waiting' WHEN 3 THEN 'paused' ELSE 'running' END"
_ENDED = (
    "CASE NEW.state WHEN 1 THEN 'succeeded' WHEN 2 THEN 'cancelled' WHEN 3 THEN 'failed' ELSE 'timed_out' END"
)
_PLACES = {
    "ready": ("NEW.seq", "'queued'"),
    "lane_place": ("NEW.seq", "'queued'"),
    "lease": ("NEW.job", "'running'"),
    "parked": ("NEW.job", f"({_PARKED})"),
    "outcome": ("NEW.job", f"({_ENDED})"),
}
"""A job's number and its state, as a row that comes into a place tells them. The guard remembers the last one."""

_SQLITE = ["CREATE TABLE guard (seq INTEGER PRIMARY KEY, state TEXT NOT NULL)"] + [
    f"""CREATE TRIGGER guard_{place} BEFORE INSERT ON leasehold_{place} BEGIN
    SELECT RAISE(ABORT, 'a move that TRANSITIONS does not list') FROM guard
    WHERE seq = {seq} AND state <> {state} AND (state, {state}) NOT IN (VALUES {_MOVES});
    INSERT OR REPLACE INTO guard VALUES ({seq}, {state});
    END"""
    for place, (seq, state) in _PLACES.items()
]

_COUNT = """SELECT
    (SELECT count(*) FROM leasehold.ready WHERE seq = j.seq)
    + (SELECT count(*) FROM leasehold.lane_place WHERE seq = j.seq)
    + (SELECT count(*) FROM leasehold.lease WHERE job = j.seq)
    + (SELECT count(*) FROM leasehold.parked WHERE job = j.seq)
    + (SELECT count(*) FROM leasehold.outcome WHERE job = j.seq)"""

_POSTGRES = "; ".join(
    [
        "CREATE TABLE IF NOT EXISTS leasehold.guard (seq bigint PRIMARY KEY, state text NOT NULL)",
        "DELETE FROM leasehold.guard",
        f"""CREATE OR REPLACE FUNCTION leasehold.guard_places() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE found bigint;
BEGIN
    SELECT ({_COUNT.removeprefix("SELECT")}) INTO found FROM leasehold.job AS j WHERE j.seq = NEW.seq;
    IF found <> 1 THEN RAISE EXCEPTION 'job % is in % places', NEW.seq, found; END IF;
    RETURN NULL;
END $$""",
        "CREATE CONSTRAINT TRIGGER one_place AFTER INSERT OR UPDATE ON leasehold.guard"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION leasehold.guard_places()",
    ]
    + [
        f"""CREATE OR REPLACE FUNCTION leasehold.guard_{place}() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE was text;
BEGIN
    SELECT state INTO was FROM leasehold.guard WHERE seq = {seq};
    IF was <> {state} AND (was, {state}) NOT IN ({_MOVES}) THEN
        RAISE EXCEPTION 'a move that TRANSITIONS does not list: % to %', was, {state};
    END IF;
    INSERT INTO leasehold.guard VALUES ({seq}, {state})
    ON CONFLICT (seq) DO UPDATE SET state = excluded.state;
    RETURN NEW;
END $$; CREATE TRIGGER guard_{place} BEFORE INSERT ON leasehold.{place} FOR EACH ROW
EXECUTE FUNCTION leasehold.guard_{place}()"""
        for place, (seq, state) in _PLACES.items()
    ]
)

_POSTGRES_END = "; ".join(
    [
        "SET lock_timeout = '60s'",
        *(f"DROP TRIGGER guard_{place} ON leasehold.{place}" for place in _PLACES),
        "DROP TABLE leasehold.guard",
    ]
)


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """The shared fixture of this name, with the guard."""
    if request.param == "sqlite":
        shutil.copyfile(request.getfixturevalue("_guarded_template"), tmp_path / "jobs.db")
        backend = Backend("sqlite", f"sqlite:///{tmp_path}/jobs.db")
        yield backend
        backend.close_opened()
        # SQLite has no deferred triggers: who is in no place, or in two, is looked for at the end.
        assert backend.query(f"SELECT j.id FROM leasehold.job AS j WHERE ({_COUNT}) <> 1") == []
        return
    backend = request.getfixturevalue("_postgres_backend")
    run = request.getfixturevalue("run_in_postgres")
    run("; ".join([*(f"DELETE FROM leasehold.{table}" for table in TABLES), _POSTGRES]))
    yield backend
    backend.close_opened()
    run(_POSTGRES_END)  # the schema is shared with the tests of other folders


@pytest.fixture(scope="session")
def _guarded_template(_sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("guarded") / "jobs.db"
    shutil.copyfile(_sqlite_template, path)
    for statement in _SQLITE:
        Backend("sqlite", f"sqlite:///{path}").query(statement)
    return path


@pytest.fixture(scope="session")
def run_in_postgres(_postgres_backend: Backend) -> Iterator[Callable[[str], object]]:
    """One connection for all tests: here are hundreds of them, and connecting costs more than most of them do."""
    import psycopg

    with psycopg.connect(_postgres_backend.url, autocommit=True) as connection:
        schema = f'"{_postgres_backend.schema}".'
        yield lambda text: connection.execute(text.replace("leasehold.", schema).encode())
