"""Endings of a child's attempt as JSON: the worker takes no pickled objects from a process that may be corrupt."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from leasehold.domain.outcome import Breached, Failure, Outcome, QuestionAsked, Snoozed, Stopped, Success

STOPPED = "stopped"
"""The child ended because of a stop request. Its worker knows the reason."""

_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Success, Failure, Stopped, Snoozed, QuestionAsked, Breached)
}


def ending(outcome: Outcome) -> dict[str, Any]:
    kind = type(outcome)
    return {"end": kind.__name__, "outcome": TypeAdapter(kind).dump_python(outcome, mode="json")}


def stopped(over: str | None) -> dict[str, Any]:
    """`over`: the budget limit that was passed."""
    return {"end": STOPPED, "over": over}


def outcome_from(message: dict[str, Any]) -> Outcome:
    """Raises ValueError for an unknown ending."""
    kind = _KINDS.get(message["end"])
    if kind is None:
        raise ValueError(f"no run ends as {message['end']!r}")
    found: Outcome = TypeAdapter(kind).validate_json(json.dumps(message["outcome"]))
    return found
