"""A server in a thread of this process, and clients that ask it over real connections."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import uvicorn
from starlette.types import ASGIApp

from leasehold import Leasehold
from leasehold.operations import tokens

PATIENCE = 90.0
"""Longer than the longest wait that a request may ask for, which is a minute."""


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
        name = f"token {len(operations.call(tokens.list_tokens))}"
        return operations.call(tokens.create_token, name, scopes, **more)[1]

    def close(self) -> None:
        while self._clients:
            self._clients.pop().close()


class _Quiet(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def listening(app: Leasehold, api: ASGIApp) -> Iterator[Server]:
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
