"""Fixtures that every folder of tests shares. Which tests run in which lane, and in which order: tests/lanes.py."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from leasehold import Leasehold
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import Backend
from tests.runners.docker.engine import PrivateEngine, why_no_engine
from tests.servers import PostgresServer, why_unavailable

# A loaded machine is slow now and then; how long one example takes says nothing about the code.
settings.register_profile("leasehold", deadline=None)
settings.load_profile("leasehold")


# --- PostgreSQL -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server that the tests of one process share. Start another with `start_postgres` to stop or crash it.

    LEASEHOLD_TEST_PG chooses the major version: 15, 16, 17 or 18 (the default).
    """
    version = int(os.environ.get("LEASEHOLD_TEST_PG", "18"))
    _require_postgres(version)
    with PostgresServer(version, fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    """The database that the tests of one process share; each test has a schema of its own in it."""
    return postgres_server.create_database("leasehold_tests")


@pytest.fixture
def postgres_schema(_postgres_schemas: _Schemas) -> Iterator[str]:
    """The name of a schema in the shared database that no other test uses. It does not exist yet."""
    name = _postgres_schemas.new_name()
    yield name
    _postgres_schemas.discard(name)


@pytest.fixture
def start_postgres() -> Iterator[Callable[..., PostgresServer]]:
    """Start servers that belong to this test alone: `server = start_postgres(version=16, fsync=True)`."""
    servers: list[PostgresServer] = []

    def start(version: int = 18, **options: object) -> PostgresServer:
        _require_postgres(version)
        server = PostgresServer(version, **options)
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.close()


class _Schemas:
    """Hands out schema names and drops what tests have left.

    Creating a database for each test would cost more than most tests do. Dropping nothing would fill the disk with
    the small files of empty tables and indexes, so schemas are dropped, but many over one connection. What is left
    at the end goes with the server's folder.
    """

    BATCH = 20

    def __init__(self, url: str) -> None:
        self._url = url
        self._numbers = itertools.count(1)
        self._discarded: list[str] = []

    def new_name(self) -> str:
        return f"test_{next(self._numbers)}"

    def discard(self, name: str) -> None:
        self._discarded.append(name)
        if len(self._discarded) >= self.BATCH:
            self._drop()

    def _drop(self) -> None:
        import psycopg
        from psycopg import sql

        names, self._discarded = self._discarded, []
        # Tidying up must not fail a test: a schema that a forgotten session still locks is left to the end.
        options = "-c lock_timeout=200 -c client_min_messages=error"
        try:
            with psycopg.connect(self._url, autocommit=True, options=options) as connection:
                for name in names:
                    statement = sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(name))
                    try:
                        connection.execute(statement)
                    except psycopg.errors.LockNotAvailable:
                        continue
        except psycopg.OperationalError:
            pass


@pytest.fixture(scope="session")
def _postgres_schemas(postgres_url: str) -> _Schemas:
    return _Schemas(postgres_url)


def _require_postgres(version: int) -> None:
    if (reason := why_unavailable(version)) is not None:
        pytest.skip(reason)


# --- Docker ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[PrivateEngine]:
    """The engine that the tests of one process share, with one image. Mark them with `xdist_group("docker")`: one
    engine is enough for all."""
    if (reason := why_no_engine()) is not None:
        pytest.skip(reason)
    engine = PrivateEngine()
    try:
        engine.start().import_image()
        yield engine
    finally:
        engine.close()


# --- The store ------------------------------------------------------------------------------------------------------
#
# Every test that asks for `store` runs once on SQLite and once on PostgreSQL. `clock` is the store's now: it stands
# still until the test advances it.


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """An empty database with the schema in place, and a way to open stores on it."""
    if request.param == "sqlite":
        shutil.copyfile(request.getfixturevalue("_sqlite_template"), tmp_path / "jobs.db")
        backend = Backend("sqlite", f"sqlite:///{tmp_path}/jobs.db")
    else:
        backend = request.getfixturevalue("_postgres_backend")
        backend.empty()
    yield backend
    backend.close_opened()


@pytest.fixture
def store(backend: Backend, clock: ManualClock) -> JobStore:
    """The store under test, on the test's clock."""
    return backend.open(clock)


@pytest.fixture
def app_settings() -> dict[str, Any]:
    """How `app` is made. Files and folders with other settings have a fixture of this name."""
    return {}


@pytest.fixture
def app(backend: Backend, app_settings: dict[str, Any]) -> Iterator[Leasehold]:
    """An app on the store under test, by the database's own clock."""
    with Leasehold(backend.url, schema=backend.schema, **app_settings) as app:
        yield app


@pytest.fixture(scope="session")
def _sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the schema in place. Making one takes longer than most tests; copying it does not."""
    path = tmp_path_factory.mktemp("template") / "jobs.db"
    backend = Backend("sqlite", f"sqlite:///{path}")
    backend.open().upgrade()
    backend.close_opened()
    return path


@pytest.fixture(scope="session")
def _postgres_backend(postgres_url: str) -> Iterator[Backend]:
    """Making the schema takes longer than most tests, so it is made once and emptied between them."""
    backend = Backend("postgres", postgres_url, "shared", keeps_session=True)
    backend.open().upgrade()
    backend.close_opened()
    yield backend
    backend.close_session()
