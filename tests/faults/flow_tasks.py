"""The tasks of the workflows under fire, and their worker: `python -m tests.faults.flow_tasks '{"url": …}'`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from leasehold import Context, Leasehold, Retry, SyncContext
from leasehold.domain.signals import Fail
from tests.faults import worker_main
from tests.faults.side_log import SideLog
from tests.faults.tasks import reported


def register(app: Leasehold, folder: Path, lease: float) -> SimpleNamespace:
    log = SideLog(folder / "side.log")
    common = {"lease": lease, "retry": Retry(max_crashes=100, backoff=0.1, max_delay=1)}

    @app.task(**common)
    async def child(ctx: Context, parent: str, name: str, seconds: float) -> str:
        with log.run(ctx):
            await asyncio.sleep(seconds)
            return reported(ctx)

    # Three follow-ups each: two with the success, one at once, before the work is done.
    @app.task(**common)
    async def parent(ctx: Context, seconds: float) -> str:
        with log.run(ctx):
            ctx.enqueue(child, ctx.job_id, "first", seconds / 4)
            await ctx.enqueue(
                child.using(immediately=True, key="at once"), ctx.job_id, "at once", seconds / 4
            )
            await asyncio.sleep(seconds)
            ctx.enqueue(child, ctx.job_id, "second", seconds / 4)
            return reported(ctx)

    @app.task(**common)
    def parent_in_thread(ctx: SyncContext, seconds: float) -> str:
        with log.run(ctx):
            ctx.enqueue(child, ctx.job_id, "first", seconds / 4)
            ctx.wait(seconds)
            ctx.enqueue(child.using(immediately=True), ctx.job_id, "at once", seconds / 4)
            ctx.enqueue(child, ctx.job_id, "second", seconds / 4)
            return reported(ctx)

    @app.task(**common)
    async def part(ctx: Context, n: int, seconds: float) -> int:
        with log.run(ctx):
            await asyncio.sleep(seconds)
            if n < 0:
                raise Fail(f"part {n} was told to fail")
            return n * n

    @app.task(**common)
    async def join(ctx: Context) -> list[Any]:
        with log.run(ctx):
            return list((await ctx.results()).values())

    tasks = (child, parent, parent_in_thread, part, join)
    return SimpleNamespace(**{task.name: task for task in tasks})


if __name__ == "__main__":
    worker_main.main(register)
