"""The tasks of the tests of steps and of `ctx.complete`. A user's table, `effect`, stands in the same database."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from leasehold import Context, Leasehold, Retry, SyncContext

MOMENTS = ("before the step", "inside it, after its effect", "after it")


def expected(steps: int) -> str:
    """The result of an undisturbed run."""
    value = "begin"
    for number in range(steps):
        value = digest(number, value)
    return value


def digest(number: int, value: str) -> str:
    return hashlib.sha256(f"{number} {value}".encode()).hexdigest()[:16]


def commits_with_its_effect(number: int) -> bool:
    """Every fourth step is a cheap one without an effect."""
    return number % 4 != 3


def make_table(place: Any) -> None:
    place.query("CREATE TABLE leasehold.effect (job text NOT NULL, step integer NOT NULL)")


def register(app: Leasehold, folder: Path, lease: float) -> SimpleNamespace:
    sqlite = app.url.startswith("sqlite")
    mark = "?" if sqlite else "%s"
    table = "leasehold_effect" if sqlite else f'"{app.__internals__.location.schema}".effect'
    insert = f"INSERT INTO {table} (job, step) VALUES ({mark}, {mark})"
    common = {"lease": lease, "retry": Retry(max_crashes=10_000, backoff=0)}

    def die_once(job: str, number: int, moment: int, now: int) -> None:
        """Each job dies once at each of its steps: the mark is made before the blow."""
        if moment != now:
            return
        try:
            (folder / f"died-{job}-{number}").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def with_effect(connection: Any, job: str, number: int, value: str, moment: int) -> str:
        connection.execute(insert, (job, number))
        die_once(job, number, moment, 1)
        return digest(number, value)

    def cheap(job: str, number: int, value: str, moment: int) -> str:
        die_once(job, number, moment, 1)
        return digest(number, value)

    @app.task(**common)
    async def many_steps(ctx: Context, steps: int, shift: int | None) -> str:
        value = "begin"
        for n in range(steps):
            moment = -1 if shift is None else (n + shift) % len(MOMENTS)
            die_once(ctx.job_id, n, moment, 0)
            if commits_with_its_effect(n):
                value = await ctx.step(f"step {n}", with_effect, ctx.job_id, n, value, moment, tx=True)
            else:
                value = await ctx.step(f"step {n}", cheap, ctx.job_id, n, value, moment, durable="batch")
            die_once(ctx.job_id, n, moment, 2)
        return value

    # -- crashes with and without progress: three in a row without it are poison -------------------------------------
    @app.task(lease=lease, retry=Retry(backoff=0))
    def one_step_a_life(ctx: SyncContext, steps: int) -> int:
        for n in range(steps):
            ctx.step(f"step {n}", int)
            die_once(ctx.job_id, n, 0, 0)
        return ctx.attempt

    @app.task(lease=lease, retry=Retry(backoff=0))
    def poison(ctx: SyncContext) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    # -- ctx.complete ------------------------------------------------------------------------------------------------
    def started() -> None:
        (folder / f"started-{os.getpid()}").touch()

    @app.task(**common)
    async def complete_on_loop(ctx: Context) -> str:
        started()
        async with ctx.complete("done") as tx:
            await asyncio.sleep(random.uniform(0, 0.004))
            await tx.execute(insert, (ctx.job_id, 0))
            await asyncio.sleep(random.uniform(0, 0.004))
        return "ignored"

    @app.task(**common)
    def complete_in_thread(ctx: SyncContext) -> str:
        started()
        with ctx.complete("done") as tx:
            time.sleep(random.uniform(0, 0.004))
            tx.execute(insert, (ctx.job_id, 0))
            time.sleep(random.uniform(0, 0.004))
        return "ignored"

    return SimpleNamespace(
        many_steps=many_steps,
        one_step_a_life=one_step_a_life,
        poison=poison,
        complete_on_loop=complete_on_loop,
        complete_in_thread=complete_in_thread,
    )
