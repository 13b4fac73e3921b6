"""Tasks that need slots and rates, and a side log of who was inside when."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

from leasehold import Context, Leasehold, Retry
from tests.faults import tasks
from tests.faults.tasks import reported

NETWORK, CPU = "network", "cpu"


def register(app: Leasehold, folder: Path, lease: float) -> SimpleNamespace:
    known = tasks.register(app, folder, lease)
    log = known.log
    common = {"lease": lease, "retry": Retry(max_crashes=1000, backoff=0.05)}

    @app.task(**common)
    async def use(ctx: Context, seconds: float, needs: dict[str, int]) -> str:
        """The limits are given by the call; the arguments repeat them for the log."""
        with log.run(ctx, note=needs):
            await asyncio.sleep(seconds)
            return reported(ctx)

    @app.task(**common)
    async def use_inside(ctx: Context, seconds: float, needs: dict[str, int]) -> str:
        """The same, but taken while it runs."""
        for name, units in sorted(needs.items()):
            await ctx.acquire(name, units)
        with log.run(ctx, note=needs):
            await asyncio.sleep(seconds)
            return reported(ctx)

    @app.task(rate="api", **common)
    async def call_api(ctx: Context) -> str:
        return reported(ctx)

    return SimpleNamespace(**vars(known), use=use, use_inside=use_inside, call_api=call_api)
