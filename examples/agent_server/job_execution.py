"""The worker inside the server process: it claims, runs and renews for all tenants, and drains when the server ends."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from examples.agent_server import settings
from examples.agent_server.app import app


class JobExecution:
    """One for each server process. What coordinates the processes is in the database alone."""

    async def start(self) -> None:
        """From here on SIGTERM is heard by the worker as well as by the web server: it claims nothing more from that
        moment, though the server may still wait for open requests."""
        self._worker = app.worker(
            tenants="all",
            name=settings.WORKER_ID,
            sweep=settings.HEARTBEAT_SECONDS,
            shutdown_grace=None,  # `initiate_graceful_shutdown` says how long
        )
        self._life = AsyncExitStack()
        await self._life.enter_async_context(self._worker)

    async def initiate_graceful_shutdown(self, *, timeout_seconds: float) -> None:
        """Claims nothing more, and waits for the jobs that run. Those that still run after `timeout_seconds` are
        cancelled: PAUSED, or ERROR if they are over their token limit."""
        self._worker.request_drain()
        over = asyncio.get_running_loop().call_later(timeout_seconds, self._worker.request_drain)
        try:
            await self._life.aclose()
        finally:
            over.cancel()
