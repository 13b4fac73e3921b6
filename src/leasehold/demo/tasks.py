"""The tasks of `leasehold demo`: small stand-ins for long work."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from leasehold.app import Leasehold
from leasehold.domain.signals import Fail
from leasehold.types import Context

FOLDER = "LEASEHOLD_DEMO_FOLDER"
"""Set by `leasehold demo` for the processes that it starts; not for users."""
LEASE = 5.0
"""Seconds. Short, so that a dead worker's job is soon taken over; the default is 30."""

app = Leasehold()


@app.lifespan
async def leave_with_the_demo() -> AsyncIterator[None]:
    """End the worker if the demo is killed, so that none is left behind."""
    parent = os.getppid()

    async def watch() -> None:
        while os.getppid() == parent:
            await asyncio.sleep(0.5)
        os._exit(1)

    task = asyncio.create_task(watch())
    yield
    task.cancel()


@app.task
async def research(question: str) -> dict[str, int]:
    """Run an agent: many short waits for other services."""
    pages = ("overview", "paper", "forum", "archive")
    for number, page in enumerate(pages, 1):
        await asyncio.sleep(0.7)
        say(f"research: read {page} ({number} of {len(pages)})")
    return {"pages": len(pages), "words": 8412}


@app.task
def fetch_prices(shop: str) -> int:
    """Call a service that is down at first."""
    tries = _count(f"calls-{shop}")
    if tries < 3:
        raise ConnectionError(f"{shop} answered 503 (call {tries})")
    say(f"fetch_prices: {shop} answered call {tries}")
    return 17


@app.task(lane="target-{target}")
async def visit_page(target: int, page: str) -> str:
    """Run one at a time and in order per target; a failure halts the lane."""
    await asyncio.sleep(0.3)
    if page == "account" and not _folder().joinpath("logged-in").exists():
        raise Fail("the login has expired")
    say(f"visit: target {target}, {page}")
    return page


@app.task(lease=LEASE)
async def crawl(ctx: Context, site: str) -> int:
    """Crawl a site; the demo kills the worker of its first attempt."""
    for page in range(1, 6):
        if ctx.attempt == 1 and page == 3:
            await asyncio.sleep(3600)  # until the demo kills the worker, however slow the machine is
        await asyncio.sleep(0.5)
        say(f"crawl: {site}, page {page} of 5")
    return 5


def say(text: str) -> None:
    print(f"worker {os.getpid()} │ {text}", flush=True)


def _folder() -> Path:
    return Path(os.environ[FOLDER])


def _count(name: str) -> int:
    """Count the calls with this name, by any process."""
    with _folder().joinpath(name).open("a+") as file:
        file.write("x")
        return file.tell()
