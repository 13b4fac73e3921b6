"""Databases for the servers of the tests: a SQLite file, or a database of a real PostgreSQL server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.agent_server.outside import Fleet, Server, fleet
from tests.conftest import postgres_server  # noqa: F401

STORES = ("sqlite", "postgres")
TOKEN_LIMIT = 1000
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def new_url(request: pytest.FixtureRequest) -> Callable[[str, Path], str]:
    def make(store: str, folder: Path) -> str:
        if store == "sqlite":
            return f"sqlite:///{folder}/agents.db"
        return request.getfixturevalue("postgres_server").create_database(f"agents_{next(numbers)}")

    return make


@pytest.fixture(params=STORES)
def servers(
    request: pytest.FixtureRequest, new_url: Callable[[str, Path], str], tmp_path: Path
) -> Iterator[Fleet]:
    """None yet: the test starts, kills and ends them."""
    settings = {"TOKEN_LIMIT": str(TOKEN_LIMIT), "LEASEHOLD_URL": new_url(request.param, tmp_path)}
    with fleet(tmp_path, **settings) as made:
        yield made


@pytest.fixture(scope="module", params=STORES)
def two_servers(
    request: pytest.FixtureRequest,
    new_url: Callable[[str, Path], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    """Two processes on one database, which stay for all tests that end none; each test has targets of its own."""
    folder = tmp_path_factory.mktemp("agents")
    settings = {"TOKEN_LIMIT": str(TOKEN_LIMIT), "LEASEHOLD_URL": new_url(request.param, folder)}
    with fleet(folder, HEARTBEAT_SECONDS="2", **settings) as made:
        made.start()
        made.start()  # both prepare the database
        yield made


@pytest.fixture
def one(two_servers: Fleet) -> Server:
    return two_servers.servers[0]


@pytest.fixture
def two(two_servers: Fleet) -> Server:
    return two_servers.servers[1]
