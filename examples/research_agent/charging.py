"""Budgets in pages: what may still be fetched."""

from __future__ import annotations

from leasehold import Context
from leasehold.errors import OverBudget


async def may_fetch(ctx: Context, unit: str, number: int) -> bool:
    """Charge page `number` of this job. False: it would go over the limit of the job or of its task.

    The checkpoint remembers what was paid for: a second run of the handler, after an answer or a crash, may come
    by when others have used up the rest."""
    if number < (ctx.saved or 0):
        return True
    try:
        await ctx.spend(key=f"{unit} {number}", **{unit: 1})
    except OverBudget:
        return False
    await ctx.checkpoint(number + 1)
    return True
