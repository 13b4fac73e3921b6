"""The tasks of the MCP tests, among them those that the official conformance suite calls by name."""

from __future__ import annotations

import asyncio
import os

from leasehold import Context, Leasehold, Retry

CONFIRMED = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "confirm": {"type": "boolean"}},
    "required": ["confirm"],
}


def make_app() -> Leasehold:
    app = Leasehold("sqlite:///nothing.db")

    @app.task(expose="call")
    async def greet(name: str) -> str:
        """Greets somebody."""
        return f"Hello, {name}!"

    @app.task(expose=True)
    async def slow_compute(seconds: float = 0, label: str = "") -> dict[str, str]:
        await asyncio.sleep(seconds)
        return {"label": label}

    @app.task(expose="task", retry=Retry(max_attempts=1))
    async def failing_job() -> str:
        raise ValueError("broken")

    @app.task(expose=True, timeout=0.5, retry=Retry(max_attempts=1))
    async def protocol_error_job() -> str:
        await asyncio.sleep(60)
        return ""

    @app.task(expose=True, lease=2)  # a test kills its worker and waits for the next one
    async def confirm_delete(ctx: Context, filename: str) -> str:
        said = await ctx.ask("confirm", f"Delete {filename}?", schema=CONFIRMED)
        return f"deleted {filename}" if said["confirm"] else f"kept {filename}"

    @app.task(expose=True)
    async def multi_input(ctx: Context) -> list[str]:
        said = await ctx.ask_all({"first": ("Who?", CONFIRMED), "second": ("And who?", CONFIRMED)})
        return sorted(said)

    @app.task(expose="task")
    async def test_tool_with_task(name: str) -> str:
        return f"Hello, {name}!"

    @app.task(expose=True)
    async def ask_secret(ctx: Context) -> str:
        await ctx.ask("password", "Password?", str, secret=True)
        return "thanks"

    @app.task(expose=True, queue="agents", sensitive=("key",))
    async def use_key(key: str) -> int:
        return len(key)

    @app.task
    def hidden() -> None: ...

    return app


def app_of_environment() -> Leasehold:
    """For servers in processes of their own."""
    made = make_app()
    internals = made.__internals__
    from dataclasses import replace

    internals.location = replace(
        internals.location, url=os.environ["LEASEHOLD_URL"], schema=os.environ["LEASEHOLD_SCHEMA"]
    )
    return made


if "LEASEHOLD_SCHEMA" in os.environ:
    app = app_of_environment()
