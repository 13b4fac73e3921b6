"""Hides sensitive values, which only the handler may see, from readers and from recorded errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from leasehold.domain.job import Job
from leasehold.domain.outcome import Outcome

HIDDEN = "[hidden]"
SHORTEST = 4
"""Fewest characters of a value to search for in texts: shorter values occur in any text."""


def hidden_arguments(args: str, names: Sequence[str]) -> str:
    """Replace the values of these arguments in the encoded arguments."""
    values: dict[str, Any] = json.loads(args)
    return json.dumps({name: HIDDEN if name in names else value for name, value in values.items()})


def hidden_job(job: Job) -> Job:
    """Return the job as readers see it. The names are stored with the job, so the task's code is not needed."""
    names = job.policy.sensitive
    return replace(job, args=hidden_arguments(job.args, names)) if names else job


def secrets_of(args: str, names: Sequence[str]) -> list[str]:
    """Return the texts to hide, also as Python and JSON write them; longest first, as one may contain another."""
    values: dict[str, Any] = json.loads(args)
    found: set[str] = set()
    for name in names:
        for text in _texts(values.get(name)):
            if len(text) >= SHORTEST:
                found |= {text, repr(text)[1:-1], json.dumps(text)[1:-1]}
    return sorted(found, key=len, reverse=True)


def hide(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def hidden_outcome(outcome: Outcome, secrets: Sequence[str]) -> Outcome:
    """Hide the secrets in the outcome's error and reason."""
    texts = {f.name: getattr(outcome, f.name) for f in fields(outcome) if f.name in ("error", "reason")}
    changes = {name: hide(text, secrets) for name, text in texts.items() if isinstance(text, str)}
    return replace(outcome, **changes) if changes else outcome  # type: ignore[arg-type]  # its own fields


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
