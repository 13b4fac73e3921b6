"""Checks free texts: the actor, the reason, the trace and search criteria. Every store keeps them unchanged."""

from __future__ import annotations

from leasehold.domain.checks.payload import check_text
from leasehold.domain.errors import InvalidInput

LONGEST_ACTOR = 200
LONGEST_TRACE = 2_000
LONGEST_REASON = 16_384
LONGEST_CRITERION = 16_384
"""Longer than any name: a search for a name that cannot exist finds nothing, and raises no error."""


def checked_text(text: object, field: str, longest: int) -> str:
    if not isinstance(text, str):
        raise InvalidInput(field, f"{text!r} is not text", "give a text")
    if len(text) > longest:
        raise InvalidInput(field, f"has {len(text):,} characters", f"use at most {longest:,}")
    return check_text(text, field)


def checked_actor(actor: object) -> str | None:
    return None if actor is None else checked_text(actor, "actor", LONGEST_ACTOR)


def checked_reason(reason: object) -> str | None:
    return None if reason is None else checked_text(reason, "reason", LONGEST_REASON)


def checked_trace(trace: object) -> str | None:
    return None if trace is None else checked_text(trace, "trace", LONGEST_TRACE)


def checked_criterion(value: object, field: str) -> str | None:
    """Return a filter value of a list: a queue, a task, a lane, a group or a tag."""
    return None if value is None else checked_text(value, field, LONGEST_CRITERION)
