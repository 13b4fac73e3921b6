"""A server on each store, and both ways to its jobs: the app itself, and the client of its HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from leasehold import Context, Leasehold, Retry, SyncContext
from leasehold.domain.job import Grant
from leasehold.domain.outcome import Outcome
from leasehold.http import create_app
from leasehold.remote import Remote
from leasehold.stores.results import Ending
from tests.backends import Backend
from tests.surfaces.serving import Server, listening

Handle = Leasehold | Remote
QUEUES = ["default", "q", "asking", "flaky"]


def make_app() -> Leasehold:
    app = Leasehold("sqlite:///nothing.db")

    @app.task
    def add(a: int, b: int = 1) -> int:
        """Adds two numbers."""
        return a + b

    @app.task(queue="q", lane="{target}")
    def work(target: str) -> str:
        return target

    @app.task(queue="asking")
    async def greet(ctx: Context, name: str) -> str:
        ctx.progress(1, 2, "begun")
        ctx.emit("word", "hello", key="1")
        answer = await ctx.ask("go", "May I?", schema={"type": "boolean"})
        return f"{name} {answer}"

    @app.task(queue="flaky", retry=Retry(max_attempts=2, backoff=0))
    def flaky(ctx: SyncContext) -> int:
        ctx.log("looking")
        if ctx.attempt == 1:
            raise ConnectionError("down")
        return ctx.attempt

    return app


@pytest.fixture(scope="session")
def _app() -> Leasehold:
    return make_app()


@pytest.fixture(scope="session")
def _server(_app: Leasehold) -> Iterator[Server]:
    with listening(_app, create_app(_app)) as server:
        yield server


@pytest.fixture
def app(_app: Leasehold, backend: Backend) -> Iterator[Leasehold]:
    """One for all tests, moved to the store of each."""
    internals = _app.__internals__
    with internals.moved_to(replace(internals.location, url=backend.url, schema=backend.schema)):
        yield _app


@pytest.fixture
def server(app: Leasehold, _server: Server) -> Server:
    return _server


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[..., Remote]]:
    """Clients that are closed behind the test."""
    made: list[Remote] = []

    def connect(token: str | None, url: str = server.url, **more: Any) -> Remote:
        made.append(Remote(url, token=token, **more))
        return made[-1]

    yield connect
    for one in made:
        one.close()


@pytest.fixture
def remote(server: Server, connect: Callable[..., Remote]) -> Remote:
    return connect(server.token("admin"))


@pytest.fixture(params=["python", "remote"])
def api(request: pytest.FixtureRequest, app: Leasehold) -> Handle:
    """What an operator has in hand. Tests that use it say what both of them do."""
    if request.param == "python":
        return app
    found: Remote = request.getfixturevalue("remote")
    return found


def claim(app: Leasehold) -> Grant:
    (grant,) = app.__internals__.store.claim("worker", QUEUES, 1)
    return grant


def settle(app: Leasehold, outcome: Outcome) -> None:
    """Run the next job as a worker would."""
    grant = claim(app)
    app.__internals__.store.settle([Ending(grant.id, grant.token, outcome)])
