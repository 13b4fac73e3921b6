"""Calls of tasks by callers from outside: what they may say, and which tasks there are for them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any

from leasehold.domain.errors import UnknownTask
from leasehold.domain.frozen import frozen
from leasehold.domain.kinds import KindCard
from leasehold.surfaces.guard.callers import Caller
from leasehold.types import CallOptions, Job


@frozen(kw_only=True)
class AskedCall:
    """What is None is as the task says. Nothing here lifts a limit."""

    kind: str
    args: Mapping[str, Any] = field(default_factory=dict)
    delay: float | str | None = None
    at: datetime | None = None
    priority: int | None = None
    group: str | None = None
    tags: Sequence[str] | None = None
    unique: str | None = None

    def options(self) -> CallOptions:
        """Only what was given."""
        options: CallOptions = {}
        if self.delay is not None:
            options["delay"] = self.delay
        if self.at is not None:
            options["at"] = self.at
        if self.priority is not None:
            options["priority"] = self.priority
        if self.group is not None:
            options["group"] = self.group
        if self.tags is not None:
            options["tags"] = tuple(self.tags)
        if self.unique is not None:
            options["unique"] = self.unique
        return options


def kinds_for(who: Caller) -> list[KindCard]:
    """The tasks that the caller may call, by name."""
    tasks = who.view.__internals__.tasks.definitions
    cards = (task.card for _, task in sorted(tasks.items()))
    return [card for card in cards if who.access.may_use_queue(card.queue)]


def enqueue_for(who: Caller, calls: Sequence[AskedCall]) -> Sequence[Job[Any]]:
    """All or none, in the order given. Raises UnknownTask, for tasks of other queues too."""
    _check_kinds(who, calls)
    return who.view.__internals__.enqueue_calls([(call.kind, call.args, call.options()) for call in calls])


def enqueue_once_for(
    who: Caller, calls: Sequence[AskedCall], key: str, body: object
) -> tuple[Sequence[Job[Any]], bool]:
    """The same once for a key of the caller's; and whether it was a repeat. `body` is what was asked for, as JSON.
    Raises IdempotencyKeyReused."""
    _check_kinds(who, calls)
    fingerprint = _digest(json.dumps(body, sort_keys=True))
    named = [(call.kind, call.args, call.options()) for call in calls]
    return who.view.__internals__.enqueue_calls_once(named, _digest(who.actor, key), fingerprint)


def _check_kinds(who: Caller, calls: Sequence[AskedCall]) -> None:
    allowed = [card.name for card in kinds_for(who)]
    for call in calls:
        if call.kind not in allowed:
            raise UnknownTask(call.kind, allowed)


def _digest(*texts: str) -> str:
    """Of a fixed length, and nothing of a body is kept in the clear. Each caller has keys of its own."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
