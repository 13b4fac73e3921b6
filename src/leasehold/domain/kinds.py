"""What there is to be enqueued, as whoever calls from outside is told of it."""

from __future__ import annotations

from typing import Any, Literal

from leasehold.domain.frozen import frozen

Expose = Literal[True, False, "task", "call"]


@frozen(kw_only=True)
class KindCard:
    """A registered task. `arguments` and `result` are JSON Schema; an empty one: anything."""

    name: str
    queue: str
    description: str
    arguments: dict[str, Any]
    result: dict[str, Any]
    tags: tuple[str, ...]
    expose: Expose
