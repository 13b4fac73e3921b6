"""A server on each store, asked over real connections."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI

from leasehold import Context, Leasehold
from leasehold.http import create_app
from tests.backends import Backend

PATIENCE = 90.0
"""Longer than the longest wait that a request may ask for, which is a minute."""


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
    with internals.moved_to(replace(internals.place, url=backend.url, schema=backend.schema)):
        for card in internals.store.list_workers(1e9):
            internals.store.forget_worker(card.owner)
        yield _app


@dataclass
class Server:
    """In a thread of this process."""

    app: Leasehold
    url: str
    _clients: list[httpx2.Client] = field(default_factory=list)

    def client(self, *scopes: str, token: str | None = None, **headers: str) -> httpx2.Client:
        """With a token of these scopes, or this token, or none."""
        if scopes:
            token = self.token(*scopes)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        made = httpx2.Client(base_url=self.url, headers=headers, timeout=PATIENCE)
        self._clients.append(made)
        return made

    def token(self, *scopes: str, **more: Any) -> str:
        operations = self.app.__internals__.operations
        name = f"token {len(operations.list_tokens())}"
        return operations.create_token(name, scopes, **more)[1]

    def close(self) -> None:
        while self._clients:
            self._clients.pop().close()


class _Quiet(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def listening(app: Leasehold, api: FastAPI) -> Iterator[Server]:
    server = _Quiet(uvicorn.Config(api, port=0, log_config=None, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + PATIENCE
    while not server.started:
        assert thread.is_alive(), "the server has not come up"
        assert time.monotonic() < deadline, "the server has not come up"
        time.sleep(0.01)
    made = Server(app, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
    try:
        yield made
    finally:
        made.close()
        server.should_exit = True
        thread.join(PATIENCE)


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
