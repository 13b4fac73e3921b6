"""When an attempt that went wrong is tried again, and after how long."""

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
BudgetFor = Literal["job", "run"]
OnDrain = Literal["requeue", "pause"]
OnStall = Literal["report", "pause", "stop"]
KeepResult = Literal["row", "file"]

CRASHES_ALONE = 3
CRASHES_SHARED = 10


@frozen
class Policy:
    """What a task says about endings. It travels with the job, so that a reaper that has never heard of the task
    decides as its owner would."""

    max_attempts: int = 3
    max_crashes: int | None = None
    backoff: float = 2.0
    max_delay: float = 300.0
    on_lost: OnLost = "retry"
    count_lost: bool = False
    on_failure: OnFailure = "halt"
    on_breach: OnBreach = "fail"
    queueing: bool = True
    """Whether the job may go back to a queue. Without one nobody would ever claim it there."""
    budget: dict[str, int] | None = None
    """What the job may spend, by unit. Nobody changes it: a policy that was read is shared."""
    budget_for: BudgetFor = "job"
    """Whose spending its limits count: of all its runs, or of each run by itself."""

    mirror: bool = False
    """Triggers keep a table of the user's in step with it: it is tied from its enqueue on, so that they see it."""

    sensitive: tuple[str, ...] = ()
    """Arguments that only the handler may see, as they are stored."""

    # What a single call has said otherwise than its task. None: as the task says, wherever the job runs.
    timeout: float | None = None
    """0: none."""
    stall_after: float | None = None
    """0: never."""
    on_stall: OnStall | None = None
    on_drain: OnDrain | None = None
    heartbeat: float | None = None
    result: KeepResult | None = None

    def dump(self) -> str | None:
        """Only what differs from the defaults, so that a plain job carries nothing."""
        if self == DEFAULT_POLICY:
            return None
        odd = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return json.dumps(odd, sort_keys=True)

    @staticmethod
    def load(text: str | None) -> Policy:
        return DEFAULT_POLICY if text is None else _parse(text)

    def crash_limit(self, alone: bool) -> int:
        """A bystander is not poison: a job that shared the dead process may have been killed by its neighbour."""
        if self.max_crashes is not None:
            return self.max_crashes
        return CRASHES_ALONE if alone else CRASHES_SHARED


DEFAULT_POLICY = Policy()


@lru_cache(maxsize=1024)
def _parse(text: str) -> Policy:
    """What cannot be read, such as a row that somebody has edited by hand, is as if it had not been said: one such row
    must not break a list, a claim or a sweep for all the others."""
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
"""Every field, and what it may hold."""


def backoff_delay(policy: Policy, tries: int, jitter: float) -> float:
    """Seconds to wait after the `tries`-th failure: doubling, capped, spread over its upper half by `jitter` (0..1)
    so that jobs which failed together do not come back together."""
    if policy.backoff <= 0 or tries < 1:
        return 0.0
    full = min(policy.max_delay, policy.backoff * 2.0 ** min(tries - 1, 60))
    return full * (0.5 + 0.5 * jitter)
