"""Registered tasks, as callers outside the process see them."""

from __future__ import annotations

from typing import Any, Literal

from leasehold.domain.frozen import frozen

Expose = Literal[True, False, "task", "call"]


@frozen(kw_only=True)
class TaskCard:
    """A registered task. `arguments` and `result` are JSON Schema; an empty schema accepts anything."""

    name: str
    queue: str
    description: str
    arguments: dict[str, Any]
    result: dict[str, Any]
    tags: tuple[str, ...]
    expose: Expose
