"""Values that only the handler may see: hidden in what readers are shown, and in what is written down about a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from leasehold.domain.job import Job
from leasehold.domain.outcome import Outcome

HIDDEN = "[hidden]"
SHORTEST = 4
"""Characters of a value that is looked for in texts: shorter ones are in every word."""


def hidden_arguments(args: str, names: Sequence[str]) -> str:
    """Encoded arguments without the values of these."""
    values: dict[str, Any] = json.loads(args)
    return json.dumps({name: HIDDEN if name in names else value for name, value in values.items()})


def hidden_job(job: Job) -> Job:
    """As readers get it: the names stand with the job, so nobody needs its task's code."""
    names = job.policy.sensitive
    return replace(job, args=hidden_arguments(job.args, names)) if names else job


def secrets_of(args: str, names: Sequence[str]) -> list[str]:
    """What to look for in texts, the longest first: one may be part of another. Also as Python and JSON write them."""
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
    """Without them in its error and its reason."""
    told = {f.name: getattr(outcome, f.name) for f in fields(outcome) if f.name in ("error", "reason")}
    changes = {name: hide(text, secrets) for name, text in told.items() if isinstance(text, str)}
    return replace(outcome, **changes) if changes else outcome  # type: ignore[arg-type]  # fields of its own


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
