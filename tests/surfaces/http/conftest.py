"""A server on each store, asked over real connections."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import httpx2
import pytest
from fastapi import FastAPI

from leasehold import Context, Leasehold
from leasehold.http import create_app
from tests.backends import Backend
from tests.surfaces.serving import Server, listening


def make_app() -> Leasehold:
    app = Leasehold("sqlite:///nothing.db")

    @app.task
    def add(a: int, b: int = 1) -> int:
        """Adds two numbers.

        And tells nobody how."""
        return a + b

    @app.task(queue="agents", lane="{name}", sensitive=("key",))
    async def greet(ctx: Context, name: str, key: str = "") -> str:
        ctx.progress(1, 2, "begun")
        ctx.emit("word", "hello", key="1")
        answer = await ctx.ask("go", "May I?", schema={"type": "boolean"})
        return f"{name} {answer}"

    @app.task
    def fail() -> None:
        raise ValueError("broken")

    return app


@pytest.fixture(scope="session")
def _app() -> Leasehold:
    return make_app()


@pytest.fixture
def app(_app: Leasehold, backend: Backend) -> Iterator[Leasehold]:
    """One for all tests, moved to the store of each: making the routes takes longer than most tests do."""
    internals = _app.__internals__
    with internals.moved_to(replace(internals.location, url=backend.url, schema=backend.schema)):
        for card in internals.store.list_workers(1e9):
            internals.store.forget_worker(card.name)
        yield _app


@pytest.fixture
def listen(app: Leasehold) -> Iterator[Callable[[FastAPI], Server]]:
    """Serve any ASGI app that is about `app`."""
    with contextlib.ExitStack() as stack:
        yield lambda api: stack.enter_context(listening(app, api))


@pytest.fixture(scope="session")
def api(_app: Leasehold) -> FastAPI:
    """It asks for tokens. What tries every route may do so as fast as it can."""
    return create_app(_app, rate_limit=0)


@pytest.fixture(scope="session")
def _server(_app: Leasehold, api: FastAPI) -> Iterator[Server]:
    with listening(_app, api) as server:
        yield server


@pytest.fixture
def server(app: Leasehold, _server: Server) -> Iterator[Server]:
    yield _server
    _server.close()


@pytest.fixture
def admin(server: Server) -> httpx2.Client:
    return server.client("admin")
