"""The FastAPI application. A worker lives in the same process, from start-up to shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from examples.agent_server import settings
from examples.agent_server.app import app
from examples.agent_server.job_execution import JobExecution
from examples.agent_server.routes import by_id, router


def prepare_database() -> None:
    """Several servers may do this at once."""
    app.upgrade()
    app.tenants.upgrade()
    for name in settings.TENANTS:
        app.tenants.create(name)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    await asyncio.to_thread(prepare_database)
    execution = JobExecution()
    await execution.start()
    yield
    await execution.initiate_graceful_shutdown(timeout_seconds=settings.SHUTDOWN_GRACE_PERIOD_SECONDS)


server = FastAPI(title="Agent server", lifespan=lifespan)
server.include_router(router)
server.include_router(by_id)
