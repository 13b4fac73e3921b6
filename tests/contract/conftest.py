"""Every test of the contract runs under a guard in the database itself: a state may change only as TRANSITIONS says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leasehold.domain.states import TRANSITIONS
from tests.backends import TABLES, Backend

_LISTED = sorted({(state.value, to.value) for (state, _), ends in TRANSITIONS.items() for to in ends})
_MOVES = ", ".join(f"('{before}', '{after}')" for before, after in _LISTED)

_SQLITE = f"""CREATE TRIGGER only_listed_moves BEFORE UPDATE OF state ON job
WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES {_MOVES})
BEGIN SELECT RAISE(ABORT, 'a move that TRANSITIONS does not list'); END"""

_POSTGRES = f"""CREATE OR REPLACE FUNCTION leasehold.refuse_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'a move that TRANSITIONS does not list: %% to %%', OLD.state, NEW.state; END $$;
CREATE OR REPLACE TRIGGER only_listed_moves BEFORE UPDATE OF state ON leasehold.job FOR EACH ROW
WHEN (OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN ({_MOVES}))
EXECUTE FUNCTION leasehold.refuse_move()""".replace("%%", "%")

_POSTGRES_END = "SET lock_timeout = '5s'; DROP TRIGGER only_listed_moves ON leasehold.job"


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """The shared fixture of this name, with the guard."""
    if request.param == "sqlite":
        backend = Backend("sqlite", f"sqlite:///{tmp_path}/jobs.db")
        backend.open().upgrade()
        backend.query(_SQLITE)
        yield backend
        backend.close_opened()
        return
    backend = request.getfixturevalue("_postgres_backend")
    run = request.getfixturevalue("run_in_postgres")
    run("; ".join([*(f"DELETE FROM leasehold.{table}" for table in TABLES), _POSTGRES]))
    yield backend
    backend.close_opened()
    run(_POSTGRES_END)  # the schema is shared with the tests of other folders


@pytest.fixture(scope="session")
def run_in_postgres(_postgres_backend: Backend) -> Iterator[Callable[[str], object]]:
    """One connection for all tests: here are hundreds of them, and connecting costs more than most of them do."""
    import psycopg

    with psycopg.connect(_postgres_backend.url, autocommit=True) as connection:
        schema = f'"{_postgres_backend.schema}".'
        yield lambda text: connection.execute(text.replace("leasehold.", schema).encode())
