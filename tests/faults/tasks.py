"""The tasks of the fault tests. A handler that waits does so for a file, which the test makes when it is time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

from leasehold import Context, Leasehold, Retry, SyncContext
from leasehold.domain.signals import Fail
from tests.faults.side_log import SideLog

LOOK_EVERY = 0.01


def reported(ctx: Context | SyncContext) -> str:
    """A result that names the grant it was computed under."""
    return f"{ctx.attempt}:{ctx.lease_token}"


def register(app: Leasehold, folder: Path, lease: float) -> SimpleNamespace:
    """`lease` is short, so that recovery is quick; crashes are what the tests are about, so many are forgiven."""
    log = SideLog(folder / "side.log")
    common = {"lease": lease, "retry": Retry(max_crashes=100, backoff=0.1, max_delay=1)}

    def gate(name: str) -> Path:
        return folder / f"gate-{name}"

    # -- work that ends by itself ------------------------------------------------------------------------------------
    @app.task(**common)
    async def brief(ctx: Context, seconds: float) -> str:
        with log.run(ctx):
            await asyncio.sleep(seconds)
            return reported(ctx)

    @app.task(**common)
    def brief_in_thread(ctx: SyncContext, seconds: float) -> str:
        with log.run(ctx):
            ctx.wait(seconds)
            return reported(ctx)

    @app.task(**common)
    async def block_the_loop(ctx: Context, seconds: float) -> str:
        with log.run(ctx):
            time.sleep(seconds)
            return reported(ctx)

    @app.task(lane="{lane}", **common)
    async def in_lane(ctx: Context, lane: str, n: int, seconds: float) -> str:
        with log.run(ctx, note=n):
            await asyncio.sleep(seconds)
            while gate(f"hold-{n}").exists():
                await asyncio.sleep(LOOK_EVERY)
            if gate(f"fail-{n}").exists():
                raise Fail(f"job {n} was told to fail")
            return reported(ctx)

    # -- work that ends when the test says so ------------------------------------------------------------------------
    @app.task(**common)
    async def wait_on_loop(ctx: Context, name: str) -> str:
        with log.run(ctx):
            while not gate(f"{name}-{ctx.attempt}").exists():
                await asyncio.sleep(LOOK_EVERY)
            return reported(ctx)

    @app.task(**common)
    def wait_in_thread(ctx: SyncContext, name: str) -> str:
        with log.run(ctx):
            while not gate(f"{name}-{ctx.attempt}").exists():
                ctx.wait(LOOK_EVERY)
            return reported(ctx)

    @app.task(on_drain="pause", **common)
    async def wait_or_pause(ctx: Context, name: str) -> str:
        with log.run(ctx):
            while not gate(f"{name}-{ctx.attempt}").exists():
                await asyncio.sleep(LOOK_EVERY)
            return reported(ctx)

    @app.task(**common)
    async def ask(ctx: Context) -> str:
        with log.run(ctx):
            await ctx.ask("go", "Shall it go on?")
            return reported(ctx)

    # -- work that speaks ----------------------------------------------------------------------------------------
    @app.task(**common)
    async def notify(ctx: Context, items: int, pause: float, gates: list[int], keyed: bool = True) -> str:
        """Keyed, an attempt that begins anew tells again what was told, and it counts once. Some items wait at a
        gate."""
        with log.run(ctx):
            for n in range(items):
                if n in gates:
                    gate(f"reached-{n}").touch()
                while n in gates and not gate(f"item-{n}").exists():
                    await asyncio.sleep(LOOK_EVERY)
                ctx.emit("item", n, key=f"{n}" if keyed else None)
                ctx.progress(n + 1, items)
                if n % 10 == 9:
                    await asyncio.sleep(pause)
            return reported(ctx)

    @app.task(**common)
    async def tell_at_the_gate(ctx: Context, name: str, items: int) -> str:
        """Without keys: told twice would be stored twice."""
        with log.run(ctx):
            while not gate(f"{name}-{ctx.attempt}").exists():
                await asyncio.sleep(LOOK_EVERY)
            for n in range(items):
                ctx.emit("item", n)
                ctx.log(f"line {n}")
            return reported(ctx)

    # -- work that does not obey -------------------------------------------------------------------------------------
    @app.task(**common)
    def ignore_the_stop(ctx: SyncContext, name: str) -> str:
        with log.run(ctx):
            while not gate(f"{name}-{ctx.attempt}").exists():
                time.sleep(LOOK_EVERY)
            return reported(ctx)

    @app.task(**common)
    async def ignore_the_stop_on_loop(ctx: Context, name: str) -> str:
        with log.run(ctx):
            while not gate(f"{name}-{ctx.attempt}").exists():
                try:
                    await asyncio.sleep(LOOK_EVERY)
                except asyncio.CancelledError:
                    continue
            return reported(ctx)

    tasks = (
        brief,
        brief_in_thread,
        block_the_loop,
        in_lane,
        wait_on_loop,
        wait_in_thread,
        wait_or_pause,
        ask,
        notify,
        tell_at_the_gate,
        ignore_the_stop,
        ignore_the_stop_on_loop,
    )
    return SimpleNamespace(log=log, gate=gate, **{task.name: task for task in tasks})
