"""Explains which limits hold a job: a slot that is full, and its holders; a rate that is spent or closed."""

from __future__ import annotations

from datetime import datetime, timedelta

from leasehold.domain.explanation import Hold
from leasehold.domain.records import GateLimits, RateRow, SlotNeed
from leasehold.operations.explain.formatting import by, instant, span, why

MOST_HOLDERS = 3
"""Holders that are named; of the rest it says "and others"."""


def limit_holds(limits: GateLimits, now: datetime) -> list[Hold]:
    holds = [_full(slot) for slot in limits.slots if slot.full]
    if limits.rate is not None:
        holds += _rate(limits.rate, now)
    return holds


def _full(slot: SlotNeed) -> Hold:
    units = "1 unit" if slot.need == 1 else f"{slot.need} units"
    if slot.need > slot.limit:
        detail = f"it needs {units} of slot {slot.name!r}, which has {slot.limit}: it cannot start"
        return Hold("slot_full", detail, f"raise it: app.slots.set({slot.name!r}, {slot.need})")
    named = ", ".join(f"{holder.job_id} ({holder.task})" for holder in slot.holders[:MOST_HOLDERS])
    more = " and others" if len(slot.holders) > MOST_HOLDERS else ""
    detail = (
        f"it needs {units} of slot {slot.name!r}: {slot.used} of {slot.limit} are in use by {named}{more}"
    )
    return Hold("slot_full", detail, f"wait for one of them, or raise it: app.slots.set({slot.name!r}, …)")


def _rate(rate: RateRow, now: datetime) -> list[Hold]:
    if rate.closed:
        until = f" until {instant(rate.closed_until)}" if rate.closed_until else ""
        detail = f"rate {rate.key!r} is closed{until}{by(rate.closed_by)}{why(rate.closed_reason)}"
        return [Hold("rate_closed", detail, f"open it: app.rates.open({rate.key!r})")]
    if rate.next_in:
        opens = span(timedelta(seconds=rate.next_in))
        detail = f"rate {rate.key!r} ({rate.limit}) lets the next job start in {opens}"
        return [Hold("rate_spent", detail, f"wait, or raise it: app.rates.set({rate.key!r}, …)")]
    return []
