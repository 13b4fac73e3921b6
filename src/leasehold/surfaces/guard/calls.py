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
from leasehold.domain.task_cards import TaskCard
from leasehold.surfaces.guard.callers import Caller
from leasehold.types import CallOptions, Job


@frozen(kw_only=True)
class CallRequest:
    """What is None is as the task says. Nothing here lifts a limit."""

    task: str
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


def tasks_for(caller: Caller) -> list[TaskCard]:
    """The tasks that the caller may call, by name."""
    tasks = caller.view.__internals__.tasks.definitions
    cards = (task.card for _, task in sorted(tasks.items()))
    return [card for card in cards if caller.access.may_use_queue(card.queue)]


def enqueue_for(caller: Caller, calls: Sequence[CallRequest]) -> Sequence[Job[Any]]:
    """All or none, in the order given. Raises UnknownTask, for tasks of other queues too."""
    _check_tasks(caller, calls)
    return caller.view.__internals__.enqueue_calls([(call.task, call.args, call.options()) for call in calls])


def enqueue_once_for(
    caller: Caller, calls: Sequence[CallRequest], key: str, body: object
) -> tuple[Sequence[Job[Any]], bool]:
    """The same once for a key of the caller's; and whether it was a repeat. `body` is what was asked for, as JSON.
    Raises IdempotencyKeyReused."""
    _check_tasks(caller, calls)
    fingerprint = _digest(json.dumps(body, sort_keys=True))
    named = [(call.task, call.args, call.options()) for call in calls]
    return caller.view.__internals__.enqueue_calls_once(named, _digest(caller.actor, key), fingerprint)


def _check_tasks(caller: Caller, calls: Sequence[CallRequest]) -> None:
    allowed = [card.name for card in tasks_for(caller)]
    for call in calls:
        if call.task not in allowed:
            raise UnknownTask(call.task, allowed)


def _digest(*texts: str) -> str:
    """Of a fixed length, and nothing of a body is kept in the clear. Each caller has keys of its own."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
