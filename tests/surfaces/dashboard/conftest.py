"""The dashboard on each store: asked by a client that acts as a browser does, and by a real browser."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp

from leasehold import Context, Leasehold
from leasehold.dashboard import create_dashboard
from tests.backends import Backend
from tests.surfaces.dashboard.browsing import chromium as chromium
from tests.surfaces.dashboard.sample import add_tasks
from tests.surfaces.serving import Server, listening


def make_app() -> Leasehold:
    app = Leasehold("sqlite:///nothing.db")

    @app.task
    def add(a: int, b: int = 1) -> int:
        return a + b

    @app.task(queue="agents", lane="{name}", sensitive=("key",))
    async def greet(ctx: Context, name: str, key: str = "") -> str:
        ctx.progress(1, 2, "begun")
        ctx.emit("word", "hello", key="1")
        answer = await ctx.ask("go", "May I?", schema={"type": "boolean"})
        return f"{name} {answer}"

    @app.task
    def fail(text: str = "broken") -> None:
        raise ValueError(text)

    add_tasks(app)
    return app


@pytest.fixture(scope="session")
def _app() -> Leasehold:
    return make_app()


@pytest.fixture
def app(_app: Leasehold, backend: Backend) -> Iterator[Leasehold]:
    """One for all tests, moved to the store of each."""
    internals = _app.__internals__
    with internals.moved_to(replace(internals.location, url=backend.url, schema=backend.schema)):
        for card in internals.store.list_workers(1e9):
            internals.store.forget_worker(card.name)
        yield _app


@dataclass
class Viewer:
    """A client that shows a token, and posts forms as a page of the dashboard does."""

    client: httpx2.Client
    url: str

    def get(self, path: str = "/", **query: Any) -> httpx2.Response:
        return self.client.get(path, params=query or None)

    def page(self, path: str = "/", **query: Any) -> str:
        answer = self.get(path, **query)
        assert answer.status_code == 200, answer.text
        return answer.text

    def do(self, verb: str, /, **fields: Any) -> httpx2.Response:
        """What pressing a button sends. It answers with a redirect to the page that tells how it went."""
        return self.client.post(f"/do/{verb}", data=fields, headers={"Origin": self.url})

    def reported(self, answer: httpx2.Response) -> str:
        """The notice that the page after a verb shows."""
        assert answer.status_code == 303, answer.text
        text = self.client.get(answer.headers["location"]).text
        assert 'class="notice' in text, text
        return text.partition('class="notice')[2].partition("<bdi>")[2].partition("</bdi>")[0]


@dataclass
class Dashboard:
    server: Server
    app: Leasehold

    @property
    def url(self) -> str:
        return self.server.url

    def viewer(self, *scopes: str, **more: Any) -> Viewer:
        """With a token of these scopes; with none of them, without a token."""
        token = self.server.token(*scopes, **more) if scopes else None
        return Viewer(self.server.client(token=token), self.url)


@pytest.fixture
def listen(app: Leasehold) -> Iterator[Callable[[ASGIApp], Dashboard]]:
    with contextlib.ExitStack() as stack:
        yield lambda made: Dashboard(stack.enter_context(listening(app, made)), app)


@pytest.fixture(scope="session")
def _server(_app: Leasehold) -> Iterator[Server]:
    with listening(_app, create_dashboard(_app, rate_limit=0)) as server:
        yield server


@pytest.fixture
def dashboard(app: Leasehold, _server: Server) -> Iterator[Dashboard]:
    """It asks for tokens."""
    yield Dashboard(_server, app)
    _server.close()


@pytest.fixture
def viewer(dashboard: Dashboard) -> Viewer:
    return dashboard.viewer("read")


@pytest.fixture
def operator(dashboard: Dashboard) -> Viewer:
    return dashboard.viewer("read", "operate")


@pytest.fixture
def admin(dashboard: Dashboard) -> Viewer:
    return dashboard.viewer("admin")
