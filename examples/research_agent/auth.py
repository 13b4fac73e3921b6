"""Blocked by a CAPTCHA: the job parks as awaiting_auth, holding no worker and no slot, until a human has
answered."""

from __future__ import annotations

from leasehold import Context

from .fetching import domain_of
from .options import AuthAnswer
from .store import close_auth_item, open_auth_item


async def ask_for_solution(ctx: Context, task_id: str, url: str, challenge: str) -> str | None:
    """The solution; None: a stop has closed the question, go on without it. Leaves the handler until
    there is an answer: then the handler runs again from its beginning, and what it did in steps is
    remembered."""
    domain = domain_of(url)
    await ctx.step(f"auth {domain}", open_auth_item, task_id, ctx.job_id, url, challenge, tx=True)
    answer = await ctx.ask(f"auth {domain}", f"{domain}: {challenge}", AuthAnswer)
    outcome = "cancelled" if answer.cancelled else "completed"
    await ctx.step(f"auth {domain} closed", close_auth_item, ctx.job_id, domain, outcome, tx=True)
    return None if answer.cancelled else answer.solution
