"""A database of each kind, the loopback web and a server of its own for each test that asks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from examples.research_agent.driving import ServerProcess, loopback_web
from tests.conftest import postgres_server

__all__ = ["postgres_server"]
StartServer = Callable[..., ServerProcess]
_numbers = itertools.count(1)


def new_database(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{folder}/research.db"
    server = request.getfixturevalue("postgres_server")
    return str(server.create_database(f"research_{next(_numbers)}"))


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_database(request, tmp_path)


@pytest.fixture
def web() -> Iterator[str]:
    with loopback_web(SLOW_SECONDS="1.5") as address:
        yield address


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """For tests that only need a task of their own."""
    url = new_database(request, tmp_path_factory.mktemp("shared"))
    with loopback_web(SLOW_SECONDS="3") as web, ServerProcess(url, web) as server:
        yield server


@pytest.fixture
def start(web: str) -> Iterator[StartServer]:
    """Servers that are gone when the test is."""
    with ExitStack() as stack:

        def begin(url: str, **environment: str) -> ServerProcess:
            return stack.enter_context(ServerProcess(url, web, **environment))

        yield begin
