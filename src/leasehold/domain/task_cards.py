"""Registered tasks, as callers outside the process see them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from leasehold.domain.frozen import frozen
from leasehold.domain.json_fields import Private

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
    expose: Annotated[Expose, Private(True)]
