"""The tasks of the tests of budgets and questions under kill."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

from leasehold import Context, Leasehold, Retry, SyncContext

STEPS = 60
LIMIT = sum(range(1, 31))
"""Of tokens: the calls 0 to 29 just fit, the next one does not."""
HELD_AT = (8, 45)
"""Calls that wait for a gate: whoever is to be killed there must not be done before, however late the blow comes."""


def register(app: Leasehold, folder: Path, lease: float) -> SimpleNamespace:
    common = {"lease": lease, "retry": Retry(max_crashes=100, backoff=0)}

    def note(text: str) -> None:
        with (folder / "notes").open("a") as file:
            file.write(f"{text} {os.getpid()}\n")

    @app.task(budget={"tokens": LIMIT}, on_breach="pause", **common)
    async def spender(ctx: Context) -> int:
        """A keyed spend beside each step, and one without a key inside it."""

        async def call(n: int) -> int:
            await ctx.spend(pages=1)
            await asyncio.sleep(0.01)
            return n

        for n in range(STEPS):
            while n in HELD_AT and not (folder / f"gate-call-{n}").exists():
                await asyncio.sleep(0.01)
            await ctx.spend(tokens=n + 1, key=f"call-{n}")
            await ctx.step(f"call {n}", call, n)
        return ctx.spent("tokens")

    @app.task(**common)
    async def asker(ctx: Context) -> list[object]:
        def first() -> str:
            note("first")
            return "done"

        one = await ctx.step("first", first)
        answer = await ctx.ask("go", "Shall I go on?", {"type": "boolean"})
        return [one, answer, os.getpid()]

    @app.task(**common)
    def asker_in_thread(ctx: SyncContext) -> list[object]:
        def first() -> str:
            note("first")
            return "done"

        one = ctx.step("first", first)
        if not (folder / "gate-ask").exists():
            note("before the question")
            while not (folder / "gate-ask").exists():
                ctx.wait(0.01)
        answer = ctx.ask("go", "Shall I go on?", {"type": "boolean"})
        return [one, answer, os.getpid()]

    return SimpleNamespace(spender=spender, asker=asker, asker_in_thread=asker_in_thread)
