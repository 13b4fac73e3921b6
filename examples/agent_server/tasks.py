"""The agent: one task, whose settings are most of the document."""

from __future__ import annotations

import asyncio
import json

from pydantic import BaseModel, Field

from examples.agent_server import settings
from examples.agent_server.app import app
from leasehold import Context, Fail, Retry
from leasehold.errors import OverBudget


class Turn(BaseModel):
    """One call of a model. This one is written down beforehand, so that its price and its time are exact; a real
    model takes its place in `say`."""

    text: str = ""
    tokens: int = Field(default=0, ge=0)
    seconds: float = Field(default=0, ge=0)
    error: str | None = None


@app.task(
    lane="{target_id}",  # one RUNNING job a target, oldest first; a PAUSED or ERROR job halts it
    retry=Retry(max_attempts=1),  # an unexpected exception is ERROR at once
    on_lost="fail",  # and so is a worker that died
    lease=3 * settings.HEARTBEAT_SECONDS,
    heartbeat=settings.HEARTBEAT_SECONDS,
    budget={"tokens": settings.TOKEN_LIMIT},
    budget_for="attempt",  # the count starts anew when the job is resumed
    on_drain="pause",  # "Job was interrupted by user"
)
async def execute_api_in_background_with_tenant(ctx: Context, target_id: str, turns: list[Turn]) -> list[str]:
    """All turns, from the first: a resumed job is executed again. `ctx.tenant` says whose it is."""
    said = []
    for turn in turns:
        write_transcript(ctx, target_id, turn.text)
        said.append(await take(ctx, turn))
    return said


async def take(ctx: Context, turn: Turn) -> str:
    """A turn that goes over the limit has been paid for, so it is taken to its end before the job fails. Whoever
    interrupts it meanwhile gets ERROR too, not PAUSED: `finally` comes after a CancelledError as well."""
    over: OverBudget | None = None
    try:
        await ctx.spend(tokens=turn.tokens)
    except OverBudget as error:
        over = error
    try:
        return await say(turn)
    finally:
        if over is not None:
            raise Fail(f"Token limit exceeded: {over.spent} tokens used, TOKEN_LIMIT is {over.limit}")


async def say(turn: Turn) -> str:
    await asyncio.sleep(turn.seconds)
    if turn.error is not None:
        raise RuntimeError(turn.error)
    return turn.text


def write_transcript(ctx: Context, target_id: str, text: str) -> None:
    if settings.TRANSCRIPT:
        line = {
            "tenant": ctx.tenant,
            "target_id": target_id,
            "job": ctx.job_id,
            "attempt": ctx.attempt,
            "worker": settings.WORKER_ID,
            "text": text,
        }
        with open(settings.TRANSCRIPT, "a") as file:
            file.write(json.dumps(line) + "\n")
