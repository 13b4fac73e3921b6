"""`leasehold mcp`: the MCP server over stdin and stdout, as clients start it, optionally with a worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Sequence

import anyio
from mcp.server.stdio import stdio_server

from leasehold.app import Leasehold
from leasehold.domain.tokens import Access, TokenScope
from leasehold.surfaces.guard import Caller
from leasehold.surfaces.mcp.server import make_server
from leasehold.types import Worker

logger = logging.getLogger("leasehold.mcp")


async def serve_stdio(
    app: Leasehold, scopes: Sequence[TokenScope], tenant: str | None = None, worker: Worker | None = None
) -> None:
    """Serve until the client closes stdin, or until SIGTERM or SIGINT; then drain the worker."""
    access = Access(name="local", scopes=tuple(scopes), tenants=("*",))
    caller = Caller(app, access, tenant, "mcp")
    server = make_server(lambda _: caller)
    stdin = _Input()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stdin.end)
    async with worker or contextlib.nullcontext():
        async with stdio_server(stdin=stdin.file) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
        logger.info("stdin was closed")
        if worker is not None:
            worker.request_drain()


class _Input:
    """Copies stdin into a pipe until either side ends. A thread that reads stdin cannot be interrupted, so it writes
    into our pipe, and closing the pipe ends the server's input. Handlers and child processes find stdin empty."""

    def __init__(self) -> None:
        self._source = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        out, self._into = os.pipe()
        self._lock = threading.Lock()
        self._ended = False
        self.file = anyio.wrap_file(os.fdopen(out, encoding="utf-8", errors="replace"))
        threading.Thread(target=self._copy, name="leasehold stdin", daemon=True).start()

    def _copy(self) -> None:
        with contextlib.suppress(OSError):  # the reading side is closed
            while (read := os.read(self._source, 1 << 16)) and not self._ended:
                left = memoryview(read)
                while left:
                    left = left[os.write(self._into, left) :]
        self.end()

    def end(self) -> None:
        with self._lock:
            if not self._ended:
                self._ended = True
                os.close(self._into)
