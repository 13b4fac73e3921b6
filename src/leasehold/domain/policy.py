"""Retry policy: when a failed attempt is tried again, and after how long."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import Any, Literal, get_args

from leasehold.domain.frozen import frozen

OnLost = Literal["retry", "fail", "adopt"]
OnFailure = Literal["halt", "skip"]
OnBreach = Literal["fail", "pause", "allow"]
BudgetFor = Literal["job", "attempt"]
OnDrain = Literal["requeue", "pause"]
OnStall = Literal["report", "pause", "stop"]
KeepResult = Literal["row", "file"]

CRASHES_ALONE = 3
CRASHES_SHARED = 10


@frozen
class Policy:
    """A task's settings for endings. They are stored with the job, so that a reaper which does not know the task
    decides as the job's worker would."""

    max_attempts: int = 3
    max_crashes: int | None = None
    backoff: float = 2.0
    max_delay: float = 300.0
    on_lost: OnLost = "retry"
    count_lost: bool = False
    on_failure: OnFailure = "halt"
    on_breach: OnBreach = "fail"
    queueing: bool = True
    """Whether the job may go back to a queue. Without a queue no worker would claim it again."""
    budget: dict[str, int] | None = None
    """What the job may spend, by unit. Never change it: parsed policies are shared."""
    budget_for: BudgetFor = "job"
    """What the limits count: the spending of all attempts, or of each attempt by itself."""

    mirror: bool = False
    """Triggers keep a table of the user in step with the job: it is tied from its enqueue on, for them to see it."""

    sensitive: tuple[str, ...] = ()
    """Stored names of arguments that only the handler may see."""

    # Settings that a single call has overridden. None: the task's own setting, wherever the job runs.
    timeout: float | None = None
    """0: no time-out."""
    stall_after: float | None = None
    """0: never."""
    on_stall: OnStall | None = None
    on_drain: OnDrain | None = None
    heartbeat: float | None = None
    result: KeepResult | None = None

    def dump(self) -> str | None:
        """Encode only what differs from the defaults, so that a plain job carries nothing."""
        if self == DEFAULT_POLICY:
            return None
        odd = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return json.dumps(odd, sort_keys=True)

    @staticmethod
    def load(text: str | None) -> Policy:
        return DEFAULT_POLICY if text is None else _parse(text)

    def crash_limit(self, alone: bool) -> int:
        """Most crashes allowed. A job that shared the dead process gets more: another job may have killed it."""
        if self.max_crashes is not None:
            return self.max_crashes
        return CRASHES_ALONE if alone else CRASHES_SHARED


DEFAULT_POLICY = Policy()


@lru_cache(maxsize=1024)
def _parse(text: str) -> Policy:
    """Read a policy; parts that cannot be read, such as a row edited by hand, count as unset: one such row must not
    break a list, a claim or a sweep for all other jobs."""
    try:
        said = json.loads(text)
    except ValueError:
        return DEFAULT_POLICY
    if not isinstance(said, dict):
        return DEFAULT_POLICY
    values = {name: said[name] for name, fits in _FITS.items() if name in said and fits(said[name])}
    if "sensitive" in values:
        values["sensitive"] = tuple(values["sensitive"])
    return Policy(**values)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _word(of: Any) -> Callable[[object], bool]:
    words = get_args(of)
    return lambda value: isinstance(value, str) and value in words


def _names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _amounts(value: object) -> bool:
    return isinstance(value, dict) and all(map(_count, value.values()))


_FITS: dict[str, Callable[[object], bool]] = {
    "max_attempts": _count,
    "max_crashes": _count,
    "backoff": _number,
    "max_delay": _number,
    "on_lost": _word(OnLost),
    "count_lost": _flag,
    "on_failure": _word(OnFailure),
    "on_breach": _word(OnBreach),
    "queueing": _flag,
    "budget": _amounts,
    "budget_for": _word(BudgetFor),
    "mirror": _flag,
    "sensitive": _names,
    "timeout": _number,
    "stall_after": _number,
    "on_stall": _word(OnStall),
    "on_drain": _word(OnDrain),
    "heartbeat": _number,
    "result": _word(KeepResult),
}
"""For every field, a check of its value."""


def backoff_delay(policy: Policy, tries: int, jitter: float) -> float:
    """Seconds to wait after the `tries`-th failure: doubling, capped, spread over its upper half by `jitter` (0..1) so
    that jobs which failed together do not come back together."""
    if policy.backoff <= 0 or tries < 1:
        return 0.0
    full = min(policy.max_delay, policy.backoff * 2.0 ** min(tries - 1, 60))
    return full * (0.5 + 0.5 * jitter)
