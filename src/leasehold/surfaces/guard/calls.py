"""Calls of tasks over HTTP and MCP: the options that a caller may give, and the tasks that a caller may call."""

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
    """A call of a task by a caller. None means the task's own setting. No field lifts a limit."""

    task: str
    args: Mapping[str, Any] = field(default_factory=dict)
    delay: float | str | None = None
    at: datetime | None = None
    priority: int | None = None
    group: str | None = None
    tags: Sequence[str] | None = None
    unique: str | None = None

    def options(self) -> CallOptions:
        """The options that the caller gave."""
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
    """Enqueue all calls or none, in their order. Raises UnknownTask, also for tasks of queues that the caller may not
    see."""
    _check_tasks(caller, calls)
    return caller.view.__internals__.enqueue_calls([(call.task, call.args, call.options()) for call in calls])


def enqueue_once_for(
    caller: Caller, calls: Sequence[CallRequest], key: str, body: object
) -> tuple[Sequence[Job[Any]], bool]:
    """Enqueue the calls once for an idempotency key of the caller; the bool says whether this is a repeat. `body` is
    the request as JSON. Raises UnknownTask, and IdempotencyKeyReused for another body with the same key."""
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
    """A digest of fixed length, so that no key and no body is stored as it was sent."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
