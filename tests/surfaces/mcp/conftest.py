"""An MCP server on each store, spoken to over real connections."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from leasehold import Leasehold
from leasehold.mcp import McpApp
from tests.backends import Backend
from tests.surfaces.mcp.mcp_tasks import make_app
from tests.surfaces.serving import Server, listening


@pytest.fixture
def app(backend: Backend) -> Iterator[Leasehold]:
    app = make_app()
    internals = app.__internals__
    with internals.moved_to(replace(internals.location, url=backend.url, schema=backend.schema)):
        yield app


@pytest.fixture
def listen(app: Leasehold) -> Iterator[Callable[[Starlette], Server]]:
    """Serve any ASGI app that is about `app`."""
    with contextlib.ExitStack() as stack:
        yield lambda api: stack.enter_context(listening(app, api))


@pytest.fixture
def server(app: Leasehold) -> Iterator[Server]:
    """It asks for tokens."""
    mcp = McpApp(app, rate_limit=0)
    with listening(app, Starlette(routes=[Mount("/mcp", mcp)], lifespan=lambda _: mcp.running())) as server:
        yield server
