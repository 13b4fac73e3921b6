"""FastAPI and Starlette: `from leasehold.contrib.fastapi import worker_lifespan`. A worker inside the web server.

api = FastAPI(lifespan=worker_lifespan(app, concurrency=20))
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Unpack

from leasehold import Leasehold
from leasehold.types import WorkerOptions

__all__ = ["worker_lifespan"]

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def worker_lifespan(
    app: Leasehold, *, around: Lifespan | None = None, **settings: Unpack[WorkerOptions]
) -> Lifespan:
    """Return a lifespan that runs a worker as long as the server serves. At SIGTERM the worker claims nothing more;
    when the server has answered its open requests, running jobs get their `shutdown_grace`, and the app is closed.

    `settings` are those of `app.worker`. `around` is a lifespan of yours: what it opens exists before the worker starts
    and until it has drained, and what it yields is the state of requests, as usual."""

    @asynccontextmanager
    async def lifespan(api: Any) -> AsyncIterator[Any]:
        async with around(api) if around is not None else nullcontext() as state:
            try:
                async with app.worker(**settings):
                    yield state
            finally:
                await app.aclose()

    return lifespan
